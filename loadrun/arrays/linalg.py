"""Lowerings of numpy.linalg, of products of vectors, matrices and stacks of matrices, and of einsum."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..graph import params as P
from ..layers import emit as e
from ..layers.emit import M, elem, kept, number, summed
from ..layers.products import LETTERS, contracted, multiply, product
from ..tensors import Tensor, TracedInt, apply, apply1
from ..tensors.access import dtype_of
from ..tensors.naming import refused
from .axes import axes_of, axis_of
from .manipulation import moved
from .promotion import common, narrow, operand
from .reductions import extreme
from .registry import lowers, ufunc

_LT = P.ElemwiseMultiTypeMode.LT


def _as_float(a: Any) -> Tensor:
    x = operand(a)
    if dtype_of(x).name == "Float16":
        raise TypeError("array type float16 is unsupported in linalg")
    return e.as_float(x)


def _square(a: Any) -> Tensor:
    x = _as_float(a)
    shape = e.sizes(x)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    return x


@lowers("linalg.inv")
def inv(a: Any) -> Tensor:
    """Return the inverse of matrices."""
    return apply1("MatrixInverse", P.Empty(), inputs=[_square(a)], scalar=False)


@lowers("linalg.solve")
def solve(a: Any, b: Any) -> Tensor:
    """Return the inverse of matrices times right-hand sides."""
    y = _as_float(b)
    return product(inv(a), y)


_LARGEST = 16


@lowers("linalg.det")
def det(a: Any) -> Tensor:
    """Return the determinant, by elimination that is unrolled: up to 16 rows."""
    return _determinant(_square(a))


@lowers("linalg.slogdet")
def slogdet(a: Any) -> tuple[Tensor, Tensor]:
    """Return the sign and logarithm of the absolute value of the determinant."""
    result = det(a)
    return elem(M.SIGN, result), elem(M.LOG, elem(M.ABS, result))


def _entry(x: Tensor, i: int, j: int) -> Tensor:
    ndim = len(e.sizes(x))
    return e.subtensor(x, [(ndim - 2, None, None, None, i), (ndim - 1, None, None, None, j)])


def _determinant(x: Tensor) -> Tensor:
    """Return the product of the pivots; each step exchanges rows so that the pivot is the largest of its column."""
    n = e.sizes(x)[-1]
    if n > _LARGEST:
        raise refused(f"np.linalg.det is traced up to {_LARGEST} rows, found {n}")
    if n == 2:
        return elem(
            M.SUB,
            elem(M.MUL, _entry(x, 0, 0), _entry(x, 1, 1)),
            elem(M.MUL, _entry(x, 0, 1), _entry(x, 1, 0)),
        )
    ndim = len(e.sizes(x))
    result: Tensor | None = None
    one, zero = number(1, x), number(0, x)
    for _ in range(n - 1):
        column = e.subtensor(x, [(ndim - 1, None, 1, None, None)])
        size = elem(M.ABS, column)
        chosen = apply1("Argmax", P.Axis(axis=ndim - 2), inputs=[size], scalar=False)
        rows = e.add_axes(e.arange(int(e.sizes(x)[-2])), [1])
        mask = e.as_float(elem(M.EQ, rows, chosen))
        top = e.subtensor(x, [(ndim - 2, None, 1, None, None)])
        best = summed(elem(M.MUL, mask, x), [ndim - 2], True)
        pivot = e.subtensor(best, [(ndim - 2, None, None, None, 0), (ndim - 1, None, None, None, 0)])
        swapped = e.subtensor(
            elem(M.ADD, x, elem(M.MUL, mask, elem(M.SUB, top, best))), [(ndim - 2, 1, None, None, None)]
        )
        stays = e.subtensor(mask, [(ndim - 2, None, None, None, 0), (ndim - 1, None, None, None, 0)])
        sign = elem(M.SUB, elem(M.ADD, stays, stays), one)
        pivot_wide = e.subtensor(best, [(ndim - 1, None, 1, None, None)])
        safe = elem(M.ADD, pivot_wide, elem(M.EQ, pivot_wide, zero))
        factor = elem(M.TRUE_DIV, e.subtensor(swapped, [(ndim - 1, None, 1, None, None)]), safe)
        x = e.subtensor(elem(M.SUB, swapped, elem(M.MUL, factor, best)), [(ndim - 1, 1, None, None, None)])
        step = elem(M.MUL, sign, pivot)
        result = step if result is None else elem(M.MUL, result, step)
    last = _entry(x, 0, 0)
    return last if result is None else elem(M.MUL, result, last)


@lowers("linalg.svd")
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Decompose into singular values and vectors, whose signs may differ from numpy's."""
    x = _as_float(a)
    if len(e.sizes(x)) < 2:
        raise np.linalg.LinAlgError(f"{len(e.sizes(x))}-dimensional array given")
    param = P.SVD(full_matrices=full_matrices and compute_uv, compute_uv=compute_uv)
    result = apply("SVD", param, inputs=[x], n=3 if compute_uv else 1, scalar=False)
    return tuple(result) if compute_uv else result[0]


