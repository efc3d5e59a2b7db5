"""New tensors from sizes and bounds, triangles of matrices, padding and cropping."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from ...arrays.names import kernel, np
from ...graph.composite import Known, NodeTypes, TensorAttribute
from ...graph.dtypes import Array, DType, plain
from . import operator
from .common import axes_of, integers, like_first, one_of, refuse_unless, tensor_type

_FAR = 2**31


def _filled(shape: Known, *, value: TensorAttribute | None = None) -> tuple[int, ...]:
    sizes = integers(shape)
    refuse_unless(min(sizes, default=0) >= 0, f"the shape {sizes} is none")
    return tuple(sizes)


@operator(
    "ConstantOfShape",
    since=9,
    out=(lambda types, a: a["value"].dtype if "value" in a else plain("Float32"),),
    shape=_filled,
)
def constant_of_shape(shape: Known, *, value: TensorAttribute | None = None) -> Array:
    """Fill a shape with one value, by default 0."""
    one = np.zeros((), np.float32) if value is None else value.value
    return np.full(_filled(shape), one.reshape(()), one.dtype)


def _square(x: Array, **attributes: object) -> tuple[int, ...]:
    refuse_unless(x.ndim == 2, f"an input of {x.ndim} axes, expected a matrix")
    return x.shape


def _eye_type(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    like = tensor_type(attributes["dtype"]) if "dtype" in attributes else types.inputs[0]
    assert like is not None
    return like


@operator("EyeLike", since=9, out=(_eye_type,), shape=_square)
def eye_like(x: Array, *, dtype: int | None = None, k: int = 0, types: NodeTypes) -> Array:
    """Return ones on a diagonal in the shape of a matrix."""
    rows, columns = x.shape
    return np.eye(rows, columns, min(max(k, -_FAR), _FAR), types.outputs[0].np)


def _count(start: Known, limit: Known, delta: Known, *, stash_type: int = 1) -> tuple[int]:
    first, last, step = (v.item() for v in (start, limit, delta))
    refuse_unless(step != 0, "its step is 0")
    # A quotient in float32 may be on the other side of a whole number.
    whole = isinstance(step, int)
    count = -((first - last) // step) if whole else ceil((last - first) / step)
    return (max(count, 0),)


@operator("Range", since=11, shape=_count)
def counted(start: Known, limit: Known, delta: Known, *, stash_type: int = 1) -> Array:
    """Count from a number towards another, by steps."""
    steps = np.arange(_count(start, limit, delta)[0]).astype(start.dtype)
    return start.reshape(()) + steps * delta.reshape(())


@operator("Trilu", since=14, shape=like_first)
def triangle(x: Array, k: Known | None = None, *, upper: int = 1) -> Array:
    """Keep the upper or lower triangle of matrices."""
    at = 0 if k is None else min(max(int(k.item()), -_FAR), _FAR)
    return np.triu(x, at) if upper else np.tril(x, at)


Widths = list[tuple[int, int]]
"""How much is added before and after each axis; what is negative is cut off."""


def _places(n: int, before: int, after: int, mode: str) -> Array:
    """Return which elements of an axis a border repeats, itself among them."""
    at = np.arange(-before, n + after)
    if mode == "edge" or n == 1:
        return at.clip(0, n - 1)
    if mode == "wrap":
        return at % n
    at = at % (2 * n - 2)
    return np.minimum(at, 2 * n - 2 - at)


@kernel
def padded(x: Array, widths: Widths, mode: str, value: Array | float) -> Array:
    """Return an array with elements added before and after every axis, or cut off where a width is negative."""
    one_of("mode", mode, "constant", "edge", "reflect", "wrap")
    x = x[tuple(slice(max(-b, 0), min(a, 0) or None) for b, a in widths)]
    widths = [(max(b, 0), max(a, 0)) for b, a in widths]
    if mode == "constant":
        return np.pad(x, widths, constant_values=value) if any(map(any, widths)) else x
    for axis, (before, after) in enumerate(widths):
        n = x.shape[axis]
        if before or after:
            refuse_unless(n > 0, f"its mode {mode!r} has nothing to repeat on an axis that is empty")
            x = np.take(x, _places(n, before, after, mode), axis)
    return x


def _widths(x: Array, pads: Sequence[int], axes: Sequence[int] | None = None) -> Widths:
    axes = range(x.ndim) if axes is None else axes_of(axes, x.ndim)
    count = len(axes)
    refuse_unless(len(pads) == 2 * count, f"it has {len(pads)} pads for {count} axes, expected two for each")
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes):
        widths[axis] = pads[i], pads[count + i]
    return widths


def _widened(x: Array, widths: Widths) -> tuple[int, ...]:
    """Return the shape of an array with its borders; what is cut off may be all of it."""
    sizes = []
    for n, pair in zip(x.shape, widths, strict=True):
        cut = max(n + sum(min(w, 0) for w in pair), 0)
        sizes.append(cut + sum(max(w, 0) for w in pair))
    return tuple(sizes)


def _padded_shape(
    x: Array, pads: Known, value: Array | None = None, axes: Known | None = None, *, mode: str = "constant"
) -> tuple[int, ...]:
    return _widened(x, _widths(x, integers(pads), None if axes is None else integers(axes)))


@operator("Pad", since=11, shape=_padded_shape)
def pad(
    x: Array, pads: Known, value: Array | None = None, axes: Known | None = None, *, mode: str = "constant"
) -> Array:
    """Add elements before and after axes, or cut them off."""
    widths = _widths(x, integers(pads), None if axes is None else integers(axes))
    if value is None or not value.size:
        value = np.array("" if x.dtype == object else 0, x.dtype)
    return padded(x, widths, mode, value.reshape(()))


@operator("Pad", since=2, shape=lambda x, pads, **others: _widened(x, _widths(x, pads)))
def pad_2(x: Array, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Array:
    """Add elements before and after every axis, or cut them off."""
    return padded(x, _widths(x, pads), mode, value)


@operator("Pad", shape=lambda x, paddings, **others: _widened(x, _widths(x, paddings)))
def pad_1(x: Array, *, paddings: Sequence[int], mode: str = "constant", value: float = 0.0) -> Array:
    """Add elements before and after every axis."""
    return pad_2(x, pads=paddings, mode=mode, value=value)


def _centred(x: Array, shape: Known, *, axes: Sequence[int] | None = None) -> Widths:
    widths = [(0, 0)] * x.ndim
    for axis, want in zip(axes_of(axes, x.ndim), integers(shape), strict=True):
        n = x.shape[axis]
        # Both halves are rounded down: of an odd difference the end has the larger part.
        before = -((n - want) // 2) if want < n else (want - n) // 2
        widths[axis] = before, want - n - before
    return widths


@operator(
    "CenterCropPad", since=18, shape=lambda x, shape, axes=None: _widened(x, _centred(x, shape, axes=axes))
)
def center_crop_pad(x: Array, shape: Known, *, axes: Sequence[int] | None = None) -> Array:
    """Cut axes to a size around their middle, or pad them with zeros to it."""
    return padded(x, _centred(x, shape, axes=axes), "constant", 0)
