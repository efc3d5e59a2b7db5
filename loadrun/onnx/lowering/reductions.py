"""Reductions, softmax and relatives, positions of extremes, running sums."""

from __future__ import annotations

import numpy as np

from ...arrays.reductions import element_count, scanned
from ...build import emit as e
from ...build.emit import kept, summed
from ...build.layers.activation import log_softmax, softmax
from ...graph import params as P
from ...graph.dtypes import plain
from ...tensors import Tensor, apply1
from ...tensors.access import dtype_of, static_shape
from ..call import NodeCall, front, lower
from ..values import INT64, Value
from . import M, cast, const_like, of_length
from .shapes import flat_to_2d

__all__ = ["axes_of", "extreme"]

_R = P.ReduceMode


def axes_of(c: NodeCall, rank: int, since: int = 18) -> list[int] | None:
    """Return the axes of a reduction, or None if there is nothing to reduce."""
    axes = c.ints("axes")
    if c.opset >= since and c.has(1):
        axes = c.integers(1, "axes")
    if not axes:
        if c.flag("noop_with_empty_axes"):
            return None
        return list(range(rank))
    return sorted({front(a, rank) for a in axes})


def _in_float(x: Tensor) -> Tensor:
    """Return the tensor in the float type that holds its numbers: float64 for integers of 32 bits, too."""
    return cast(x, plain("Float64")) if dtype_of(x).name == "Int32" else e.real(x)


def _from_float(y: Tensor, x: Tensor) -> Tensor:
    """Return results of `_in_float` in the tensor's own dtype, those beyond int32 at its ends."""
    if dtype_of(x).name == "Int32":
        ends = np.iinfo(np.int32)
        y = e.elem(M.MIN, e.elem(M.MAX, y, const_like(ends.min, y)), const_like(ends.max, y))
    return cast(y, dtype_of(x))


def _reducer(c: NodeCall) -> tuple[Tensor, list[int] | None]:
    x = c.t(0)
    return x, axes_of(c, x.ndim, 13 if c.op == "ReduceSum" else 18)


def _dims_kept(c: NodeCall, y: Tensor, axes: list[int]) -> Tensor:
    return kept(y, axes, c.flag("keepdims", 1))


def _sum(x: Tensor, axes: list[int]) -> Tensor:
    if not axes:
        return x
    # MegEngine sums 8-bit integers in 32 bits only if told to.
    return summed(e.whole(x) if dtype_of(x).name in ("Uint8", "Int8", "Int16") else x, axes)


@lower("ReduceSum")
def _reduce_sum(c: NodeCall) -> Tensor:
    x, axes = _reducer(c)
    return x if axes is None else _dims_kept(c, _sum(x, axes), axes)


@lower("ReduceMean")
def _reduce_mean(c: NodeCall) -> Tensor:
    x, axes = _reducer(c)
    if not axes:
        return x
    if any(static_shape(x)[a] == 0 for a in axes):
        # ONNX Runtime gives 0, not NaN.
        return _dims_kept(c, _of_nothing(x, axes, 0), axes)
    if dtype_of(x).is_float:
        result = e.reduce(e.real(x), _R.MEAN, axes)
        return _dims_kept(c, cast(result, dtype_of(x)), axes)
    total = _sum(cast(x, plain("Int64")), axes)
    from .elementwise import truncated  # for start-up

    return _dims_kept(c, cast(truncated(total, e.like(element_count(x, axes), total)), dtype_of(x)), axes)


@lower("ReduceProd")
def _reduce_prod(c: NodeCall) -> Tensor:
    x, axes = _reducer(c)
    if axes is None:
        return x
    wide = e.whole(x) if dtype_of(x).name in ("Uint8", "Int8", "Int16") else x
    return _dims_kept(c, e.reduce(wide, _R.PRODUCT, axes), axes)


def extreme(x: Tensor, largest: bool, axes: list[int]) -> Tensor:
    """Reduce to the largest or smallest value; infinity over no elements."""
    if e.is_bool(x):
        # The maximum of no elements is False, the minimum True.
        return cast(extreme(cast(x, "uint8"), largest, axes), "bool")
    if any(static_shape(x)[a] == 0 for a in axes):
        return _of_nothing(x, axes, _worst(x, largest))
    return e.reduce(x, _R.MAX if largest else _R.MIN, axes)


def _of_nothing(x: Tensor, axes: list[int], value: int | float) -> Tensor:
    """Return one value for all results of a reduction over no elements."""
    for a in axes:
        x = of_length(x, a)
    return e.full(const_like(value, x), [n for i, n in enumerate(x.shape) if i not in axes])


def _worst(x: Tensor, largest: bool) -> int | float:
    if dtype_of(x).is_float:
        return -np.inf if largest else np.inf
    info = np.iinfo(dtype_of(x).np)
    return info.min if largest else info.max


@lower("ReduceMax")
def _reduce_max(c: NodeCall) -> Tensor:
    x, axes = _reducer(c)
    return x if axes is None else _dims_kept(c, extreme(x, True, axes), axes)


@lower("ReduceMin")
def _reduce_min(c: NodeCall) -> Tensor:
    x, axes = _reducer(c)
    return x if axes is None else _dims_kept(c, extreme(x, False, axes), axes)