@lowers("linalg.svdvals")
def svdvals(x: Any, /) -> Tensor:
    """Return the singular values."""
    result = svd(x, compute_uv=False)
    assert isinstance(result, Tensor)
    return result


# Norms


def _vector_norm(x: Tensor, order: Any, axes: Sequence[int], keepdims: Any) -> Tensor:
    size = elem(M.ABS, x)
    if order in (None, 2):
        return elem(M.SQRT, summed(elem(M.SQUARE, x), axes, keepdims))
    if order in (np.inf, -np.inf):
        return extreme(size, order > 0, axes, keepdims)
    if order == 0:
        zero = number(0, x)
        return summed(e.cast(e.compare(_LT, zero, size), dtype_of(x)), axes, keepdims)
    if order == 1:
        return summed(size, axes, keepdims)
    if isinstance(order, str):
        raise ValueError(f"Invalid norm order '{order}' for vectors")
    total = summed(elem(M.POW, size, number(float(order), x)), axes, keepdims)
    return elem(M.POW, total, number(1 / float(order), x))


def _matrix_norm(x: Tensor, order: Any, rows: int, columns: int, keepdims: Any) -> Tensor:
    axes = sorted((rows, columns))
    if order in (None, "fro", "f"):
        return elem(M.SQRT, summed(elem(M.SQUARE, x), axes, keepdims))
    if order in (1, -1, np.inf, -np.inf):
        added, chosen = (rows, columns) if abs(order) == 1 else (columns, rows)
        totals = summed(elem(M.ABS, x), [added], True)
        return kept(e.drop_axes(extreme(totals, order > 0, [chosen], True), axes), axes, keepdims)
    if order in (2, -2, "nuc"):
        ndim = len(e.sizes(x))
        s = svdvals(e.permute(x, moved(ndim, [rows, columns], [ndim - 2, ndim - 1])))
        last = [len(e.sizes(s)) - 1]
        result = summed(s, last) if order == "nuc" else extreme(s, order > 0, last)
        return kept(result, axes, keepdims)
    raise ValueError("Invalid norm order for matrices.")


