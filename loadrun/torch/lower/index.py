"""Reading elements by index."""

from typing import Any

import numpy as np

from ...layers import emit as e
from ..call import FxCall, axis_of
from ..registry import UnsupportedCallError, aten
from ..values import as_array, as_tensor


def subscript(indices: Any, fakes: Any, shape: tuple[Any, ...]) -> tuple[Any, ...]:
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
    return as_array(x)[subscript(indices, call.fakes[1], call.shape_of(0))]


@aten("aten.index_select.default")
def index_select(call: FxCall, x: Any, dim: int, index: Any) -> Any:
    """Select slices of an axis by index."""
    if not call.shape_of(0):
        return as_tensor(x)
    places = as_array(index, "int32").reshape((-1,))
    return np.take(as_array(x), places, axis=axis_of(dim, len(call.shape_of(0))))


def places(call: FxCall, shape: tuple[Any, ...], dim: int, index: Any) -> tuple[Any, ...]:
    """Build the subscript for an index along one axis: every other axis counts up."""
    index = as_array(index, "int32")
    result: list[Any] = []
    for axis, n in enumerate(index.shape):
        if axis == dim:
            result.append(index)
            continue
        column = [1] * len(shape)
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
    return as_array(x)[places(call, shape, axis_of(dim, len(shape)), index)]


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
