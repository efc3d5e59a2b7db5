"""Joining and splitting tensors."""

from itertools import pairwise
from typing import Any

import numpy as np

from ...layers import emit as e
from ..call import FxCall, axis_of
from ..registry import aten
from ..sizes import as_size
from ..values import as_array, as_tensor
from .shape import bounds


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
