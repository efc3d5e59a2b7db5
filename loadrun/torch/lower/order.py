"""Sorting, ranking, searching, counting."""

from typing import Any

import numpy as np

from ...layers import emit as e
from ..call import FxCall
from ..registry import UnsupportedCallError, aten
from ..sizes import as_size
from ..values import as_array, as_tensor
from .reduce import along


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
