"""Operators that order elements or pick some of them by their values.

Semantics follow MegEngine's naive Argmxx, Argsort, TopK, CondTake and NonZero kernels. Equal elements are ordered
as those kernels order pairs of value and position: by position when ascending, from the back when descending.
Their order of NaN is accidental (``std::sort`` with an invalid ordering); here NaN counts as the largest.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ..graph import Opr, params as P
from ..graph.dtypes import Array, DType, plain
from .registry import Call, Shape, ShapeCall, and_int32, int32, kernel, per_input
from .shape import c_cast, known_value, scalar


def _argsort_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    _check_sortable(opr, inputs[0])
    return and_int32(opr, inputs)


def _check_sortable(opr: Opr, dtype: DType) -> None:
    if dtype.name in ("Bool", "Uint16"):
        raise ValueError(f"{opr.type} does not take {dtype.name}; convert it to int32 or float32")


def _sorting(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    rows = inputs[0]
    return prod(rows) * max(1, rows[-1].bit_length())


# Argmax and Argmin


def _arg(axis: int, shape: Shape) -> Shape:
    if not 0 <= axis < len(shape):
        raise ValueError(f"the axis must be from 0 to {len(shape) - 1} for shape {list(shape)}, found {axis}")
    if not shape[axis]:
        raise ValueError(f"axis {axis} of {list(shape)} has no elements to choose from")
    return (*shape[:axis], 1, *shape[axis + 1 :])


@kernel(
    "Argmax",
    "Argmin",
    dtype=int32,
    shape=lambda s: (_arg(s.get(P.Axis).axis, s.shape(0)),),
    flops=per_input(1),
)
def argmax(c: Call, x: Array) -> Array:
    """Return the position of the largest (smallest) element along an axis, which stays with size 1.

    The first of equal elements wins, and NaN before all others. As in MegEngine elements compare as float32, and the
    last NaN wins, in graphs that are not exact.

    Raises:
        ValueError: a negative or too large axis, or one of size 0.
    """
    axis = c.get(P.Axis).axis
    _arg(axis, x.shape)
    if c.opr.exact:
        best = x.argmax(axis) if c.opr.type == "Argmax" else x.argmin(axis)
        return np.expand_dims(best, axis).astype(np.int32)
    # The worst infinity counts as the worst finite number.
    limit = np.finfo(np.float32).max
    y = x.astype(np.float32, copy=False)
    best = np.maximum(y, -limit).argmax(axis) if c.opr.type == "Argmax" else np.minimum(y, limit).argmin(axis)
    positions = np.expand_dims(best, axis)
    if x.dtype.kind == "f":
        nan = np.isnan(np.take_along_axis(y, positions, axis))
        if nan.any():
            last = x.shape[axis] - 1 - np.isnan(np.flip(y, axis)).argmax(axis)
            positions = np.where(nan, np.expand_dims(last, axis), positions)
    return positions.astype(np.int32)


# Argsort


def _matrix(shape: Shape) -> Shape:
    if len(shape) != 2:
        raise ValueError(f"expected a matrix whose rows are sorted, found shape {list(shape)}")
    return shape


def _order(x: Array, ascending: bool) -> Array:
    """Return the positions in every row in sorted order."""
    positions = x.argsort(axis=1, kind="stable")
    return positions if ascending else positions[:, ::-1]


@kernel("Argsort", dtype=_argsort_dtype, shape=lambda s: (_matrix(s.shape(0)),) * 2, flops=_sorting)
def argsort(c: Call, x: Array) -> tuple[Array, Array]:
    """Sort every row of a matrix; also return the position in the row that each element had.

    Raises:
        ValueError: no matrix.
    """
    _matrix(x.shape)
    at = _order(x, c.get(P.Argsort).order == P.ArgsortOrder.ASCENDING)
    return np.take_along_axis(x, at, 1), at.astype(np.int32)


# TopK


def _topk_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[1].name != "Int32":
        raise ValueError(f"k must be Int32, found {inputs[1]}")
    _check_sortable(opr, inputs[0])
    return (inputs[0],) if len(opr.outputs) == 1 else (inputs[0], plain("Int32"))


def _topk(mode: P.TopKMode, shape: Shape, k: int) -> Shape:
    rows, n = _matrix(shape)
    if k == 0:
        raise ValueError("k must not be 0: positive takes the smallest elements, negative the largest")
    if mode == P.TopKMode.KTH_ONLY:
        if not n:
            raise ValueError(f"rows of shape {list(shape)} have no elements")
        return (rows,)
    return (rows, min(abs(k), n))


def _topk_shape(s: ShapeCall) -> Sequence[Shape | None]:
    shape = _topk(s.get(P.TopK).mode, s.shape(0), scalar(known_value(s, 1), "k"))
    return (shape,) * len(s.opr.outputs)


@kernel("TopK", dtype=_topk_dtype, shape=_topk_shape, flops=_sorting)
def topk(c: Call, x: Array, k: Array) -> Array | tuple[Array, Array]:
    """Return the `k` smallest elements of every row, ascending; for negative `k` the ``-k`` largest, descending.

    KTH_ONLY gives only the last of them. VALUE_IDX_NOSORT gives them in the order in which
    ``std::nth_element`` of the GNU C++ library leaves them.

    Raises:
        ValueError: no matrix, or `k` is 0.
    """
    mode, number = c.get(P.TopK).mode, scalar(k, "k")
    shape = _topk(mode, x.shape, number)
    n = x.shape[1]
    take = min(abs(number), n)
    if mode == P.TopKMode.KTH_ONLY:
        at = take - 1 if number > 0 else n - take
        return np.sort(x, axis=1)[:, at] if np.isnan(x).any() else np.partition(x, at, axis=1)[:, at]
    order = _order(x, number > 0)
    if mode == P.TopKMode.VALUE_IDX_NOSORT and take:
        order = _left_by_nth_element(order, take)
    at = order[:, :take]
    return np.take_along_axis(x, at, 1).reshape(shape), at.astype(np.int32)


def _left_by_nth_element(order: Array, k: int) -> Array:
    """Put rows of sorted positions into the order that ``nth_element(begin, begin + k - 1, end)`` leaves.

    Works on ranks, which are all different, so that a partition step is a few whole-array operations.
    """
    out = np.empty_like(order)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(order.shape[1])[None], 1)
    for row, rank, sorted_row in zip(out, ranks, order, strict=True):
        _introselect(rank, k - 1)
        row[:] = sorted_row[rank]
    return out


def _introselect(a: Array, nth: int) -> None:
    first, last = 0, a.size
    for _ in range(2 * (a.size.bit_length() - 1)):
        if last - first <= 3:
            break
        cut = _partition(a, first, last)
        first, last = (cut, last) if cut <= nth else (first, cut)
    a[first:last].sort()


def _partition(a: Array, first: int, last: int) -> int:
    """Do one step of quickselect around the median of three; return where the larger part begins."""
    trio = (first + 1, first + (last - first) // 2, last - 1)
    middle = sorted(trio, key=lambda i: int(a[i]))[1]
    a[[first, middle]] = a[[middle, first]]
    pivot, part = a[first], a[first + 1 : last]
    large = np.flatnonzero(part > pivot)
    small = np.flatnonzero(part < pivot)[::-1]
    n = min(large.size, small.size)
    swaps = int(np.count_nonzero(large[:n] < small[:n]))
    left, right = large[:swaps], small[:swaps]
    part[left], part[right] = part[right], part[left]
    return first + 1 + small.size


# CondTake and NonZero

_COMPARE: dict[P.CondTakeMode, Callable[[Any, Any], Any]] = {
    P.CondTakeMode.EQ: np.equal,
    P.CondTakeMode.NEQ: np.not_equal,
    P.CondTakeMode.LT: np.less,
    P.CondTakeMode.LEQ: np.less_equal,
    P.CondTakeMode.GT: np.greater,
    P.CondTakeMode.GEQ: np.greater_equal,
}


def _chosen(p: P.CondTake, mask: Array) -> Array:
    """Return the flat positions where the comparison with `val` holds."""
    value = c_cast(p.val, mask.dtype)
    if mask.dtype.kind == "f" and p.mode in (P.CondTakeMode.EQ, P.CondTakeMode.NEQ):
        near = np.abs(value - mask) < mask.dtype.type(p.eps)
        return np.flatnonzero(near if p.mode == P.CondTakeMode.EQ else ~near)
    return np.flatnonzero(_COMPARE[p.mode](mask, value))


@kernel("CondTake", dtype=and_int32, shape=lambda s: (None, None), flops=per_input(1))
def cond_take(c: Call, x: Array, mask: Array) -> tuple[Array, Array]:
    """Return the elements whose mask compares true with `val`, in one dimension, and their flat positions.

    Floating-point masks count as equal when they differ by less than `eps`; NaN is unequal to everything.

    Raises:
        ValueError: input and mask have different shapes, or `eps` is not positive.
    """
    p = c.get(P.CondTake)
    if x.shape != mask.shape:
        raise ValueError(f"the input has shape {list(x.shape)}, the mask {list(mask.shape)}")
    if not p.eps > 0:
        raise ValueError(f"eps must be positive, found {p.eps}")
    at = _chosen(p, mask)
    return x.reshape(-1)[at], at.astype(np.int32)


@kernel("NonZero", dtype=int32, shape=lambda s: (None,), flops=per_input(1))
def non_zero(c: Call, x: Array) -> Array:
    """Return the coordinates of the elements that are not zero (floats: not within 1e-6), one column per element."""
    at = _chosen(P.CondTake(mode=P.CondTakeMode.NEQ), x)
    return np.stack(np.unravel_index(at, x.shape)).astype(np.int32)
