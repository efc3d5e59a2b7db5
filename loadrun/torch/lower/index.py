"""Reading and writing elements by index."""

import math
from typing import Any

import numpy as np

from ...layers import emit as e
from ...tensors.access import snapshot
from ..call import FxCall, as_array, as_tensor, axis_of
from ..registry import UnsupportedCallError, aten
from ..sizes import as_size
from .shape import bounds


def subscript(indices: Any, fakes: Any) -> tuple[Any, ...]:
    """Convert torch's list of indices to a subscript: None is a whole axis, booleans are masks."""
    result: list[Any] = []
    for index, fake in zip(indices, fakes, strict=True):
        if index is None:
            result.append(slice(None))
        elif str(fake.dtype) in ("torch.bool", "torch.uint8"):
            result.append(as_array(index, "bool"))
        else:
            result.append(as_array(index, "int32"))
    return tuple(result)


@aten("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(call: FxCall, x: Any, indices: Any) -> Any:
    """Index by tensors and masks, as numpy does."""
    if not call.shape_of(0):
        raise UnsupportedCallError("indexing a tensor without axes")
    return as_array(x)[subscript(indices, call.fakes[1])]


@aten("aten.index_select.default")
def index_select(call: FxCall, x: Any, dim: int, index: Any) -> Any:
    """Select slices of an axis by index."""
    if not call.shape_of(0):
        return as_tensor(x)
    places = as_array(index, "int32").reshape((-1,))
    return np.take(as_array(x), places, axis=axis_of(dim, len(call.shape_of(0))))


def places(ndim: int, dim: int, index: Any) -> tuple[Any, ...]:
    """Build the subscript for an index along one axis: every other axis counts up."""
    index = as_array(index, "int32")
    result: list[Any] = []
    for axis, n in enumerate(index.shape):
        if axis == dim:
            result.append(index)
            continue
        column = [1] * ndim
        column[axis] = -1
        result.append(as_array(e.reshape(e.arange(n), column)))
    return tuple(result)


@aten("aten.gather.default")
def gather(call: FxCall, x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    """Select one element for every index along an axis; the index may be smaller."""
    shape = call.shape_of(0)
    if not shape:
        # A value without axes has only the index 0.
        return e.broadcast(as_tensor(x), as_tensor(index).shape) if call.shape_of(2) else as_tensor(x)
    if not call.shape_of(2):
        return as_array(x).reshape((-1,))[as_array(index, "int32").reshape((1,))].reshape(())
    return as_array(x)[places(len(shape), axis_of(dim, len(shape)), index)]


@aten("aten.embedding.default")
def embedding(call: FxCall, weight: Any, index: Any, *_: Any) -> Any:
    """Select rows of a table."""
    return np.take(as_array(weight), as_array(index, "int32"), axis=0)


@aten("aten.embedding_renorm.default")
def embedding_renorm(call: FxCall, weight: Any, index: Any, max_norm: float, norm_type: float) -> Any:
    """Scale rows of a table down to a norm; all of them, where only rows that the indices name are read."""
    readers = {str(u.target) for u in call.node.users if u.op == "call_function"}
    if not all("embedding" in name for name in readers):
        raise UnsupportedCallError("a table with max_norm that is also read elsewhere; use separate tables")
    rows = as_array(weight, call.dtype)
    size = np.linalg.norm(rows, norm_type, axis=1, keepdims=True)
    return np.where(size > max_norm, rows * (max_norm / (size + 1e-7)), rows)


@aten(
    "aten.embedding_bag.default",
    "aten.embedding_bag.padding_idx",
    "aten._embedding_bag.default",
    "aten._embedding_bag_forward_only.default",
)
def embedding_bag(
    call: FxCall,
    weight: Any,
    index: Any,
    offsets: Any,
    scale_grad: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample: Any = None,
    include_last: bool = False,
    padding_idx: Any = -1,
) -> Any:
    """Reduce rows of a table by bags to sums, means or maxima."""
    starts = as_array(offsets, "int32")
    if include_last:
        starts = starts[:-1]
    places = as_array(index, "int32")
    rows = np.take(as_array(weight), places, axis=0)
    number = as_array(e.arange(places.shape[0]))
    after = as_array(number[None, :] >= starts[:, None], "int32")
    bag = np.sum(after, axis=0) - 1
    member = bag[None, :] == as_array(e.arange(starts.shape[0]))[:, None]
    if padding_idx is not None and padding_idx >= 0:
        member = member & (places != padding_idx)[None, :]
    counted = as_array(member, call.dtype)
    size = np.sum(counted, axis=1, keepdims=True)
    if mode == 2:
        spread = np.where(member[:, :, None], rows[None], np.float32(-np.inf))
        top = np.max(spread, axis=1)
        result = np.where(size > 0, top, np.float32(0))
    else:
        rows = rows if per_sample is None else rows * as_array(per_sample, call.dtype)[:, None]
        # Rows of other bags times 0 would be NaN where they are infinite.
        counts = np.any(member, axis=0)[:, None]
        result = as_array(
            e.full(as_tensor(0, call.dtype), (as_tensor(starts).shape[0], as_tensor(rows).shape[1]))
        )
        np.add.at(result, (as_array(bag, "int32"),), np.where(counts, rows, as_array(0, call.dtype)))
        result = result / np.maximum(size, np.float32(1)) if mode == 1 else result
    return result, bag, as_array(size[:, 0], "int32"), np.zeros_like(bag)


@aten("aten.masked_select.default")
def masked_select(call: FxCall, x: Any, mask: Any) -> Any:
    """Return elements where a mask is true, as a vector."""
    shape = e.broadcast_shape([as_tensor(x), as_tensor(mask)])
    x, mask = (
        as_array(e.broadcast(as_tensor(v), shape)) if shape else as_array(v).reshape((1,)) for v in (x, mask)
    )
    return as_array(x)[as_array(mask, "bool")]


@aten("aten.nonzero.default", "aten.argwhere.default")
def nonzero(call: FxCall, x: Any) -> Any:
    """Return the coordinates of nonzero elements, one row per element."""
    if not call.shape_of(0):
        raise UnsupportedCallError("nonzero of a tensor without axes")
    return as_array(np.argwhere(as_array(x, "bool")), "int32")


@aten("aten.nonzero_static.default")
def nonzero_static(call: FxCall, x: Any, *, size: int, fill_value: int = -1) -> Any:
    """Return a fixed number of coordinates, padded with a fill value."""
    shape = as_tensor(x).shape
    if not shape or not size:
        return e.full(as_tensor(fill_value, "int32"), (size, len(shape)))
    running = np.cumsum(as_array(as_array(x, "bool").reshape((-1,)), "int32"), axis=0)
    # The position of the n-th true element is the count of running sums up to n.
    number = np.arange(size, dtype=np.int32)
    place = np.sum(as_array(running <= number[:, None], "int32"), axis=1)
    there = number < running[-1]
    columns = []
    for n in reversed(shape):
        columns.append(np.where(there, place % n, np.int32(fill_value)))
        place = place // n
    return np.stack(columns[::-1], axis=1)


@aten("aten.one_hot.default")
def one_hot(call: FxCall, x: Any, classes: int = -1) -> Any:
    """Return a vector for each number, with a one at its index."""
    if type(classes) is int and classes == -1:
        raise UnsupportedCallError("the number of classes depends on the data; pass num_classes")
    return as_array(as_array(x)[..., None] == as_array(e.arange(classes)), call.dtype)


def _copied(x: Any, dtype: Any) -> Any:
    """Copy to an array of its own, so that writing does not change the original."""
    return as_array(snapshot(as_tensor(x, dtype)))


@aten("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(call: FxCall, x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """Replace elements, or add to them, at indices and masks."""
    result = _copied(x, call.dtype)
    where = subscript(indices, call.fakes[1])
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
    where = places(len(shape), axis_of(dim, len(shape)), index)
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
        result = _totals(x, axis, index, values, kind, include)
    else:
        part = x[region]
        x[region] = _extremes(part, axis, index, values, kind, include)
        result = x
    return as_array(result.reshape(()) if scalar else result, call.dtype)


def _fixed(n: Any) -> Any:
    return n if type(n) is int else None


def _totals(x: Any, axis: int, index: Any, values: Any, kind: str, include: bool) -> Any:
    where = places(as_tensor(x).ndim, axis, index)
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
