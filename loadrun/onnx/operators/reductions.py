"""Reductions, softmax and relatives, positions of extremes, running sums."""

from collections.abc import Callable
from math import prod
from typing import Any

from ...arrays.names import kernel, np
from ...graph.composite import Flag, Known
from ...graph.dtypes import Array
from . import operator
from .activations import softmax
from .common import axes_of, axis_of
from .kernels import exactly

Reduce = Callable[[Array, tuple[int, ...], bool], Array]


def _same(x: Array) -> Array:
    return x


def _axes(x: Array, axes: Array | list[int] | None, noop: int) -> tuple[int, ...] | None:
    """Return the axes to reduce, counted from the front; None where nothing is reduced."""
    listed = axes or [] if axes is None or isinstance(axes, list) else np.reshape(axes, -1).tolist()
    if not listed:
        return None if noop else tuple(range(x.ndim))
    return tuple(sorted(set(axes_of(listed, x.ndim))))


def _reduced(
    x: Array, axes: Array | list[int] | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> tuple[int, ...]:
    places = _axes(x, axes, noop_with_empty_axes)
    if places is None:
        return x.shape
    return tuple(1 if i in places else n for i, n in enumerate(x.shape) if keepdims or i not in places)


def _reduction(
    name: str, *, since: int = 18, alone: Callable[[Array], Array] = _same
) -> Callable[[Reduce], Reduce]:
    """Register a reduction: its axes are an attribute in versions before `since`, an input from then on.

    Args:
        name: the operator.
        since: the version.
        alone: what it does to each element where there are no axes to reduce.
    """

    def register(reduce: Reduce) -> Reduce:
        def latest(
            x: Array, axes: Known | None = None, *, keepdims: Flag = 1, noop_with_empty_axes: Flag = 0
        ) -> Array:
            places = _axes(x, axes, noop_with_empty_axes)
            return alone(x) if places is None else reduce(x, places, bool(keepdims))

        def before(x: Array, *, axes: list[int] | None = None, keepdims: Flag = 1) -> Array:
            return reduce(x, _axes(x, axes, 0) or (), bool(keepdims))

        operator(name, since=since, shape=_reduced)(latest)
        operator(name, shape=lambda x, *, axes=None, keepdims=1: _reduced(x, axes, keepdims=keepdims))(before)
        return reduce

    return register


def _real(x: Array) -> Array:
    """Return whole numbers in float64."""
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def _like(y: Array, x: Array) -> Array:
    """Return results of `_real` in the input's type, those beyond its ends at them."""
    if x.dtype.kind == "f":
        return y
    ends = np.iinfo(x.dtype)
    return exactly(np.clip(y, ends.min, ends.max), x.dtype)


def _sum(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    return x.sum(axes, dtype=x.dtype, keepdims=keepdims)


_reduction("ReduceSum", since=13)(lambda x, axes, keepdims: _sum(x, axes, keepdims))


@_reduction("ReduceMean")
def reduce_mean(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Take the mean, 0 of nothing; of integers toward zero."""
    count = prod(x.shape[a] for a in axes)
    if not count:
        return _sum(x, axes, keepdims)
    if x.dtype.kind == "f":
        return x.mean(axes, keepdims=keepdims)
    total = _sum(x.astype(np.uint64 if x.dtype == np.uint64 else np.int64), axes, keepdims)
    return np.asarray((total - np.fmod(total, count)) // count).astype(x.dtype)


_reduction("ReduceProd")(lambda x, axes, keepdims: x.prod(axes, dtype=x.dtype, keepdims=keepdims))


def _least(x: Array, sign: int) -> Any:  # noqa: ANN401
    """Return what the maximum (sign 1) or minimum (-1) of nothing is."""
    if x.dtype.kind == "f":
        return -sign * np.inf
    if x.dtype.kind == "b":
        return sign < 0
    return np.iinfo(x.dtype).min if sign > 0 else np.iinfo(x.dtype).max


@_reduction("ReduceMax")
def reduce_max(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Take the maximum."""
    return x.max(axes, keepdims=keepdims, **({} if x.size else {"initial": _least(x, 1)}))


@_reduction("ReduceMin")
def reduce_min(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Take the minimum."""
    return x.min(axes, keepdims=keepdims, **({} if x.size else {"initial": _least(x, -1)}))


_reduction("ReduceL1", alone=np.abs)(lambda x, axes, keepdims: _sum(np.abs(x), axes, keepdims))


@_reduction("ReduceL2", alone=np.abs)
def reduce_l2(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Take the root of the sum of squares."""
    wide = _real(x)
    return _like(np.sqrt(_sum(wide * wide, axes, keepdims)), x)


_reduction("ReduceSumSquare", alone=lambda x: x * x)(lambda x, axes, keepdims: _sum(x * x, axes, keepdims))


@_reduction("ReduceLogSum", alone=lambda x: _like(np.log(_real(x)), x))
def reduce_log_sum(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Take the logarithm of the sum."""
    return _like(np.log(_sum(_real(x), axes, keepdims)), x)


@_reduction("ReduceLogSumExp")
def reduce_log_sum_exp(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Take the logarithm of the sum of powers of e, which may be beyond all numbers."""
    wide = _real(x)
    top = reduce_max(wide, axes, True)
    top = np.where(np.isinf(top), wide.dtype.type(0), top)
    y = np.log(np.exp(wide - top).sum(axes, keepdims=True)) + top
    return _like(y if keepdims else np.squeeze(y, axes), x)


# Softmax


def _shape(x: Array, *_: Any, **__: Any) -> tuple[int, ...]:
    return x.shape


@kernel
def log_softmax(x: Array, axis: int) -> Array:
    """Compute the logarithm of softmax, exact where the values are large."""
    if not x.size:
        return x
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def hardmax(x: Array, axis: int) -> Array:
    """Return 1 at the first of the largest values, else 0."""
    if not x.size:
        return x
    places = np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return (np.argmax(x, axis, keepdims=True) == places).astype(x.dtype)


def _along(function: Callable[[Array, int], Array]) -> Callable[..., Array]:
    def run(x: Array, *, axis: int = -1) -> Array:
        at = axis_of(axis, x.ndim)
        return function(x, at) if x.ndim else function(x.reshape(1), 0).reshape(())

    return run


def _flat(function: Callable[[Array, int], Array]) -> Callable[..., Array]:
    """Take all axes from the given one on for one, as versions before 13 do."""

    def run(x: Array, *, axis: int = 1) -> Array:
        at = axis_of(axis, x.ndim)
        return function(x.reshape(prod(x.shape[:at]), prod(x.shape[at:])), 1).reshape(x.shape)

    return run


for _name, _rows in (("Softmax", softmax), ("LogSoftmax", log_softmax), ("Hardmax", hardmax)):
    operator(_name, since=13, shape=_shape)(_along(_rows))
    operator(_name, shape=_shape)(_flat(_rows))


# Positions


def _position(find: Callable[..., Array], x: Array, axis: int, keepdims: int, last: int = 0) -> Array:
    """Return where the first or last extreme stands, as int64."""
    if not x.ndim:
        return np.zeros((), np.int64)
    at = axis_of(axis, x.ndim)
    place = find(np.flip(x, at) if last else x, at, keepdims=bool(keepdims))
    return np.asarray(x.shape[at] - 1 - place if last else place, np.int64)


def _place(x: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> tuple[int, ...]:
    return _reduced(x, [axis], keepdims=keepdims) if x.ndim else ()


@operator("ArgMax", out=("Int64",), shape=_place)
def arg_max(x: Array, *, axis: int = 0, keepdims: Flag = 1, select_last_index: Flag = 0) -> Array:
    """Return the place of the first or last maximum."""
    return _position(np.argmax, x, axis, keepdims, select_last_index)


@operator("ArgMin", out=("Int64",), shape=_place)
def arg_min(x: Array, *, axis: int = 0, keepdims: Flag = 1, select_last_index: Flag = 0) -> Array:
    """Return the place of the first or last minimum."""
    return _position(np.argmin, x, axis, keepdims, select_last_index)


# Running sums


def _accumulated(
    run: Callable[..., Array], x: Array, axis: Array, first: int, exclusive: int, reverse: int
) -> Array:
    """Accumulate along an axis, from its end if `reverse`; without the element itself if `exclusive`."""
    at = axis_of(int(axis.reshape(-1)[0]), x.ndim)
    x = np.flip(x, at) if reverse else x
    if exclusive:
        start = np.full([1 if i == at else n for i, n in enumerate(x.shape)], first, x.dtype)
        x = np.concatenate([start, x], at)[(slice(None),) * at + (slice(x.shape[at]),)]
    y = run(x, at, dtype=x.dtype)
    return np.flip(y, at) if reverse else y


@operator("CumSum", since=11, shape=_shape)
def cum_sum(x: Array, axis: Known, *, exclusive: Flag = 0, reverse: Flag = 0) -> Array:
    """Add up along an axis; integers wrap."""
    return _accumulated(np.cumsum, x, axis, 0, exclusive, reverse)


@operator("CumProd", since=26, shape=_shape)
def cum_prod(x: Array, axis: Known, *, exclusive: Flag = 0, reverse: Flag = 0) -> Array:
    """Multiply along an axis; integers wrap."""
    return _accumulated(np.cumprod, x, axis, 1, exclusive, reverse)
