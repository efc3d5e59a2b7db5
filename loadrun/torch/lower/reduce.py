"""Reductions and cumulative operators, sorting, ranking, searching, counting."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...layers import emit as e
from ..call import FxCall, as_array, as_tensor, axes_of, axis_of
from ..registry import UnsupportedCallError, aten
from ..sizes import as_size


def _reduced(call: FxCall, function: Callable[..., Any], x: Any, axes: tuple[int, ...], keepdim: bool) -> Any:
    """Reduce over axes; treat a value without axes as a vector of one."""
    if not call.shape_of(0):
        return function(x.reshape((1,)), axis=0)
    return function(x, axis=axes, keepdims=keepdim) if axes else x


def _max(x: Any, **options: Any) -> Any:
    return np.any(x, **options) if x.dtype == np.bool_ else np.max(x, **options)


def _min(x: Any, **options: Any) -> Any:
    return np.all(x, **options) if x.dtype == np.bool_ else np.min(x, **options)


_KINDS: dict[str, tuple[Callable[..., Any], str]] = {
    "sum": (np.sum, "default dim_IntList"),
    "mean": (np.mean, "default dim"),
    "prod": (np.prod, "default dim_int"),
    "amax": (_max, "default"),
    "amin": (_min, "default"),
    "max": (_max, "default"),
    "min": (_min, "default"),
    "any": (np.any, "default dim dims"),
    "all": (np.all, "default dim dims"),
}
"""What reductions compute, and their overloads."""


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    truth = function in (np.any, np.all)

    def lowered(call: FxCall, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        axes = axes_of(dim, len(call.shape_of(0)))
        result = _reduced(call, function, as_array(x, "bool" if truth else call.dtype), axes, keepdim)
        return as_array(result, call.dtype) if truth else result

    return lowered


for _name, (_function, _overloads) in _KINDS.items():
    aten(*(f"aten.{_name}.{o}" for o in _overloads.split()))(_reduction(_function))
aten("aten.max.dim")(lambda call, x, dim, keepdim=False: _extreme(call, _max, np.argmax, x, dim, keepdim))
aten("aten.min.dim")(lambda call, x, dim, keepdim=False: _extreme(call, _min, np.argmin, x, dim, keepdim))


def along(
    call: FxCall, x: Any, dim: int, keepdim: bool, choose: Callable[[Any, int], tuple[Any, Any]]
) -> tuple[Any, ...]:
    """Return values along an axis and their places by a function that keeps the axis.

    A value without axes stands at the place 0.
    """
    x = as_array(x)
    if not call.shape_of(0):
        return x, np.zeros_like(as_array(x, "int32"))
    axis = axis_of(dim, len(call.shape_of(0)))
    values, places = choose(x, axis)
    result = values, as_array(places, "int32")
    return result if keepdim else tuple(np.squeeze(v, axis=axis) for v in result)


def _extreme(
    call: FxCall, value: Callable[..., Any], place: Callable[..., Any], x: Any, dim: int, keepdim: bool
) -> Any:
    def choose(x: Any, axis: int) -> tuple[Any, Any]:
        number = as_array(x, "int32") if x.dtype == np.bool_ else x
        return value(x, axis=axis, keepdims=True), place(number, axis=axis, keepdims=True)

    return along(call, x, dim, keepdim, choose)


aten("aten.argmax.default")(lambda call, x, dim=None, keepdim=False: _place(call, np.argmax, x, dim, keepdim))
aten("aten.argmin.default")(lambda call, x, dim=None, keepdim=False: _place(call, np.argmin, x, dim, keepdim))


def _place(call: FxCall, function: Callable[..., Any], x: Any, dim: Any, keepdim: bool) -> Any:
    x = as_array(x)
    x = as_array(x, "int32") if x.dtype == np.bool_ else x
    ndim = len(call.shape_of(0))
    if not ndim:
        return np.zeros_like(as_array(x, "int32"))
    if dim is None:
        result = as_array(function(x.reshape((-1,)), axis=0), "int32")
        return result.reshape((1,) * ndim) if keepdim else result
    return as_array(function(x, axis=axis_of(dim, ndim), keepdims=keepdim), "int32")


def moments(call: FxCall, x: Any, dim: Any, correction: Any, keepdim: bool) -> tuple[Any, Any]:
    """Compute mean and variance, whose divisor is smaller by the correction but not below 0."""
    x = as_array(x, call.dtype)
    ndim = len(call.shape_of(0))
    axes = axes_of(dim, ndim)
    correction = 1 if correction is None else correction
    if not ndim:
        x, axes = x.reshape((1,)), (0,)
    middle = np.mean(x, axis=axes, keepdims=True)
    total = np.sum(np.square(x - middle), axis=axes, keepdims=keepdim and ndim > 0)
    count: Any = 1
    for axis in axes:
        count = count * x.shape[axis]
    divisor = as_array(count, call.dtype) - correction
    variance = total / np.maximum(divisor, 0)
    plain = np.mean(x, axis=axes, keepdims=keepdim and ndim > 0)
    return plain, variance


@aten("aten.var.correction", "aten.std.correction", "aten.var_mean.correction", "aten.std_mean.correction")
def variance(call: FxCall, x: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    """Compute variance or standard deviation, perhaps with the mean."""
    middle, result = moments(call, x, dim, correction, keepdim)
    name = str(call.node.target)
    result = np.sqrt(result) if ".std" in name else result
    return (result, middle) if "_mean" in name else result


@aten("prims.var.default")
def prim_variance(call: FxCall, x: Any, dims: Any, correction: Any = 1, *, output_dtype: Any = None) -> Any:
    """Compute the variance over axes and drop them."""
    return moments(call, x, dims, correction, False)[1]


@aten(
    "aten.linalg_vector_norm.default",
    "aten.norm.ScalarOpt_dim",
    "aten.norm.Scalar",
    "aten.norm.ScalarOpt_dim_dtype",
)
def vector_norm(
    call: FxCall, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    """Compute the norm of vectors."""
    axes = axes_of(dim, len(call.shape_of(0)))
    size = np.absolute(as_array(x, call.dtype))
    return norm(size, 2 if ord is None else ord, lambda f, v: _reduced(call, f, v, axes, keepdim))


def norm(size: Any, order: Any, reduce: Callable[[Callable[..., Any], Any], Any]) -> Any:
    """Compute norms of absolute values; `reduce` applies a function of numpy along the axes of the vectors."""
    if order in (float("inf"), float("-inf")):
        return reduce(np.max if order > 0 else np.min, size)
    if order == 0:
        return reduce(np.sum, (size != 0).astype(size.dtype))
    if order == 1:
        return reduce(np.sum, size)
    if order == 2:
        return np.sqrt(reduce(np.sum, size * size))
    total = reduce(np.sum, np.power(size, as_array(order, size.dtype)))
    return np.power(total, as_array(1 / order, size.dtype))


@aten("aten.cumsum.default")
def cumsum(call: FxCall, x: Any, dim: int, dtype: Any = None) -> Any:
    """Compute the running sum."""
    x = as_array(x, call.dtype)
    return np.cumsum(x, axis=axis_of(dim, len(call.shape_of(0)))) if call.shape_of(0) else x


@aten("aten.cumprod.default")
def cumprod(call: FxCall, x: Any, dim: int, dtype: Any = None) -> Any:
    """Compute the running product."""
    x = as_array(x, call.dtype)
    return _running(call, np.multiply, x, axis_of(dim, len(call.shape_of(0))), 1) if call.shape_of(0) else x


def _running(call: FxCall, function: Any, x: Any, axis: int, neutral: Any) -> Any:
    """Return the running result of a function of two numbers; of an axis of any length by pairing all elements."""
    if isinstance(call.shape_of(0)[axis], int):
        return function.accumulate(x, axis=axis)
    before, spread = _before(x, axis)
    return np.moveaxis(
        function.reduce(np.where(before, spread, as_array(neutral, x.dtype)), axis=-1), -1, axis
    )


def _before(x: Any, axis: int) -> tuple[Any, Any]:
    """Pair the elements of an axis of any length: which is not after which, (n, n), and the elements, (..., 1, n)."""
    x = np.moveaxis(x, axis, -1)
    number = as_array(e.arange(as_tensor(x).shape[-1]), "int32")
    return number[None, :] <= number[:, None], x[..., None, :]


@aten("aten.logcumsumexp.default")
def logcumsumexp(call: FxCall, x: Any, dim: int) -> Any:
    """Compute the logarithm of the running sum of exponentials."""
    x = as_array(x, call.dtype)
    if not call.shape_of(0):
        return x
    axis = axis_of(dim, len(call.shape_of(0)))
    # Every position has a maximum of its own: beside that of the whole axis, early terms would vanish.
    before, spread = _before(x, axis)
    top = np.max(np.where(before, spread, as_array(-np.inf, x.dtype)), axis=-1)
    parts = np.where(before, np.exp(spread - top[..., None]), as_array(0, x.dtype))
    return np.moveaxis(np.log(np.sum(parts, axis=-1)) + top, -1, axis)


@aten("aten.cummax.default", "aten.cummin.default")
def cumulative_extreme(call: FxCall, x: Any, dim: int) -> Any:
    """Compute running extreme values and their last indices."""
    x, ndim = as_array(x), len(call.shape_of(0))
    if not ndim:
        return x, np.zeros_like(as_array(x, "int32"))
    axis, floating = axis_of(dim, ndim), np.dtype(x.dtype).kind == "f"
    x = x if floating else as_array(x, "int64" if np.dtype(x.dtype).itemsize == 8 else "int32")
    limits: Any = (-np.inf, np.inf) if floating else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    largest = "cummax" in str(call.node.target)
    values = _running(call, np.maximum if largest else np.minimum, x, axis, limits[not largest])
    number = as_array(e.arange(as_tensor(x).shape[axis]), "int32").reshape((-1, *[1] * (ndim - axis - 1)))
    places = _running(call, np.maximum, np.where(x == values, number, np.int32(0)), axis, 0)
    return as_tensor(values, call.dtype), as_tensor(places, "int32")


@aten("aten.multilabel_margin_loss.default")
def multilabel_margin_loss(call: FxCall, x: Any, target: Any, reduction: int = 1) -> Any:
    """Compute by how much other classes come near those that `target` lists before its first -1."""
    # One number is a class alone.
    x, target = (np.atleast_1d(v) for v in (as_array(x, call.dtype), as_array(target, "int32")))
    listed = np.cumprod(as_array(target >= 0, "int32"), axis=-1)
    classes = as_array(e.arange(as_tensor(x).shape[-1]), "int32")
    among = np.sum(listed[..., :, None] * as_array(target[..., :, None] == classes, "int32"), axis=-2) > 0
    target_values = np.take_along_axis(x, np.maximum(target, np.zeros_like(target)), axis=-1)
    near = np.maximum(
        1 - target_values[..., :, None] + x[..., None, :], np.zeros_like(target_values)[..., :, None]
    )
    counted = as_array(listed, x.dtype)[..., :, None] * as_array(~among, x.dtype)[..., None, :]
    losses = np.mean(np.sum(near * counted, axis=-2), axis=-1)
    if not reduction or not losses.ndim:
        return losses
    return np.mean(losses) if reduction == 1 else np.sum(losses)


@aten("aten.cosine_similarity.default")
def cosine_similarity(call: FxCall, x: Any, y: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """Compute the cosine of the angle between vectors, each of a length of at least `eps`."""
    half = call.fake.dtype is torch.float16
    units = []
    for v in np.broadcast_arrays(as_array(x, call.dtype), as_array(y, call.dtype)):
        length = np.maximum(np.sqrt(np.sum(v * v, axis=dim, keepdims=True)), as_array(eps, v.dtype))
        # As in torch, where `eps` may be 0 in float16.
        units.append(v / (as_array(as_array(length, "float16"), v.dtype) if half else length))
    return np.sum(units[0] * units[1], axis=dim)


def _sorting_places(x: Any, axis: int, descending: bool) -> Any:
    """Return the indices that sort stably."""
    x = as_array(x, "int32") if x.dtype in (np.bool_, np.int8, np.uint8, np.int16) else x
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    # From behind, so that equal elements keep their order.
    order = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    return x.shape[axis] - 1 - order


def _ranked(x: Any, axis: int, descending: bool = False) -> tuple[Any, Any]:
    """Sort; return the indices that sort too."""
    order = as_array(_sorting_places(x, axis, descending), "int32")
    return np.take_along_axis(x, order, axis=axis), order


def _part(pair: tuple[Any, Any], axis: int, start: Any, stop: Any) -> tuple[Any, Any]:
    cut = (slice(None),) * axis + (slice(start, stop),)
    return pair[0][cut], pair[1][cut]


@aten("aten.sort.default", "aten.sort.stable")
def sort(call: FxCall, x: Any, dim: int = -1, descending: bool = False, stable: Any = None) -> Any:
    """Sort; return the indices that sort too."""
    return along(call, x, dim, True, lambda x, axis: _ranked(x, axis, descending))


@aten("aten.topk.default")
def topk(call: FxCall, x: Any, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Return the largest or smallest values and their indices."""
    return along(call, x, dim, True, lambda x, axis: _part(_ranked(x, axis, largest), axis, 0, k))


