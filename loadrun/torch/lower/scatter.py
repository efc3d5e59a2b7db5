"""Writing elements at their places."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...imperative import emit as e
from ..call import FxCall, axis_of
from ..registry import UnsupportedCallError, aten
from ..sizes import as_size
from ..values import arr, ten
from .index import places, subscript
from .shape import bounds

__all__: list[str] = []


def _copied(x: Any, dtype: Any) -> Any:
    """An array of its own, so that writing does not show in the original."""
    return arr(ten(x, dtype)._frozen())


@aten("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(call: FxCall, x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """Elements replaced, or added to, at indices and masks."""
    result = _copied(x, call.dtype)
    where = subscript(indices, call.fakes[1], call.given(0))
    if accumulate:
        if any(i.dtype == np.bool_ for i in where if not isinstance(i, slice)):
            result[where] = result[where] + arr(values, call.dtype)
        else:
            np.add.at(result, where, arr(values, call.dtype))
    else:
        result[where] = arr(values, call.dtype)
    return result


@aten("aten.slice_scatter.default")
def slice_scatter(
    call: FxCall, x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    """A slice replaced."""
    result = _copied(x, call.dtype)
    axis = axis_of(dim, len(call.given(0)))
    result[(slice(None),) * axis + (bounds(start, end, step),)] = arr(source, call.dtype)
    return result


@aten("aten.select_scatter.default")
def select_scatter(call: FxCall, x: Any, source: Any, dim: int, index: Any) -> Any:
    """One slice of an axis replaced."""
    result = _copied(x, call.dtype)
    axis = axis_of(dim, len(call.given(0)))
    result[(slice(None),) * axis + (as_size(index),)] = arr(source, call.dtype)
    return result


@aten("aten.diagonal_scatter.default")
def diagonal_scatter(call: FxCall, x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """A diagonal replaced."""
    ndim = len(call.given(0))
    one, two = axis_of(dim1, ndim), axis_of(dim2, ndim)
    result = np.moveaxis(_copied(x, call.dtype), (one, two), (ndim - 2, ndim - 1))
    rows, columns = call.static([call.given(0)[one], call.given(0)[two]], "the size of a diagonal")
    mask = np.eye(rows, columns, k=offset, dtype=bool)
    count = int(mask.sum())
    first = np.minimum(np.maximum(np.arange(rows) + min(offset, 0), 0), max(count - 1, 0)).astype(np.int32)
    if not count:
        return result
    spread = np.take(arr(source, call.dtype), first, axis=-1)[..., None]
    return np.moveaxis(np.where(mask, spread, result), (ndim - 2, ndim - 1), (one, two))


@aten(
    "aten.scatter.src",
    "aten.scatter.value",
    "aten.scatter_add.default",
    "aten.scatter.reduce",
    "aten.scatter.value_reduce",
)
def scatter(call: FxCall, x: Any, dim: int, index: Any, source: Any, *, reduce: Any = None) -> Any:
    """Elements replaced, or added to, at indices along an axis."""
    shape = call.given(0)
    add = "scatter_add" in str(call.node.target) or reduce == "add"
    if reduce not in (None, "add"):
        raise UnsupportedCallError("scatter with multiply; use index_put or masks")
    if not shape:
        value = (
            arr(source, call.dtype).reshape((-1,))[:1].reshape(())
            if not _is_number(source)
            else arr(source, call.dtype)
        )
        return arr(x) + value if add else value
    where = places(call, shape, axis_of(dim, len(shape)), index)
    result = _copied(x, call.dtype)
    values = arr(source, call.dtype)
    if not _is_number(source):
        values = values[tuple(slice(0, n) for n in ten(index).shape)]
    if any(isinstance(n, int) and n == 0 for n in call.given(2)):
        return result
    if add:
        np.add.at(result, where, values)
    else:
        result[where] = values
    return result


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


@aten("aten.index_add.default")
def index_add(call: FxCall, x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """Slices of an axis added to."""
    values = arr(source, call.dtype)
    values = values if alpha == 1 else values * arr(alpha, call.dtype)
    if not call.given(0):
        return arr(x) + np.sum(values)
    axis = axis_of(dim, len(call.given(0)))
    result = _copied(x, call.dtype)
    where = (slice(None),) * axis + (arr(index, "int32").reshape((-1,)),)
    np.add.at(result, where, values)
    return result


@aten("aten.index_copy.default")
def index_copy(call: FxCall, x: Any, dim: int, index: Any, source: Any) -> Any:
    """Slices of an axis replaced."""
    if not call.given(0):
        return arr(source, call.dtype).reshape(())
    axis = axis_of(dim, len(call.given(0)))
    result = _copied(x, call.dtype)
    result[(slice(None),) * axis + (arr(index, "int32").reshape((-1,)),)] = arr(source, call.dtype)
    return result


@aten("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(call: FxCall, x: Any, dim: int, index: Any, value: Any) -> Any:
    """Slices of an axis replaced by one value."""
    if not call.given(0):
        return arr(value, call.dtype)
    axis = axis_of(dim, len(call.given(0)))
    result = _copied(x, call.dtype)
    result[(slice(None),) * axis + (arr(index, "int32").reshape((-1,)),)] = arr(value, call.dtype)
    return result


@aten("aten.put.default")
def put(call: FxCall, x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    """Elements of the flattened tensor replaced, or added to."""
    shape = ten(x).shape
    result = _copied(arr(x).reshape((-1,)), call.dtype)
    where, values = arr(index, "int32").reshape((-1,)), arr(source, call.dtype).reshape((-1,))
    if accumulate:
        np.add.at(result, where, values)
    else:
        result[where] = values
    return e.reshape(ten(result), shape)


@aten("aten.masked_scatter.default")
def masked_scatter(call: FxCall, x: Any, mask: Any, source: Any) -> Any:
    """Values put one after the other where a mask is true."""
    shape = e.broadcast_shape([ten(x), ten(mask)])
    x, mask = (arr(e.broadcast(ten(v), shape) if shape else ten(v)) for v in (x, mask))
    flat = arr(mask, "bool").reshape((-1,))
    place = np.cumsum(arr(flat, "int32"), axis=0) - 1
    values = np.take(arr(source, call.dtype).reshape((-1,)), np.maximum(place, 0))
    return np.where(flat, values, arr(x).reshape((-1,))).reshape(ten(x).shape)
