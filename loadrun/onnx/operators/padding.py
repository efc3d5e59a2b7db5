"""Padding and cropping."""

from __future__ import annotations

from collections.abc import Sequence

from ...arrays.names import kernel, np
from ...graph.composite import Known
from ...graph.dtypes import Array
from . import operator
from .common import axes_of, integers, one_of, refuse_unless

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
