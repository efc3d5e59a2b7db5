"""Shapes: views, which are copies here, and operators that move, join and split elements."""

from itertools import pairwise
from typing import Any

import numpy as np

from ...layers import emit as e
from ...layers.shared.sizes import MOST_AXES, ManyAxes, permuted, reshaped
from ...layers.shared.windows import pad as pad_ends
from ...tensors import TracedInt, largest, least
from ...tensors.access import dtype_of, snapshot
from ...tensors.symbolic import as_number
from ..call import INT_MAX, FxCall, as_array, as_tensor, axes_of, axis_of, tensor_or_axes
from ..registry import UnsupportedCallError, aten
from ..sizes import as_size


@aten("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten._reshape_copy.default")
def view(call: FxCall, x: Any, shape: Any) -> Any:
    """Reshape the values."""
    return reshaped(tensor_or_axes(x), [as_size(n) for n in shape])


@aten(
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.detach.default",
    "aten.alias.default",
    "aten.detach_.default",
    "aten.lift_fresh_copy.default",
    "aten.lift_fresh.default",
    "aten.view.dtype",
    "aten.detach_copy.default",
    "aten._conj.default",
    "aten.dropout.default",
)
def same(call: FxCall, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the value itself; dropout drops nothing outside of training."""
    name = str(call.node.target)
    if "dropout" in name:
        rate, training = (*args, kwargs.get("p", 0), kwargs.get("train", False))[:2]
        if training and rate:
            raise UnsupportedCallError("it drops at random in training; call .eval() first")
        return as_tensor(x)
    x = tensor_or_axes(x)
    if dtype_of(x.x if isinstance(x, ManyAxes) else x).np != call.dtype:
        raise UnsupportedCallError("the bits of one dtype are read as another; convert with .to(dtype)")
    return x


@aten("aten.permute.default")
def permute(call: FxCall, x: Any, dims: Any) -> Any:
    """Permute the axes."""
    ndim = len(call.shape_of(0))
    return permuted(tensor_or_axes(x), [axis_of(d, ndim) for d in dims])


@aten("aten.transpose.int", "aten.swapaxes.default", "aten.swapdims.default")
def transpose(call: FxCall, x: Any, a: int, b: int) -> Any:
    """Exchange two axes."""
    ndim = len(call.shape_of(0))
    order = list(range(ndim))
    if ndim:
        a, b = axis_of(a, ndim), axis_of(b, ndim)
        order[a], order[b] = b, a
    return permuted(tensor_or_axes(x), order)


@aten("aten.t.default")
def turned(call: FxCall, x: Any) -> Any:
    """Transpose a matrix."""
    return as_tensor(x) if len(call.shape_of(0)) < 2 else transpose(call, x, 0, 1)


@aten("aten.unsqueeze.default")
def unsqueeze(call: FxCall, x: Any, dim: int) -> Any:
    """Insert an axis of size 1."""
    x, axis = tensor_or_axes(x), axis_of(dim, len(call.shape_of(0)) + 1)
    if len(x.shape) >= MOST_AXES:
        return reshaped(x, (*x.shape[:axis], 1, *x.shape[axis:]))
    return e.add_axes(x, [axis])


@aten("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(call: FxCall, x: Any, dim: Any = None) -> Any:
    """Remove axes of size 1."""
    shape = call.shape_of(0)
    wanted = () if dim == [] else axes_of(dim, len(shape))
    axes = [a for a in wanted if isinstance(shape[a], int) and shape[a] == 1]
    x = tensor_or_axes(x)
    if isinstance(x, ManyAxes):
        return reshaped(x, [n for a, n in enumerate(x.shape) if a not in axes])
    return e.drop_axes(x, axes)


@aten("aten.flatten.using_ints")
def flatten(call: FxCall, x: Any, start: int = 0, end: int = -1) -> Any:
    """Flatten several axes to one."""
    shape = tensor_or_axes(x).shape
    if not shape:
        return e.reshape(as_tensor(x), (1,))
    first, last = axis_of(start, len(shape)), axis_of(end, len(shape))
    size: Any = 1
    for n in shape[first : last + 1]:
        size = size * n
    return reshaped(tensor_or_axes(x), (*shape[:first], size, *shape[last + 1 :]))


@aten("aten.unflatten.int")
def unflatten(call: FxCall, x: Any, dim: int, sizes: Any) -> Any:
    """Split one axis into several."""
    shape = tensor_or_axes(x).shape
    axis = axis_of(dim, len(shape))
    return reshaped(tensor_or_axes(x), (*shape[:axis], *map(as_size, sizes), *shape[axis + 1 :]))


@aten("aten.expand.default", "aten.broadcast_to.default", "aten.expand_copy.default")
def expand(call: FxCall, x: Any, shape: Any, implicit: bool = False) -> Any:
    """Broadcast to a shape; -1 keeps a size."""
    result = as_tensor(x)
    now = result.shape
    missing = len(shape) - len(now)
    target = [now[i - missing] if type(n) is int and n == -1 else as_size(n) for i, n in enumerate(shape)]
    return e.broadcast(result, target) if target else result


aten("aten.expand_as.default")(lambda call, x, other: expand(call, x, as_tensor(other).shape))


@aten("aten.repeat.default", "aten.tile.default")
def repeat(call: FxCall, x: Any, repeats: Any) -> Any:
    """Repeat the whole tensor along axes."""
    return np.tile(as_array(x), [as_size(n) for n in repeats])


@aten("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(call: FxCall, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    """Slice one axis."""
    axis = axis_of(dim, len(call.shape_of(0)))
    return as_array(x)[(slice(None),) * axis + (bounds(start, end, step),)]


def bounds(start: Any, end: Any, step: Any) -> slice:
    """Build a slice, without bounds that mean none."""
    start, end = as_size(start), as_size(end)
    first = None if start is None or (type(start) is int and start <= -INT_MAX) else start
    last = None if end is None or (type(end) is int and end >= INT_MAX) else end
    return slice(first, last, None if step == 1 else step)


@aten("aten.select.int", "aten.select_copy.int")
def select(call: FxCall, x: Any, dim: int, index: Any) -> Any:
    """Select one index of an axis, without the axis."""
    axis = axis_of(dim, len(call.shape_of(0)))
    return as_array(x)[(slice(None),) * axis + (as_size(index),)]


aten("aten.narrow.default")(
    lambda call, x, dim, start, length: slice_(call, x, dim, start, as_size(start) + as_size(length))
)


@aten("aten.flip.default")
def flip(call: FxCall, x: Any, dims: Any) -> Any:
    """Reverse axes."""
    return np.flip(as_array(x), axes_of(dims, len(call.shape_of(0)))) if dims else as_tensor(x)


@aten("aten.roll.default")
def roll(call: FxCall, x: Any, shifts: Any, dims: Any = ()) -> Any:
    """Roll elements along axes."""
    many = [as_size(n) for n in (shifts if isinstance(shifts, (list, tuple)) else [shifts])]
    if not call.shape_of(0):
        return as_tensor(x)
    return np.roll(as_array(x), many, list(dims)) if dims else np.roll(as_array(x), many[0])


@aten("aten.diagonal.default", "aten.diagonal_copy.default", "aten.linalg_diagonal.default")
def diagonal(call: FxCall, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Move a diagonal to a new last axis."""
    return np.diagonal(as_array(x), offset, dim1, dim2)


@aten("aten.tril.default", "aten.triu.default")
def triangle(call: FxCall, x: Any, diagonal: int = 0) -> Any:
    """Zero elements above or below a diagonal."""
    return (np.tril if "tril" in str(call.node.target) else np.triu)(as_array(x), diagonal)


@aten("aten.constant_pad_nd.default")
def constant_pad_nd(call: FxCall, x: Any, pad: Any, value: Any = 0) -> Any:
    """Pad with one value; negative widths crop."""
    widths = [as_size(n) for n in pad]
    ndim = len(call.shape_of(0))
    pairs = [(0, 0)] * (ndim - len(widths) // 2) + list(zip(widths[-2::-2], widths[::-2], strict=True))
    if any(isinstance(n, TracedInt) for n in widths):
        result = as_tensor(x)
        for axis, (before, after) in enumerate(pairs):
            result = _widened(result, axis, before, after, value)
        return result
    return pad_ends(as_tensor(x), pairs, value=float(value))


def _widened(x: Any, axis: int, before: Any, after: Any, value: Any) -> Any:
    """Pad an axis by symbolic widths, and crop it where they turn out negative."""
    for width, first in ((before, True), (after, False)):
        followed = isinstance(width, TracedInt)
        if followed or width < 0:
            size = x.shape[axis]
            less = least(width, 0) if followed else width
            kept = slice(-less, None) if first else slice(0, size + less)
            x = as_tensor(as_array(x)[(slice(None),) * axis + (kept,)])
        if followed or width > 0:
            shape = list(x.shape)
            shape[axis] = largest(width, 0) if followed else width
            border = e.full(as_tensor(value, dtype_of(x).np), shape)
            x = e.concat([border, x] if first else [x, border], axis)
    return x


def _bordered(call: FxCall, x: Any, pad: Any, mode: str) -> Any:
    widths = call.static(pad, "the width of a border")
    pairs = list(zip(widths[-2::-2], widths[::-2], strict=True))
    pairs = [(0, 0)] * (len(call.shape_of(0)) - len(pairs)) + pairs
    # Elements cropped by a negative width still count when the other side mirrors, but not when it wraps.
    if mode == "wrap":
        return pad_ends(as_tensor(x), pairs, mode)
    grown = pad_ends(as_tensor(x), [(max(a, 0), max(b, 0)) for a, b in pairs], mode)
    return pad_ends(grown, [(min(a, 0), min(b, 0)) for a, b in pairs])


for _kind, _mode in (("reflection", "reflect"), ("replication", "edge")):
    aten(*(f"aten.{_kind}_pad{n}d.default" for n in (1, 2, 3)))(
        lambda call, x, pad, mode=_mode: _bordered(call, x, pad, mode)
    )
aten("aten._pad_circular.default")(lambda call, x, pad: _bordered(call, x, pad, "wrap"))


@aten("aten.pad.default", "aten._pad_enum.default")
def pad(call: FxCall, x: Any, widths: Any, mode: Any = "constant", value: Any = None) -> Any:
    """Pad in any mode."""
    if mode in ("constant", 0):
        return constant_pad_nd(call, x, widths, 0 if value is None else value)
    names = ("constant", "reflect", "replicate", "circular")
    number = names.index(mode) if isinstance(mode, str) else mode
    return _bordered(call, x, widths, ("", "reflect", "edge", "wrap")[number])


@aten("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(call: FxCall, x: Any, size: Any, stride: Any, offset: Any = None) -> Any:
    """Pick elements from the memory of a contiguous tensor."""
    shape = call.static(size, "a strided view")
    steps = call.static(stride, "a strided view")
    order = _memory_order(call)
    return np.take(np.transpose(as_array(x), order).reshape((-1,)), _strided_places(shape, steps, offset))


def _strided_places(shape: list[int], steps: list[int], offset: Any) -> Any:
    """Compute the positions in memory of the elements of a strided view."""
    places = np.array(int(offset or 0))
    for n, step in zip(shape, steps, strict=True):
        places = places[..., None] + np.arange(n) * step
    return places.astype(np.int32)


def _memory_order(call: FxCall) -> tuple[int, ...]:
    """Return the order of axes in which the elements of a tensor are in memory.

    Raises:
        UnsupportedCallError: they are interleaved with others.
    """
    fake = call.fakes[0]
    call.static(fake.shape, "a strided view")
    order = tuple(sorted(range(fake.ndim), key=lambda i: (-fake.stride(i), i)))
    count = fake.untyped_storage().nbytes() // fake.element_size()
    if not fake.permute(order).is_contiguous() or fake.storage_offset() or count != fake.numel():
        raise UnsupportedCallError("a strided view of a part of a larger tensor; use indexing")
    return order


@aten("aten.as_strided_scatter.default")
def as_strided_scatter(call: FxCall, x: Any, source: Any, size: Any, stride: Any, offset: Any = None) -> Any:
    """Replace elements of a strided view."""
    shape = call.static(size, "a strided view")
    order = _memory_order(call)
    places = _strided_places(shape, call.static(stride, "a strided view"), offset).reshape(-1)
    if len(set(places.tolist())) != len(places):
        raise UnsupportedCallError("a strided view that shows one element several times")
    turned = np.transpose(as_array(snapshot(as_tensor(x, call.dtype))), order)
    flat = turned.reshape((-1,))
    flat[places] = as_array(source, call.dtype).reshape((-1,))
    return np.transpose(flat.reshape(as_tensor(turned).shape), np.argsort(order).tolist())


aten("aten.sym_size.int", "aten.size.int")(lambda call, x, dim: tensor_or_axes(x).shape[dim])


@aten("aten.sym_numel.default", "aten.numel.default")
def sym_numel(call: FxCall, x: Any) -> Any:
    """Count the elements."""
    total: Any = 1
    for n in tensor_or_axes(x).shape:
        total = total * n
    return total


@aten("aten._local_scalar_dense.default", "aten.item.default")
def item(call: FxCall, x: Any) -> Any:
    """Return a value that Python reads, an integer as a symbolic number."""
    result = e.reshape(as_tensor(x), ())
    if dtype_of(result).np.kind not in "iu":
        return result
    return as_number(as_tensor(result, "int32" if np.can_cast(dtype_of(result).np, np.int32) else "int64"))


@aten("aten.cat.default", "aten.concat.default", "aten.concatenate.default")
def cat(call: FxCall, xs: Any, dim: int = 0) -> Any:
    """Join tensors along an axis; empty vectors among them do not count."""
    fakes = call.fakes[0] if call.fakes else call.named["tensors"]
    kept = [
        x for x, f in zip(xs, fakes, strict=True) if f.ndim != 1 or type(f.shape[0]) is not int or f.shape[0]
    ]
    if not kept:
        return as_tensor(xs[0], call.dtype)
    return e.concat([as_tensor(x, call.dtype) for x in kept], axis_of(dim, len(call.shape)))


@aten("aten.stack.default")
def stack(call: FxCall, xs: Any, dim: int = 0) -> Any:
    """Stack tensors along a new axis."""
    axis = axis_of(dim, len(call.shape))
    return e.concat([e.add_axes(as_tensor(x, call.dtype), [axis]) for x in xs], axis)


def _slices_between(x: Any, axis: int, places: list[Any]) -> tuple[Any, ...]:
    """Return slices between positions of an axis."""
    before = (slice(None),) * axis
    return tuple(as_array(x)[before + (bounds(a, b, 1),)] for a, b in pairwise(places))


@aten("aten.split.Tensor", "aten.unsafe_split.Tensor", "aten.split_copy.Tensor")
def split(call: FxCall, x: Any, size: Any, dim: int = 0) -> Any:
    """Split into parts of one size."""
    axis = axis_of(dim, len(call.shape_of(0)))
    places = [as_size(size) * i for i in range(len(call.fake))]
    return _slices_between(x, axis, [*places, as_tensor(x).shape[axis]])


@aten(
    "aten.split_with_sizes.default",
    "aten.split.sizes",
    "aten.unsafe_split_with_sizes.default",
    "aten.split_with_sizes_copy.default",
)
def split_with_sizes(call: FxCall, x: Any, sizes: Any, dim: int = 0) -> Any:
    """Split into parts of several sizes."""
    places: list[Any] = [0]
    for n in sizes:
        places.append(places[-1] + as_size(n))
    return _slices_between(x, axis_of(dim, len(call.shape_of(0))), places)


@aten("aten.chunk.default", "aten.unsafe_chunk.default")
def chunk(call: FxCall, x: Any, chunks: int, dim: int = 0) -> Any:
    """Split into at most so many parts of one size, the last one smaller."""
    total = as_tensor(x).shape[axis_of(dim, len(call.shape_of(0)))]
    return split(call, x, (total + (chunks - 1)) // chunks, dim)


@aten("aten.unbind.int", "aten.unbind_copy.int")
def unbind(call: FxCall, x: Any, dim: int = 0) -> Any:
    """Return the slices of an axis."""
    axis = axis_of(dim, len(call.shape_of(0)))
    return tuple(as_array(x)[(slice(None),) * axis + (i,)] for i in range(len(call.fake)))


@aten("aten.repeat_interleave.Tensor")
def repeated_places(call: FxCall, repeats: Any, output_size: Any = None) -> Any:
    """Return the index of every element as many times as it is to be repeated; the length follows the data."""
    if call.shape_of(0) == (0,):
        return as_tensor(as_array(np.zeros(0), call.dtype))
    ends = np.cumsum(as_array(repeats, "int32"), axis=0)
    total = as_size(as_tensor(ends[-1]) if output_size is None else output_size)
    return as_array(np.sum(as_array(as_array(e.arange(total))[:, None] >= ends, "int32"), axis=1), call.dtype)
