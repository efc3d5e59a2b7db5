"""Lowerings of the numpy functions that pick elements, and of those that write into an array."""

from typing import Any

import numpy as np

from ..graph import params as P
from ..layers import emit as e
from ..layers.emit import M, elem
from ..tensors import Tensor, TracedInt, apply1, least
from ..tensors.access import as_vector, dtype_of
from ..tensors.naming import refused
from . import indexing as numpy_index
from .array import TracedArray
from .axes import axis_of
from .manipulation import moved, viewed
from .promotion import common, narrow, operand
from .reductions import flat_or, sum_
from .registry import lowers
from .views import ViewPart


@lowers("where", arrays=True)
def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    """Return elements of one array or another; with the condition alone, where it is true."""
    mask = operand(condition, np.bool_)
    if x is None and y is None:
        return nonzero(mask)
    if x is None or y is None:
        raise ValueError("either both or neither of x and y should be given")
    kind = narrow(common([x, y]))
    a, b = operand(x, kind), operand(y, kind)
    return e.where(mask, a, b)


@lowers("nonzero")
def nonzero(a: Any) -> tuple[Tensor, ...]:
    """Return the coordinates of what is not zero, one int32 vector an axis."""
    return tuple(numpy_index.nonzero(e.cast(operand(a), "bool")))


@lowers("flatnonzero")
def flatnonzero(a: Any) -> Tensor:
    """Return the places in the flattened array of what is not zero."""
    return nonzero(e.flat(operand(a)))[0]


@lowers("argwhere")
def argwhere(a: Any) -> Tensor:
    """Return the coordinates of what is not zero, one row per element."""
    return e.concat([e.add_axes(v, [1]) for v in nonzero(a)], 1)


@lowers("select", arrays=True)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Tensor:
    """Choose for every element by the first condition that holds."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    kind = narrow(common([*choicelist, default]))
    result = operand(default, kind)
    for condition, choice in [*zip(condlist, choicelist, strict=True)][::-1]:
        result = e.where(operand(condition, np.bool_), operand(choice, kind), result)
    return result


# Places


def _inside(index: Tensor, size: int, mode: str) -> Tensor:
    """Return indices made valid as `mode` says; invalid ones are an error when the graph runs."""
    if mode == "raise":
        return index
    n = e.like(size, index)
    if mode == "wrap":
        return elem(M.MOD, index, n)
    last = elem(M.SUB, n, e.number(1, index))
    return elem(M.MAX, elem(M.MIN, index, last), e.number(0, index))


@lowers("take")
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Tensor:
    """Return slices of an axis by their numbers."""
    x, at = flat_or(a, axis)
    index = operand(indices)
    if dtype_of(index).is_float or e.is_bool(index):
        raise TypeError(
            f"Cannot cast array data from {index.dtype!r} to dtype('int64') according to the rule 'safe'"
        )
    index = _inside(e.cast(index, "int32"), x.shape[at], mode)
    positions = e.known(index)
    n = e.sizes(x)[at]
    if positions is not None and positions.size and not (-n <= positions.min() and positions.max() < n):
        bad = int(positions.max()) if positions.max() >= n else int(positions.min())
        raise IndexError(f"index {bad} is out of bounds for axis {at} with size {n}")
    return e.gather(as_vector(x), [(at, index)])


def along(x: Tensor, index: Tensor, axis: int) -> Tensor:
    """Return one element for every index along an axis; all other axes broadcast."""
    ids = []
    shape = e.broadcast_shape(
        [(*x.shape[:axis], 1, *x.shape[axis + 1 :]), (*index.shape[:axis], 1, *index.shape[axis + 1 :])]
    )
    ndim = len(shape)
    x = e.broadcast(x, (*shape[:axis], x.shape[axis], *shape[axis + 1 :]))
    for i in range(ndim):
        grid = index
        if i != axis:
            grid = e.reshape(e.arange(shape[i]), tuple(-1 if j == i else 1 for j in range(ndim)))
        ids.append((i, grid))
    return e.gather(x, ids)


@lowers("take_along_axis")
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Tensor:
    """Return one element for every index along an axis."""
    x, at = flat_or(arr, axis, strict=True)
    index = e.cast(operand(indices), "int32")
    if len(e.sizes(index)) != len(e.sizes(x)):
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    return along(x, index, at)


@lowers("compress")
def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Tensor:
    """Return slices of an axis where a vector of booleans is true."""
    x, at = flat_or(a, axis)
    return e.gather(x, [(at, flatnonzero(condition))])


# Diagonals


def _diagonal(x: Tensor, offset: int, axis1: int, axis2: int) -> Tensor:
    ndim = len(e.sizes(x))
    i, j = axis_of(axis1, ndim), axis_of(axis2, ndim)
    if i == j:
        raise ValueError("axis1 and axis2 cannot be the same")
    x = e.permute(x, [i, j, *(k for k in range(ndim) if k not in (i, j))])
    if ndim == 2:
        return apply1("Diag", P.Diag(k=offset), inputs=[x], scalar=False)
    rows, columns = x.shape[:2]
    down, right = max(-offset, 0), max(offset, 0)
    m, n = rows - down if down else rows, columns - right if right else columns
    length = least(m, n) if isinstance(m, TracedInt) or isinstance(n, TracedInt) else min(m, n)
    at = e.arange(length)
    result = e.gather(x, [(0, _shifted(at, down)), (1, _shifted(at, right))])
    return e.permute(result, [*range(1, ndim - 1), 0])


def _shifted(at: Tensor, by: int) -> Tensor:
    return elem(M.ADD, at, e.number(by, at)) if by else at


@lowers("diagonal")
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return a read-only view of a diagonal, which becomes the last axis."""
    return viewed(
        a,
        ViewPart(
            lambda x: _diagonal(x, offset, axis1, axis2),
            None,
            lambda s, _: np.diagonal(s, offset, axis1, axis2),
            ordered=False,
            key=("diagonal", offset, axis1, axis2),
        ),
    )


