"""Lowerings of products of matrices and of numpy.linalg."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .. import params as P
from ..imperative import Tensor, apply, apply1
from . import numpy_emit as e
from .numpy_axes import axes_of, axis_of
from .numpy_emit import M, elem, number
from .numpy_protocol import lowers, refused, ufunc
from .numpy_reduce import extreme, kept, summed
from .numpy_shape import moved
from .numpy_types import common, narrow, operand

__all__ = ["matmul", "product", "tensordot"]

_LT = P.ElemwiseMultiTypeMode.LT


def _both(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    kind = narrow(common([a, b]))
    return operand(a, kind), operand(b, kind)


# Products of stacks of matrices


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    """Matrices, or stacks of one shape, of one dtype."""
    kind = a._dtype.name
    if kind in ("Float32", "Float16"):
        return _operator(a, b)
    if kind == "Bool":
        found = _operator(e.cast(a, "int8"), e.cast(b, "int8"))
        return e.cast(found, "bool")
    return e.cast(_integers(a, b), a._dtype)


def _operator(a: Tensor, b: Tensor) -> Tensor:
    wide = P.MatrixMulComputeMode
    # numpy sums float16 in float32.
    param = P.MatrixMul(compute_mode=wide.FLOAT32 if a._dtype.name == "Float16" else wide.DEFAULT)
    name = "MatrixMulV2" if len(e.sizes(a)) == 2 else "BatchedMatrixMulV2"
    out = None
    if a._dtype.name == "Int8":
        from ..dtypes import plain

        out = plain("Int32")
    return apply1(name, param, inputs=[a, b], output_dtype=out, scalar=False)


def _digits(x: Tensor) -> list[Tensor]:
    """Bytes of integers, each signed, from the lowest."""
    count = {"Int8": 1, "Uint8": 2, "Int16": 2, "Uint16": 3}.get(x._dtype.name, 4)
    if count == 1:
        return [x]
    rest = e.cast(x, "int32")
    found = []
    for i in range(count):
        low = e.cast(rest, "int8")
        found.append(low)
        if i < count - 1:
            rest = elem(M.SHR, elem(M.SUB, rest, e.cast(low, "int32")), number(8, rest))
    return found


def _integers(a: Tensor, b: Tensor) -> Tensor:
    """Exact products of integers, wrapping at 32 bits, from products of their bytes."""
    total: Tensor | None = None
    for i, x in enumerate(_digits(a)):
        for j, y in enumerate(_digits(b)):
            if i + j > 3:
                continue
            part = _operator(x, y)
            if i + j:
                part = elem(M.SHL, part, number(8 * (i + j), part))
            total = part if total is None else elem(M.ADD, total, part)
    assert total is not None
    return total


def product(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` of tensors of one dtype with at least one axis each."""
    if not e.sizes(a) or not e.sizes(b):
        raise ValueError("matmul: input operand does not have enough dimensions, needs at least 1")
    vectors = (len(e.sizes(a)) == 1, len(e.sizes(b)) == 1)
    if vectors[0]:
        a = e.add_axes(a, [0])
    if vectors[1]:
        b = e.add_axes(b, [1])
    if e.sizes(a)[-1] != e.sizes(b)[-2]:
        raise ValueError(
            f"matmul: Input operand 1 has a mismatch in its core dimension 0 (size {e.sizes(b)[-2]} is different "
            f"from {e.sizes(a)[-1]})"
        )
    found = _stacks(a, b)
    ndim = len(e.sizes(found))
    gone = [ndim - 2] * vectors[0] + [ndim - 1] * vectors[1]
    return e.drop_axes(found, gone)