@lowers("linalg.norm")
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Tensor:
    """Return the norm of vectors or matrices."""
    y = operand(x)
    y = y if e.is_float(y) else e.as_float(y)
    ndim = len(e.sizes(y))
    if axis is None:
        if ord is None or (ord in ("f", "fro") and ndim == 2) or (ord == 2 and ndim == 1):
            result = e.flat(y)
            result = elem(M.SQRT, summed(elem(M.SQUARE, result), [0]))
            return kept(result, [*range(ndim)], keepdims)
        if ndim not in (1, 2):
            raise ValueError("Improper number of dimensions to norm.")
        axis = tuple(range(ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    if len(axes) == 1:
        return _vector_norm(y, ord, axes_of(axes, ndim), keepdims)
    if len(axes) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    rows, columns = (axis_of(i, ndim) for i in axes)
    if rows == columns:
        raise ValueError("Duplicate axes given.")
    return _matrix_norm(y, ord, rows, columns, keepdims)


def _operands(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    kind = narrow(common([a, b]))
    return operand(a, kind), operand(b, kind)


@ufunc("matmul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of matrices or stacks of matrices."""
    return product(a, b)


@lowers("dot")
def dot(a: Any, b: Any, out: Any = None) -> Tensor:
    """Return the sum products over the last axis of one and the last but one of the other."""
    x, y = _operands(a, b)
    if not e.sizes(x) or not e.sizes(y):
        return elem(M.AND if e.is_bool(x) else M.MUL, x, y)
    if len(e.sizes(y)) <= 2:
        return product(x, y)
    return tensordot(x, y, ([len(e.sizes(x)) - 1], [len(e.sizes(y)) - 2]))


@lowers("inner")
def inner(a: Any, b: Any, /) -> Tensor:
    """Return the sum products over both last axes."""
    x, y = _operands(a, b)
    if not e.sizes(x) or not e.sizes(y):
        return elem(M.MUL, x, y)
    return tensordot(x, y, ([len(e.sizes(x)) - 1], [len(e.sizes(y)) - 1]))


@lowers("outer", "linalg.outer")
def outer(a: Any, b: Any, out: Any = None) -> Tensor:
    """Return all products of two vectors."""
    x, y = _operands(a, b)
    return elem(M.AND if e.is_bool(x) else M.MUL, e.add_axes(e.flat(x), [1]), e.flat(y))


@lowers("tensordot", "linalg.tensordot", arrays=True)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    """Return the sum products over axes of both."""
    x, y = _operands(a, b)
    na, nb = len(e.sizes(x)), len(e.sizes(y))
    if isinstance(axes, (int, np.integer)):
        first, second = [*range(na - int(axes), na)], [*range(int(axes))]
    else:
        first, second = (
            [axis_of(i, n) for i in (v if isinstance(v, (list, tuple, np.ndarray)) else (v,))]
            for v, n in zip(axes, (na, nb), strict=True)
        )
    if [e.sizes(x)[i] for i in first] != [e.sizes(y)[i] for i in second]:
        raise ValueError("shape-mismatch for sum")
    rest = [[i for i in range(n) if i not in used] for n, used in ((na, first), (nb, second))]
    left = e.permute(x, [*rest[0], *first])
    right = e.permute(y, [*second, *rest[1]])
    shape = (*left.shape[: len(rest[0])], *right.shape[len(second) :])
    inner_size = prod(e.sizes(x)[i] for i in first)
    left = e.reshape(left, (-1, *_total_size(left.shape[len(rest[0]) :])))
    right = e.reshape(right, (*_total_size(right.shape[: len(second)]), -1))
    if not inner_size:
        return e.full(number(0, x), shape)
    return e.reshape(multiply(left, right), shape)


def _total_size(sizes: Sequence[int]) -> tuple[int]:
    total: int = 1
    for n in sizes:
        total = n * total if isinstance(n, TracedInt) else total * n
    return (total,)


@lowers("cross", "linalg.cross")
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Tensor:
    """Return products of vectors of three elements."""
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = _operands(a, b)
    x, y = (
        e.permute(v, moved(len(e.sizes(v)), [axis_of(i, len(e.sizes(v)))], [len(e.sizes(v)) - 1]))
        for v, i in ((x, axisa), (y, axisb))
    )
    if e.sizes(x)[-1] != 3 or e.sizes(y)[-1] != 3:
        raise refused("np.cross is traced for vectors of three elements")

    def part(v: Tensor, i: int) -> Tensor:
        return e.subtensor(v, [(len(e.sizes(v)) - 1, i, i + 1, None, None)])

    parts = []
    for i, j in ((1, 2), (2, 0), (0, 1)):
        parts.append(elem(M.SUB, elem(M.MUL, part(x, i), part(y, j)), elem(M.MUL, part(x, j), part(y, i))))
    last = len(e.sizes(parts[0])) - 1
    result = e.concat(parts, last)
    return e.permute(result, moved(last + 1, [last], [axis_of(axisc, last + 1)]))


def _interleaved(operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return the form ``einsum(a, [0, 1], b, [1, 2], [0, 2])`` as subscripts and operands."""
    arrays = [*operands[0 : len(operands) - len(operands) % 2 : 2]]
    lists = [*operands[1::2]]

    def name(sub: Any) -> str:
        return "".join("..." if i is Ellipsis else LETTERS[int(i)] for i in sub)

    text = ",".join(map(name, lists))
    return (text + "->" + name(operands[-1]) if len(operands) % 2 else text), arrays


@lowers("einsum")
def einsum(
    *operands: Any,
    out: Any = None,
    optimize: Any = False,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
) -> Tensor:
    """Sum as Einstein does, contracting pair by pair in numpy's greedy order."""
    if not operands:
        raise ValueError("must specify the einstein sum subscripts string and at least one operand")
    if isinstance(operands[0], str):
        subscripts, arrays = operands[0], [*operands[1:]]
    else:
        subscripts, arrays = _interleaved(operands)
    kind = narrow(common(arrays) if dtype is None else dtype)
    return contracted(subscripts, [operand(a, kind) for a in arrays])