@lowers("diag")
def diag(v: Any, k: int = 0) -> Any:
    """Return a diagonal of a matrix, or the matrix that has a vector as its diagonal."""
    x = operand(v)
    if len(e.sizes(x)) == 1:
        return apply1("Diag", P.Diag(k=k), inputs=[x], scalar=False)
    if len(e.sizes(x)) != 2:
        raise ValueError("Input must be 1- or 2-d.")
    return diagonal(v, k)


@lowers("trace")
def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Tensor:
    """Return the sum of a diagonal."""
    return sum_(_diagonal(operand(a), offset, axis1, axis2), -1, dtype)


def _below(x: Tensor, k: int) -> Tensor:
    """Tell where a matrix's column is at most its row plus `k`."""
    rows, columns = x.shape[-2:]
    i, j = e.arange(rows), e.arange(columns)
    traced = isinstance(k, TracedInt)
    i = elem(M.ADD, i, e.like(k, i) if traced else e.number(k, i)) if k or traced else i
    return e.compare(P.ElemwiseMultiTypeMode.LEQ, j, e.add_axes(i, [1]))


def _square(m: Any) -> Tensor:
    x = operand(m)
    return e.broadcast(x, (x.shape[0], x.shape[0])) if len(e.sizes(x)) == 1 else x


@lowers("tril")
def tril(m: Any, k: int = 0) -> Tensor:
    """Set everything above a diagonal to zero."""
    x = _square(m)
    return e.where(_below(x, k), x, e.number(0, x))


@lowers("triu")
def triu(m: Any, k: int = 0) -> Tensor:
    """Set everything below a diagonal to zero."""
    x = _square(m)
    return e.where(e.logical_not(_below(x, k - 1)), x, e.number(0, x))


# Writing


def _target(a: Any, name: str) -> Tensor:
    if not isinstance(a, Tensor):
        raise refused(
            f"np.{name} writes into an array that is not traced",
            way_out="make it inside the function from a traced array: np.zeros_like(x), x.copy()",
        )
    return operand(a)


def _reset(a: Any, value: Tensor) -> None:
    if isinstance(a, TracedArray):
        if a._cell.scalar:
            raise TypeError("a numpy scalar cannot be written to")
        a._cell.write(value)
    else:
        a.set_value(value)


@lowers("copyto")
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Write values into an array."""
    x = _target(dst, "copyto")
    if (
        isinstance(dst, TracedArray)
        and isinstance(src, TracedArray)
        and e.sizes(x)
        and dst._cell.is_same(src._cell)
    ):
        # numpy copies nothing onto itself, before it asks whether it may write.
        return
    value = e.broadcast(numpy_index.fitted(operand(src, dtype_of(x).np), x.shape), x.shape)
    _reset(dst, value if where is True else e.where(operand(where, np.bool_), value, x))


@lowers("put_along_axis")
def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    """Write one element for every index along an axis."""
    x = _target(arr, "put_along_axis")
    at = axis_of(axis, len(e.sizes(x)))
    index = e.cast(operand(indices), "int32")
    ndim = len(e.sizes(x))
    order = moved(ndim, [at], [0])
    back = [int(i) for i in np.argsort(order)]
    y, place = e.permute(x, order), e.permute(index, order)
    place = e.broadcast(place, (place.shape[0], *y.shape[1:]))
    ids = [(0, place)]
    for i in range(1, ndim):
        grid = e.reshape(e.arange(y.shape[i]), tuple(-1 if j == i else 1 for j in range(ndim)))
        ids.append((i, grid))
    value = operand(values, dtype_of(x).np)
    value = e.broadcast(value, e.permute(place, back).shape)
    changed = e.scatter(y, e.permute(value, order), ids)
    _reset(arr, e.permute(changed, back))


@lowers("ix_")
def ix_(*args: Any) -> tuple[Tensor, ...]:
    """Return index vectors, each along an axis of its own."""
    result = []
    for i, v in enumerate(args):
        index = operand(v)
        if e.is_bool(index):
            index = flatnonzero(index)
        result.append(e.reshape(index, tuple(-1 if j == i else 1 for j in range(len(args)))))
    return tuple(result)


@lowers("unravel_index")
def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Tensor, ...]:
    """Return coordinates from places in the flattened array."""
    rest = operand(indices, np.int32)
    result: list[Tensor] = []
    for n in [*shape][:0:-1]:
        size = e.like(n if isinstance(n, TracedInt) else int(n), rest)
        result.append(elem(M.MOD, rest, size))
        rest = elem(M.FLOOR_DIV, rest, size)
    return (rest, *result[::-1])
