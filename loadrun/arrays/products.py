"""Lowerings of products of vectors, matrices and stacks of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..layers import emit as e
from ..layers.emit import M, elem, number, summed
from ..layers.products import multiply, product
from ..tensors import Tensor, TracedInt
from ..tensors.naming import refused
from .axes import axis_of
from .manipulation import moved
from .promotion import common, narrow, operand
from .registry import lowers, ufunc


def _operands(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    kind = narrow(common([a, b]))
    return operand(a, kind), operand(b, kind)


@ufunc("matmul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of matrices or stacks of matrices."""
    return product(a, b)


@ufunc("vecdot")
def vecdot(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner products along the last axis."""
    result = elem(M.AND if e.is_bool(a) else M.MUL, a, b)
    return summed(result, [len(e.sizes(result)) - 1])


@lowers("linalg.matmul")
def linalg_matmul(x1: Any, x2: Any, /) -> Tensor:
    """Return the product of matrices or stacks of matrices."""
    return product(*_operands(x1, x2))


@lowers("linalg.vecdot")
def linalg_vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Return the inner products along an axis."""
    a, b = _operands(x1, x2)
    result = elem(M.MUL, a, b)
    return summed(result, [axis_of(axis, len(e.sizes(result)))])


@lowers("dot")
def dot(a: Any, b: Any, out: Any = None) -> Tensor:
    """Return the sum products over the last axis of one and the last but one of the other."""
    x, y = _operands(a, b)
    if not e.sizes(x) or not e.sizes(y):
        return elem(M.AND if e.is_bool(x) else M.MUL, x, y)
    if len(e.sizes(y)) <= 2:
        return product(x, y)
    return tensordot(x, y, ([len(e.sizes(x)) - 1], [len(e.sizes(y)) - 2]))


@lowers("vdot")
def vdot(a: Any, b: Any, /) -> Tensor:
    """Return the inner product of flattened arrays."""
    x, y = _operands(a, b)
    return product(e.flat(x), e.flat(y))


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


@lowers("kron")
def kron(a: Any, b: Any) -> Tensor:
    """Return every element of one times the whole other."""
    x, y = _operands(a, b)
    ndim = max(len(e.sizes(x)), len(e.sizes(y)))
    x, y = (e.reshape(v, (*(1,) * (ndim - len(e.sizes(v))), *v.shape)) for v in (x, y))
    wide = elem(
        M.MUL,
        e.reshape(x, tuple(n for m in x.shape for n in (m, 1))),
        e.reshape(y, tuple(n for m in y.shape for n in (1, m))),
    )
    return e.reshape(wide, tuple(_total_size(pair)[0] for pair in zip(x.shape, y.shape, strict=True)))


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