@lower("ReduceL1")
def _reduce_l1(c: NodeCall) -> Tensor:
    x, axes = _reducer(c)
    y = e.elem(M.ABS, x)
    return y if axes is None else _dims_kept(c, _sum(y, axes), axes)


@lower("ReduceL2")
def _reduce_l2(c: NodeCall) -> Tensor:
    x, axes = _reducer(c)
    wide = _in_float(x)
    if axes is None:
        return _from_float(e.elem(M.ABS, wide), x)
    result = e.elem(M.SQRT, summed(e.elem(M.SQUARE, wide), axes))
    return _dims_kept(c, _from_float(result, x), axes)


@lower("ReduceSumSquare")
def _reduce_sum_square(c: NodeCall) -> Tensor:
    x, axes = _reducer(c)
    wide = e.whole(x) if dtype_of(x).name in ("Uint8", "Int8", "Int16") else x
    y = e.elem(M.MUL, wide, wide)
    return y if axes is None else _dims_kept(c, summed(y, axes), axes)


@lower("ReduceLogSum")
def _reduce_log_sum(c: NodeCall) -> Tensor:
    x, axes = _reducer(c)
    wide = _in_float(x)
    if axes is None:
        return e.elem(M.LOG, wide)
    return _dims_kept(c, cast(e.elem(M.LOG, summed(wide, axes)), dtype_of(x)), axes)


@lower("ReduceLogSumExp")
def _reduce_log_sum_exp(c: NodeCall) -> Tensor:
    x, axes = _reducer(c)
    wide = _in_float(x)
    if axes is None:
        return x
    if any(static_shape(x)[a] == 0 for a in axes):
        return _dims_kept(c, cast(extreme(wide, True, axes), dtype_of(x)), axes)
    top = kept(e.reduce(wide, _R.MAX, axes), axes, True)
    total = e.elem(M.LOG, summed(e.elem(M.EXP, e.elem(M.SUB, wide, top)), axes, True))
    result = e.elem(M.ADD, total, top)
    y = result if c.flag("keepdims", 1) else e.drop_axes(result, axes)
    return _from_float(y, x)


# Softmax


@lower("Softmax", "LogSoftmax", "Hardmax")
def _softmax(c: NodeCall) -> Tensor:
    run = {"Softmax": softmax, "LogSoftmax": log_softmax, "Hardmax": hardmax}[c.op]
    x = c.t(0)
    if c.opset >= 13:
        axis = c.axis("axis", -1, x.ndim)
        return of_length(x, axis) if x.ndim and static_shape(x)[axis] == 0 else run(x, axis)
    rows = flat_to_2d(x, c.axis("axis", 1, x.ndim))
    return e.reshape(run(rows, 1), x.shape)


def hardmax(x: Tensor, axis: int) -> Tensor:
    """Return 1 at the first of the largest values, else 0."""
    at = _position(x, axis, True, False)
    places = e.reshape(e.arange(x.shape[axis]), [-1 if i == axis else 1 for i in range(x.ndim)])
    return cast(e.compare(P.ElemwiseMultiTypeMode.EQ, at, places), dtype_of(x))


def _position(x: Tensor, axis: int, largest: bool, last: bool) -> Tensor:
    """Return where the largest or smallest elements stand, the axis kept; the last of equal ones if asked."""
    if e.is_bool(x):
        x = cast(x, "uint8")
    if last:
        x = e.subtensor(x, [(axis, None, None, -1, None)])
    at = apply1("Argmax" if largest else "Argmin", P.Axis(axis=axis), inputs=[x], scalar=False)
    return e.elem(M.SUB, e.like(x.shape[axis] - 1, at), at) if last else at


@lower("ArgMax", "ArgMin")
def _argmax(c: NodeCall) -> Value:
    x = c.t(0)
    axis = c.axis("axis", 0, x.ndim)
    if not x.ndim:
        return Value(INT64, const_like(0, e.whole(x)))
    at = _position(x, axis, c.op == "ArgMax", c.flag("select_last_index"))
    return Value(INT64, at if c.flag("keepdims", 1) else e.drop_axes(at, [axis]))


# Running sums


@lower("CumSum", "CumProd")
def _cumulated(c: NodeCall) -> Tensor:
    x = c.t(0)
    axis = front(int(c.constant(1, "axis").reshape(-1)[0]), x.ndim)
    exclusive, reverse = c.flag("exclusive"), c.flag("reverse")
    if c.op == "CumSum":
        param = P.Cumsum(axis=axis, exclusive=exclusive, reverse=reverse)
        return apply1("CumsumV1", param, inputs=[x], scalar=False)
    flip = [(axis, None, None, -1, None)]
    if reverse:
        x = e.subtensor(x, flip)
    if exclusive:
        one = e.full(const_like(1, x), [1 if i == axis else n for i, n in enumerate(x.shape)])
        x = e.subtensor(e.concat([one, x], axis), [(axis, None, -1, None, None)])
    x = of_length(x, axis)
    y = scanned(x, axis, lambda p, q: e.elem(M.MUL, p, q))
    return e.subtensor(y, flip) if reverse else y
