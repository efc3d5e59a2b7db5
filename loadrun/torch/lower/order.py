"""Sorting, ranking, searching, counting."""

from typing import Any

import numpy as np

from ...layers import emit as e
from ..call import FxCall, axis_of
from ..registry import UnsupportedCallError, aten
from ..sizes import as_size
from ..values import as_array, as_tensor


def _sorting_places(x: Any, axis: int, descending: bool) -> Any:
    """Return the indices that sort stably."""
    x = as_array(x, "int32") if x.dtype in (np.bool_, np.int8, np.uint8, np.int16) else x
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    # From behind, so that equal elements keep their order.
    order = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    return x.shape[axis] - 1 - order


def _sorted(call: FxCall, x: Any, dim: int, descending: bool) -> tuple[Any, Any]:
    x = as_array(x)
    if not call.shape_of(0):
        return x, np.zeros_like(as_array(x, "int32"))
    axis = axis_of(dim, len(call.shape_of(0)))
    order = as_array(_sorting_places(x, axis, descending), "int32")
    return np.take_along_axis(x, order, axis=axis), order


@aten("aten.sort.default", "aten.sort.stable")
def sort(call: FxCall, x: Any, dim: Any = -1, descending: bool = False, **options: Any) -> Any:
    """Sort; return the indices that sort too."""
    if "dim" in options or "stable" in str(call.node.target):
        # The stable form has a flag before the axis.
        rest = call.node.args[1:]
        dim = options.get("dim", rest[1] if len(rest) > 1 else -1)
        descending = options.get("descending", rest[2] if len(rest) > 2 else False)
    if call.node.kwargs.get("stable") is not None and "stable" in str(call.node.target):
        rest = call.node.args[1:]
        dim = call.node.kwargs.get("dim", rest[0] if rest else -1)
        descending = call.node.kwargs.get("descending", rest[1] if len(rest) > 1 else False)
    return _sorted(call, x, dim, descending)


@aten("aten.topk.default")
def topk(call: FxCall, x: Any, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Return the largest or smallest values and their indices."""
    values, places = _sorted(call, x, dim, largest)
    if not call.shape_of(0):
        return values, places
    axis = axis_of(dim, len(call.shape_of(0)))
    cut = (slice(None),) * axis + (slice(0, k),)
    return values[cut], places[cut]


aten("aten.kthvalue.default")(lambda call, x, k, dim=-1, keepdim=False: _picked(call, x, dim, keepdim, k - 1))


def _picked(call: FxCall, x: Any, dim: int, keepdim: bool, place: Any) -> Any:
    values, places = _sorted(call, x, dim, False)
    if not call.shape_of(0):
        return values, places
    axis = axis_of(dim, len(call.shape_of(0)))
    cut = (slice(None),) * axis + (slice(place, place + 1),)
    result = values[cut], places[cut]
    return result if keepdim else tuple(np.squeeze(v, axis=axis) for v in result)


@aten("aten.median.default", "aten.nanmedian.default")
def median(call: FxCall, x: Any) -> Any:
    """Return the lower median of all, or of all but NaN."""
    flat = as_array(x).reshape((-1,))
    count = flat.shape[0]
    ranked = np.take_along_axis(flat, as_array(_sorting_places(flat, 0, False), "int32"), axis=0)
    if np.dtype(flat.dtype).kind != "f" or "nan" not in str(call.node.target):
        return ranked[(count - 1) // 2]
    kept = np.sum(as_array(~np.isnan(flat), "int32"))
    return np.take(ranked, np.maximum((kept - 1) // 2, 0))


@aten("aten.median.dim")
def median_dim(call: FxCall, x: Any, dim: int, keepdim: bool = False) -> Any:
    """Return the lower medians and their indices."""
    if not call.shape_of(0):
        return _sorted(call, x, 0, False)
    axis = axis_of(dim, len(call.shape_of(0)))
    values, places = _picked(call, x, dim, True, (as_array(x).shape[axis] - 1) // 2)
    result = as_array(values, call.dtype), as_array(places, "int32")
    return result if keepdim else tuple(np.squeeze(v, axis=axis) for v in result)


@aten("aten.bucketize.Tensor", "aten.searchsorted.Tensor")
def searchsorted(
    call: FxCall, first: Any, second: Any, *, right: bool = False, side: Any = None, **options: Any
) -> Any:
    """Find where values belong among sorted ones."""
    buckets = "bucketize" in str(call.node.target)
    x, borders = (first, second) if buckets else (second, first)
    at, edge = (0, 1) if buckets else (1, 0)
    dtype = call.common(0, 1)
    if options.get("sorter") is not None:
        raise UnsupportedCallError("a sorter; sort the boundaries first")
    x, borders = as_array(x, dtype), as_array(borders, dtype)
    after = right or side == "right"
    if len(call.shape_of(edge)) == 1:
        values = x[..., None]
        spread = borders
    else:
        values, spread = x[..., :, None], borders[..., None, :]
    del at
    counted = values >= spread if after else values > spread
    return as_array(np.sum(as_array(counted, "int32"), axis=-1), call.dtype)


@aten("aten.bucketize.Scalar", "aten.searchsorted.Scalar")
def searchsorted_scalar(
    call: FxCall, first: Any, second: Any, *, right: bool = False, side: Any = None, **_: Any
) -> Any:
    """Find where a number belongs among sorted ones."""
    value, borders = (first, second) if "bucketize" in str(call.node.target) else (second, first)
    edges = as_array(borders)
    counted = edges <= value if right or side == "right" else edges < value
    return as_array(np.sum(as_array(counted, "int32")), call.dtype)


@aten("aten.nanmedian.dim")
def nanmedian_dim(call: FxCall, x: Any, dim: int, keepdim: bool = False) -> Any:
    """Return the lower medians without NaN, and their indices."""
    if np.dtype(as_array(x).dtype).kind != "f" or not call.shape_of(0):
        return median_dim(call, x, dim, keepdim)
    axis = axis_of(dim, len(call.shape_of(0)))
    values, order = _sorted(call, x, axis, False)
    kept = np.sum(as_array(~np.isnan(as_array(x)), "int32"), axis=axis, keepdims=True)
    place = np.maximum((kept - 1) // 2, 0)
    result = tuple(np.take_along_axis(v, place, axis=axis) for v in (values, order))
    return result if keepdim else tuple(np.squeeze(v, axis=axis) for v in result)


@aten("aten.mode.default")
def mode(call: FxCall, x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the most frequent values, the smallest among ties, and their last indices."""
    x = as_array(x)
    if not call.shape_of(0):
        return x, np.zeros_like(as_array(x, "int32"))
    axis = axis_of(dim, len(call.shape_of(0)))
    kind = x.dtype
    x = np.moveaxis(as_array(x, "int32") if kind == np.bool_ else x, axis, -1)
    count = np.sum(as_array(x[..., :, None] == x[..., None, :], "int32"), axis=-1)
    frequent = count == np.max(count, axis=-1, keepdims=True)
    highest = np.inf if np.dtype(x.dtype).kind == "f" else np.iinfo(x.dtype).max
    value = np.min(np.where(frequent, x, as_array(highest, x.dtype)), axis=-1, keepdims=True)
    number = as_array(e.arange(as_tensor(x).shape[-1]))
    place = np.max(np.where(x == value, number, np.int32(0)), axis=-1, keepdims=True)
    result = tuple(np.moveaxis(v, -1, axis) for v in (as_array(value, kind), as_array(place, "int32")))
    return result if keepdim else tuple(np.squeeze(v, axis=axis) for v in result)


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
