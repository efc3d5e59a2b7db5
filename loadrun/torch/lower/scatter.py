"""Writing elements by index."""

import math
from typing import Any

import numpy as np

from ...layers import emit as e
from ...tensors.access import snapshot
from ..call import FxCall, axis_of
from ..registry import UnsupportedCallError, aten
from ..sizes import as_size
from ..values import as_array, as_tensor
from .index import places, subscript
from .shape import bounds


def _copied(x: Any, dtype: Any) -> Any:
    """Copy to an array of its own, so that writing does not change the original."""
    return as_array(snapshot(as_tensor(x, dtype)))


@aten("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(call: FxCall, x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """Replace elements, or add to them, at indices and masks."""
    result = _copied(x, call.dtype)
    where = subscript(indices, call.fakes[1], call.shape_of(0))
    if accumulate and any(i.dtype == np.bool_ for i in where if not isinstance(i, slice)):
        # A mask selects an element once.
        added = _copied(e.full(as_tensor(0, call.dtype), as_tensor(x).shape), call.dtype)
        added[where] = as_array(values, call.dtype)
        return result + added
    if accumulate:
        np.add.at(result, where, as_array(values, call.dtype))
    else:
        result[where] = as_array(values, call.dtype)
    return result


@aten("aten.slice_scatter.default")
def slice_scatter(
    call: FxCall, x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    """Replace a slice."""
    return _replaced(call, x, source, dim, bounds(start, end, step))


@aten("aten.select_scatter.default")
def select_scatter(call: FxCall, x: Any, source: Any, dim: int, index: Any) -> Any:
    """Replace one slice of an axis."""
    return _replaced(call, x, source, dim, as_size(index))


def _replaced(call: FxCall, x: Any, source: Any, dim: int, where: Any) -> Any:
    result = _copied(x, call.dtype)
    axis = axis_of(dim, len(call.shape_of(0)))
    result[(slice(None),) * axis + (where,)] = as_array(source, call.dtype)
    return result


@aten("aten.diagonal_scatter.default")
def diagonal_scatter(call: FxCall, x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Replace a diagonal."""
    ndim = len(call.shape_of(0))
    if call.shape_of(1)[-1] == 0:
        return as_tensor(x, call.dtype)
    ends = (axis_of(dim1, ndim), axis_of(dim2, ndim)), (ndim - 2, ndim - 1)
    result, source = np.moveaxis(as_array(x, call.dtype), *ends), as_array(source, call.dtype)
    height, width = as_tensor(result).shape[-2:]
    row, column = as_array(e.arange(height)), as_array(e.arange(width))
    last = as_array(as_tensor(source).shape[-1], "int32") - 1
    place = np.minimum(np.maximum(row + min(offset, 0), 0), last)
    spread = np.take(source, place, axis=-1)[..., None]
    return np.moveaxis(np.where(row[:, None] + offset == column, spread, result), *ends[::-1])


@aten(
    "aten.scatter.src",
    "aten.scatter.value",
    "aten.scatter_add.default",
    "aten.scatter.reduce",
    "aten.scatter.value_reduce",
)
def scatter(call: FxCall, x: Any, dim: int, index: Any, source: Any, *, reduce: Any = None) -> Any:
    """Replace elements, or add to them, at indices along an axis."""
    shape = call.shape_of(0)
    add = "scatter_add" in str(call.node.target) or reduce == "add"
    if reduce == "multiply":
        values = (
            e.broadcast(as_tensor(source, call.dtype), as_tensor(index).shape)
            if _is_number(source)
            else source
        )
        return _reduced_into(call, x, dim, index, values, "prod", True)
    if not shape:
        value = (
            as_array(source, call.dtype).reshape((-1,))[:1].reshape(())
            if not _is_number(source)
            else as_array(source, call.dtype)
        )
        return as_array(x) + value if add else value
    where = places(call, shape, axis_of(dim, len(shape)), index)
    result = _copied(x, call.dtype)
    values = as_array(source, call.dtype)
    if not _is_number(source):
        values = values[tuple(slice(0, n) for n in as_tensor(index).shape)]
    if any(isinstance(n, int) and n == 0 for n in call.shape_of(2)):
        return result
    if add:
        np.add.at(result, where, values)
    else:
        result[where] = values
    return result


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


_LARGEST = 1 << 26
"""The most elements in a comparison of all indices with all positions."""


@aten("aten.scatter_reduce.two")
def scatter_reduce(
    call: FxCall, x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """Combine elements with the same index, with the old value or without: add, multiply, average, compare."""
    return _reduced_into(call, x, dim, index, source, reduce, include_self)


@aten("aten.index_reduce.default")
def index_reduce(
    call: FxCall, x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """Reduce slices of an axis into positions given by an index."""
    if not call.shape_of(0):
        return _reduced_into(call, x, 0, as_array(index).reshape(()), source, reduce, include_self)
    axis = axis_of(dim, len(call.shape_of(0)))
    column = as_array(index, "int32").reshape([-1 if i == axis else 1 for i in range(len(call.shape_of(0)))])
    where = e.broadcast(as_tensor(column), as_tensor(source).shape)
    return _reduced_into(call, x, dim, where, source, reduce, include_self)


def _reduced_into(call: FxCall, x: Any, dim: int, index: Any, source: Any, kind: str, include: bool) -> Any:
    """Reduce elements with the same index along an axis; other positions stay."""
    scalar = not call.shape_of(0)
    dtype = np.dtype("int32") if call.dtype == np.bool_ else call.dtype
    x, index, values = _copied(x, dtype), as_array(index, "int32"), as_array(source, dtype)
    if scalar:
        x, index, values = (v.reshape((-1,)) for v in (x, index, values))
    axis = axis_of(dim, max(len(call.shape_of(0)), 1))
    if not scalar and len(as_tensor(index).shape) == 0:
        index, values = index.reshape((1,)), values.reshape((1,))
    sizes = as_tensor(index).shape
    values = values[tuple(slice(0, n) for n in sizes)]
    region = tuple(slice(None) if i == axis else slice(0, n) for i, n in enumerate(sizes))
    if any(isinstance(n, int) and n == 0 for n in map(_fixed, sizes)):
        result = x
    elif kind in ("sum", "mean"):
        result = _totals(call, x, axis, index, values, kind, include)
    else:
        part = x[region]
        x[region] = _extremes(part, axis, index, values, kind, include)
        result = x
    return as_array(result.reshape(()) if scalar else result, call.dtype)


def _fixed(n: Any) -> Any:
    return n if type(n) is int else None


def _totals(call: FxCall, x: Any, axis: int, index: Any, values: Any, kind: str, include: bool) -> Any:
    where = places(call, tuple(as_tensor(x).shape), axis, index)
    total, count = np.zeros_like(x), np.zeros_like(as_array(x, "int32"))
    np.add.at(total, where, values)
    np.add.at(count, where, np.ones_like(index))
    hit = count > 0
    kept = x if include else np.where(hit, np.zeros_like(x), x)
    total = kept + total
    if kind == "sum":
        return total
    count = as_array(count + 1 if include else np.maximum(count, 1), x.dtype)
    return total / count if np.dtype(x.dtype).kind == "f" else total // count


def _extremes(x: Any, axis: int, index: Any, values: Any, kind: str, include: bool) -> Any:
    """Compare every index with every position, because operators only write the last value or the sum."""
    rest = [_fixed(n) for n in (*as_tensor(index).shape, as_tensor(x).shape[axis])]
    if None not in rest and math.prod(rest) > _LARGEST:
        raise UnsupportedCallError(
            f"{kind} of so many elements: {math.prod(rest)} comparisons, at most {_LARGEST}; use sum or mean"
        )
    last = len(as_tensor(x).shape) - 1
    original, index, values = (np.moveaxis(v, axis, last) for v in (x, index, values))
    member = index[..., None] == as_array(e.arange(as_tensor(original).shape[-1]))
    floating = np.dtype(x.dtype).kind == "f"
    lowest, highest = (-np.inf, np.inf) if floating else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    function: Any
    both: Any
    function, both, neutral = {
        "prod": (np.prod, np.multiply, 1),
        "amax": (np.max, np.maximum, lowest),
        "amin": (np.min, np.minimum, highest),
    }[kind]
    spread = np.where(member, values[..., None], as_array(neutral, x.dtype))
    extremes = function(spread, axis=-2)
    result = both(extremes, original) if include else np.where(np.any(member, axis=-2), extremes, original)
    return np.moveaxis(result, last, axis)


@aten("aten.segment_reduce.default")
def segment_reduce(
    call: FxCall,
    x: Any,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Any:
    """Combine consecutive segments of the first axis: add, multiply, average, compare."""
    limits = lengths if offsets is None else offsets
    fake = call.named.get("lengths") if offsets is None else call.named.get("offsets")
    if limits is None or axis != 0 or fake is None or fake.ndim != 1:
        raise UnsupportedCallError("segments of another axis than the first; move the axis to the front")
    limits = as_array(limits, "int32")
    if offsets is None:
        ends = np.cumsum(limits, axis=0)
        starts, size = ends - limits, limits
    else:
        starts, ends = limits[:-1], limits[1:]
        size = ends - starts
    shape = as_tensor(x).shape
    rows = (
        as_array(x, call.dtype).reshape((shape[0], -1))
        if len(shape) > 1
        else as_array(x, call.dtype)[:, None]
    )
    number = as_array(e.arange(shape[0]))
    member = ((number >= starts[:, None]) & (number < ends[:, None]))[..., None]
    function: Any
    both: Any
    function, both, neutral = {
        "sum": (np.sum, np.add, 0),
        "mean": (np.sum, np.add, 0),
        "prod": (np.prod, np.multiply, 1),
        "max": (np.max, np.maximum, -np.inf),
        "min": (np.min, np.minimum, np.inf),
    }[reduce]
    reduced = function(np.where(member, rows[None], as_array(neutral, call.dtype)), axis=1)
    reduced = reduced if initial is None else both(reduced, as_array(initial, call.dtype))
    if reduce == "mean":
        empty = as_array(np.nan if initial is None else initial, call.dtype)
        none = (size == 0)[:, None]
        reduced = np.where(none, empty, reduced / as_array(np.maximum(size, 1), call.dtype)[:, None])
    return reduced.reshape((as_tensor(size).shape[0], *shape[1:]))


@aten("aten.put.default")
def put(call: FxCall, x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """Replace elements of the flattened tensor, or add to them."""
    shape = as_tensor(x).shape
    result = _copied(as_array(x).reshape((-1,)), call.dtype)
    where, values = as_array(index, "int32").reshape((-1,)), as_array(source, call.dtype).reshape((-1,))
    if accumulate:
        np.add.at(result, where, values)
    else:
        result[where] = values
    return e.reshape(as_tensor(result), shape)


@aten("aten.masked_scatter.default")
def masked_scatter(call: FxCall, x: Any, mask: Any, source: Any) -> Any:
    """Write values one after the other where a mask is true."""
    shape = e.broadcast_shape([as_tensor(x), as_tensor(mask)])
    x, mask = (as_array(e.broadcast(as_tensor(v), shape) if shape else as_tensor(v)) for v in (x, mask))
    flat = as_array(mask, "bool").reshape((-1,))
    place = np.cumsum(as_array(flat, "int32"), axis=0) - 1
    values = np.take(as_array(source, call.dtype).reshape((-1,)), np.maximum(place, 0))
    return np.where(flat, values, as_array(x).reshape((-1,))).reshape(as_tensor(x).shape)