def _stacks(a: Tensor, b: Tensor) -> Tensor:
    if len(e.sizes(b)) == 2:
        if len(e.sizes(a)) == 2:
            return _multiply(a, b)
        flat = _multiply(e.reshape(a, (-1, a.shape[-1])), b)
        return e.reshape(flat, (*a.shape[:-1], b.shape[-1]))
    lead = e.broadcast_shape([a.shape[:-2], b.shape[:-2]])
    stacks = []
    for x in (a, b):
        x = e.broadcast(x, (*lead, *x.shape[-2:]))
        stacks.append(x if len(lead) == 1 else e.reshape(x, (-1, *x.shape[-2:])))
    found = _multiply(stacks[0], stacks[1])
    return found if len(lead) == 1 else e.reshape(found, (*lead, *found.shape[-2:]))


@ufunc("matmul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Product of matrices or stacks of matrices."""
    return product(a, b)


@ufunc("vecdot")
def vecdot(a: Tensor, b: Tensor) -> Tensor:
    """Inner products along the last axis."""
    found = elem(M.AND if e.is_bool(a) else M.MUL, a, b)
    return summed(found, [len(e.sizes(found)) - 1])


@lowers("linalg.matmul")
def linalg_matmul(x1: Any, x2: Any, /) -> Tensor:
    """Product of matrices or stacks of matrices."""
    return product(*_both(x1, x2))


@lowers("linalg.vecdot")
def linalg_vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Inner products along an axis."""
    a, b = _both(x1, x2)
    found = elem(M.MUL, a, b)
    return summed(found, [axis_of(axis, len(e.sizes(found)))])


@lowers("dot")
def dot(a: Any, b: Any, out: Any = None) -> Tensor:
    """Sum products over the last axis of one and the last but one of the other."""
    x, y = _both(a, b)
    if not e.sizes(x) or not e.sizes(y):
        return elem(M.AND if e.is_bool(x) else M.MUL, x, y)
    if len(e.sizes(y)) <= 2:
        return product(x, y)
    return tensordot(x, y, ([len(e.sizes(x)) - 1], [len(e.sizes(y)) - 2]))


@lowers("vdot")
def vdot(a: Any, b: Any, /) -> Tensor:
    """Inner product of flattened arrays."""
    x, y = _both(a, b)
    return product(e.flat(x), e.flat(y))


@lowers("inner")
def inner(a: Any, b: Any, /) -> Tensor:
    """Sum products over both last axes."""
    x, y = _both(a, b)
    if not e.sizes(x) or not e.sizes(y):
        return elem(M.MUL, x, y)
    return tensordot(x, y, ([len(e.sizes(x)) - 1], [len(e.sizes(y)) - 1]))


@lowers("outer", "linalg.outer")
def outer(a: Any, b: Any, out: Any = None) -> Tensor:
    """All products of two vectors."""
    x, y = _both(a, b)
    return elem(M.AND if e.is_bool(x) else M.MUL, e.add_axes(e.flat(x), [1]), e.flat(y))


@lowers("tensordot", "linalg.tensordot")
def tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    """Sum products over axes of both."""
    x, y = _both(a, b)
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
    left = e.reshape(left, (-1, *_joined(left.shape[len(rest[0]) :])))
    right = e.reshape(right, (*_joined(right.shape[: len(second)]), -1))
    if not inner_size:
        return e.full(number(0, x), shape)
    return e.reshape(_multiply(left, right), shape)


def _joined(sizes: Sequence[int]) -> tuple[int]:
    from ..imperative import Dim

    total: int = 1
    for n in sizes:
        total = n * total if isinstance(n, Dim) else total * n
    return (total,)


@lowers("kron")
def kron(a: Any, b: Any) -> Tensor:
    """Every element of one times the whole other."""
    x, y = _both(a, b)
    ndim = max(len(e.sizes(x)), len(e.sizes(y)))
    x, y = (e.reshape(v, (*(1,) * (ndim - len(e.sizes(v))), *v.shape)) for v in (x, y))
    wide = elem(
        M.MUL,
        e.reshape(x, tuple(n for m in x.shape for n in (m, 1))),
        e.reshape(y, tuple(n for m in y.shape for n in (1, m))),
    )
    return e.reshape(wide, tuple(_joined(pair)[0] for pair in zip(x.shape, y.shape, strict=True)))


@lowers("cross", "linalg.cross")
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Tensor:
    """Products of vectors of three elements."""
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = _both(a, b)
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
    found = e.concat(parts, last)
    return e.permute(found, moved(last + 1, [last], [axis_of(axisc, last + 1)]))


# numpy.linalg


def _float(a: Any) -> Tensor:
    x = operand(a)
    if x._dtype.name == "Float16":
        raise TypeError("array type float16 is unsupported in linalg")
    return e.cast(x, "float32")


def _square(a: Any) -> Tensor:
    x = _float(a)
    shape = e.sizes(x)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    return x


@lowers("linalg.inv")
def inv(a: Any) -> Tensor:
    """Inverse of matrices."""
    return apply1("MatrixInverse", P.Empty(), inputs=[_square(a)], scalar=False)


@lowers("linalg.solve")
def solve(a: Any, b: Any) -> Tensor:
    """The inverse of matrices times right-hand sides."""
    y = _float(b)
    return product(inv(a), y)


@lowers("linalg.matrix_power")
def matrix_power(a: Any, n: int) -> Tensor:
    """Repeated product of a matrix with itself."""
    x = operand(a)
    if n < 0:
        x, n = inv(x), -n
    if n == 0:
        size = x.shape[-1]
        mask = elem(M.EQ, e.add_axes(e.arange(size), [1]), e.arange(size))
        return e.broadcast(e.cast(mask, x._dtype), x.shape)
    result: Tensor | None = None
    while True:
        if n & 1:
            result = x if result is None else product(result, x)
        n >>= 1
        if not n:
            assert result is not None
            return result
        x = product(x, x)


@lowers("linalg.multi_dot")
def multi_dot(arrays: Any, *, out: Any = None) -> Tensor:
    """Product of several matrices, from the left."""
    found = operand(arrays[0])
    for other in arrays[1:]:
        found = dot(found, other)
    return found


_LARGEST = 16


@lowers("linalg.det")
def det(a: Any) -> Tensor:
    """Determinant, by elimination that is unrolled: up to 16 rows."""
    return _determinant(_square(a))


@lowers("linalg.slogdet")
def slogdet(a: Any) -> tuple[Tensor, Tensor]:
    """Sign and logarithm of the absolute value of the determinant."""
    found = det(a)
    return elem(M.SIGN, found), elem(M.LOG, elem(M.ABS, found))


def _entry(x: Tensor, i: int, j: int) -> Tensor:
    ndim = len(e.sizes(x))
    return e.subtensor(x, [(ndim - 2, None, None, None, i), (ndim - 1, None, None, None, j)])


def _determinant(x: Tensor) -> Tensor:
    """The product of the pivots; each step exchanges rows so that the pivot is the largest of its column."""
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
        mask = e.cast(elem(M.EQ, rows, chosen), "float32")
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
    """Singular value decomposition; signs of vectors may differ from numpy's."""
    x = _float(a)
    if len(e.sizes(x)) < 2:
        raise np.linalg.LinAlgError(f"{len(e.sizes(x))}-dimensional array given")
    param = P.SVD(full_matrices=full_matrices and compute_uv, compute_uv=compute_uv)
    found = apply("SVD", param, inputs=[x], n=3 if compute_uv else 1, scalar=False)
    return tuple(found) if compute_uv else found[0]


@lowers("linalg.svdvals")
def svdvals(x: Any, /) -> Tensor:
    """Singular values."""
    found = svd(x, compute_uv=False)
    assert isinstance(found, Tensor)
    return found


@lowers("linalg.pinv")
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tensor:
    """Pseudo-inverse by the singular values that are not tiny."""
    u, s, vt = svd(a, full_matrices=False)
    cut = rtol if rcond is None and rtol is not None else 1e-15 if rcond is None else rcond
    largest = extreme(s, True, [len(e.sizes(s)) - 1], True)
    keep = e.compare(_LT, elem(M.MUL, operand(cut, np.float32), largest), s)
    inverse = e.where(keep, elem(M.TRUE_DIV, number(1, s), e.where(keep, s, number(1, s))), number(0, s))
    order = [*range(len(e.sizes(u)) - 2), len(e.sizes(u)) - 1, len(e.sizes(u)) - 2]
    scaled = elem(M.MUL, e.permute(vt, order), e.add_axes(inverse, [len(e.sizes(inverse)) - 1]))
    return product(scaled, e.permute(u, order))


@lowers("linalg.matrix_rank")
def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tensor:
    """How many singular values are not tiny."""
    x = _float(A)
    s = svdvals(x)
    if tol is None:
        share = max(e.sizes(x)[-2:]) * float(np.finfo(np.float32).eps) if rtol is None else rtol
        limit = elem(M.MUL, extreme(s, True, [len(e.sizes(s)) - 1], True), operand(share, np.float32))
    else:
        limit = operand(tol, np.float32)
    return summed(e.cast(e.compare(_LT, limit, s), "int32"), [len(e.sizes(s)) - 1])


@lowers("linalg.cond")
def cond(x: Any, p: Any = None) -> Tensor:
    """Condition number, of the largest and smallest singular value or by another norm."""
    if p not in (None, 2, -2):
        a = _square(x)
        return elem(M.MUL, norm(a, p, (-2, -1)), norm(inv(a), p, (-2, -1)))
    s = svdvals(x)
    last = [len(e.sizes(s)) - 1]
    high, low = extreme(s, True, last), extreme(s, False, last)
    return elem(M.TRUE_DIV, low, high) if p == -2 else elem(M.TRUE_DIV, high, low)


# Norms


def _vector_norm(x: Tensor, order: Any, axes: Sequence[int], keepdims: Any) -> Tensor:
    size = elem(M.ABS, x)
    if order in (None, 2):
        return elem(M.SQRT, summed(elem(M.SQUARE, x), axes, keepdims))
    if order in (np.inf, -np.inf):
        return extreme(size, order > 0, axes, keepdims)
    if order == 0:
        zero = number(0, x)
        return summed(e.cast(e.compare(_LT, zero, size), x._dtype), axes, keepdims)
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
        found = summed(s, last) if order == "nuc" else extreme(s, order > 0, last)
        return kept(found, axes, keepdims)
    raise ValueError("Invalid norm order for matrices.")


@lowers("linalg.norm")
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Tensor:
    """Norm of vectors or matrices."""
    y = operand(x)
    y = y if e.is_float(y) else e.cast(y, "float32")
    ndim = len(e.sizes(y))
    if axis is None:
        if ord is None or (ord in ("f", "fro") and ndim == 2) or (ord == 2 and ndim == 1):
            found = e.flat(y)
            found = elem(M.SQRT, summed(elem(M.SQUARE, found), [0]))
            return kept(found, [*range(ndim)], keepdims)
        if ndim not in (1, 2):
            raise ValueError("Improper number of dimensions to norm.")
        axis = tuple(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    if len(given) == 1:
        return _vector_norm(y, ord, axes_of(given, ndim), keepdims)
    if len(given) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    rows, columns = (axis_of(i, ndim) for i in given)
    if rows == columns:
        raise ValueError("Duplicate axes given.")
    return _matrix_norm(y, ord, rows, columns, keepdims)


@lowers("linalg.vector_norm")
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: Any = False, ord: Any = 2) -> Tensor:
    """Norm over axes as vectors."""
    y = operand(x)
    y = y if e.is_float(y) else e.cast(y, "float32")
    axes = axes_of(axis, len(e.sizes(y)))
    return _vector_norm(y, ord, axes, keepdims)


@lowers("linalg.matrix_norm")
def matrix_norm(x: Any, /, *, keepdims: Any = False, ord: Any = "fro") -> Tensor:
    """Norm of matrices."""
    y = _float(x)
    ndim = len(e.sizes(y))
    return _matrix_norm(y, ord, ndim - 2, ndim - 1, keepdims)