@aten("aten.kthvalue.default")
def kth_value(call: FxCall, x: Any, k: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the k-th smallest values and their indices."""
    return along(call, x, dim, keepdim, lambda x, axis: _part(_ranked(x, axis), axis, k - 1, k))


def _median(call: FxCall, x: Any, axis: int) -> tuple[Any, Any]:
    """Return the lower medians of all, or of all but NaN, and their indices."""
    ranked = _ranked(x, axis)
    if np.dtype(x.dtype).kind != "f" or "nan" not in str(call.node.target):
        middle = (x.shape[axis] - 1) // 2
        return _part(ranked, axis, middle, middle + 1)
    kept = np.sum(as_array(~np.isnan(x), "int32"), axis=axis, keepdims=True)
    values, places = (np.take_along_axis(v, np.maximum((kept - 1) // 2, 0), axis=axis) for v in ranked)
    return values, places


@aten("aten.median.default", "aten.nanmedian.default")
def median(call: FxCall, x: Any) -> Any:
    """Return the lower median of all, or of all but NaN."""
    return _median(call, as_array(x).reshape((-1,)), 0)[0][0]


@aten("aten.median.dim", "aten.nanmedian.dim")
def median_dim(call: FxCall, x: Any, dim: int, keepdim: bool = False) -> Any:
    """Return the lower medians and their indices."""
    return along(call, x, dim, keepdim, lambda x, axis: _median(call, x, axis))


@aten(
    "aten.bucketize.Tensor", "aten.bucketize.Scalar", "aten.searchsorted.Tensor", "aten.searchsorted.Scalar"
)
def searchsorted(
    call: FxCall, first: Any, second: Any, *, right: bool = False, side: Any = None, **options: Any
) -> Any:
    """Find where values belong among sorted ones."""
    if options.get("sorter") is not None:
        raise UnsupportedCallError("a sorter; sort the boundaries first")
    x, borders = (as_array(v, call.common(0, 1)) for v in (first, second))
    edge = 1 if "bucketize" in str(call.node.target) else 0
    x, borders = (x, borders) if edge else (borders, x)
    if len(call.shape_of(edge)) == 1:
        x = x[..., None]
    else:
        x, borders = x[..., :, None], borders[..., None, :]
    counted = x >= borders if right or side == "right" else x > borders
    return as_array(np.sum(as_array(counted, "int32"), axis=-1), call.dtype)


@aten("aten.mode.default")
def mode(call: FxCall, x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the most frequent values, the smallest among ties, and their last indices."""
    return along(call, x, dim, keepdim, _most_frequent)


def _most_frequent(x: Any, axis: int) -> tuple[Any, Any]:
    kind = x.dtype
    x = np.moveaxis(as_array(x, "int32") if kind == np.bool_ else x, axis, -1)
    count = np.sum(as_array(x[..., :, None] == x[..., None, :], "int32"), axis=-1)
    frequent = count == np.max(count, axis=-1, keepdims=True)
    highest = np.inf if np.dtype(x.dtype).kind == "f" else np.iinfo(x.dtype).max
    value = np.min(np.where(frequent, x, as_array(highest, x.dtype)), axis=-1, keepdims=True)
    number = as_array(e.arange(as_tensor(x).shape[-1]))
    place = np.max(np.where(x == value, number, np.int32(0)), axis=-1, keepdims=True)
    return np.moveaxis(as_array(value, kind), -1, axis), np.moveaxis(place, -1, axis)


@aten("aten.bincount.default")
def bincount(call: FxCall, x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Count occurrences of each number; the length follows the data."""
    flat = as_array(x, "int32")
    if call.shape_of(0) == (0,):
        return e.full(as_tensor(0, call.dtype), (minlength,))
    size = as_size(as_tensor(np.maximum(np.max(flat) + 1, as_array(minlength, "int32"))))
    hit = flat[:, None] == as_array(e.arange(size))
    if weights is not None:
        hit = np.where(hit, as_array(weights, call.dtype)[:, None], as_array(0, call.dtype))
    return np.sum(as_array(hit, call.dtype), axis=0)


@aten("aten._unique2.default")
def unique(
    call: FxCall, x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    """Return the sorted distinct values, the index of each element among them, and the counts."""
    flat = as_array(x).reshape((-1,))
    order = as_array(_sorting_places(flat, 0, False), "int32")
    values, group, counts = _groups(np.take_along_axis(flat, order, axis=0))
    back = as_array(np.argsort(order, axis=0), "int32")
    return values, np.take(group, back).reshape(as_tensor(x).shape), counts


@aten("aten.unique_consecutive.default")
def unique_consecutive(
    call: FxCall, x: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    """Return the values without consecutive repetitions."""
    if dim is not None and len(call.shape_of(0)) != 1:
        raise UnsupportedCallError("repetitions of slices; use a vector")
    values, group, counts = _groups(as_array(x).reshape((-1,)))
    return values, group.reshape(as_tensor(x).shape), counts


def _groups(x: Any) -> tuple[Any, Any, Any]:
    """Return the first of each run of equal elements in a vector, each element's run index, and run lengths."""
    values = as_array(x, "int32") if x.dtype == np.bool_ else x
    first = np.concatenate([np.ones_like(as_array(values[:1], "bool")), values[1:] != values[:-1]])
    starts = as_array(np.argwhere(first), "int32")[:, 0]
    ends = as_array(e.concat([as_tensor(starts[1:]), e.full(as_tensor(1), (1,)) * as_tensor(x).shape[0]], 0))
    return x[first], as_array(np.cumsum(as_array(first, "int32"), axis=0) - 1, "int32"), ends - starts


@aten("aten.histc.default")
def histc(call: FxCall, x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """Count the values in equal bins."""
    flat = as_array(x).reshape((-1,))
    if np.dtype(flat.dtype).kind != "f":
        flat = flat.astype("float32")
    low, high = as_array(min, flat.dtype), as_array(max, flat.dtype)
    if min == max:
        if not call.fakes[0].numel():
            raise UnsupportedCallError("bins of no values; pass min and max")
        low, high = np.min(flat), np.max(flat)
        # Bounds around a single value lie 1 below and above it, or at its neighbours where these are further away.
        half_ulp = np.absolute(low) * as_array(np.finfo(flat.dtype).eps * (0.5 + 2**-11), flat.dtype)
        step = np.where(low == high, np.maximum(half_ulp, as_array(1, flat.dtype)), as_array(0, flat.dtype))
        low, high = low - step, high + step
    place = np.floor((flat - low) * as_array(bins, flat.dtype) / (high - low))
    place = np.where((flat == high) & (low < high), np.full_like(place, bins - 1), place)
    inside = (flat >= low) & (flat <= high)
    hit = (place[:, None] == np.arange(bins, dtype=np.float32)) & inside[:, None]
    return as_array(np.sum(as_array(hit, "int32"), axis=0), call.dtype)
