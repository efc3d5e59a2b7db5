"""Elements added at the ends of axes, or cut off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ... import params as P
from ...imperative import Tensor, const
from ...imperative import emit as e
from ...lowering.joining import padded
from ..call import NodeCall, front, lower
from ..values import UnsupportedNodeError
from .parts import const_like
from .shapes import cut, joined, sliced

__all__ = ["pad_with"]


@lower("Pad")
def _pad(c: NodeCall) -> Tensor:
    x = c.t(0)
    mode = c.text("mode", "constant")
    if c.opset < 11:
        pads = c.ints("pads") or c.ints("paddings") or []
        value = c.real("value")
    else:
        pads = c.integers(1, "pads")
        value = float(c.constant(2, "value").item()) if c.has(2) else 0.0
    axes = list(range(x.ndim))
    if c.opset >= 18 and c.has(3):
        axes = [front(v, x.ndim) for v in c.integers(3, "axes")]
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes):
        widths[axis] = (pads[i], pads[i + len(axes)])
    return pad_with(x, widths, mode, value)


def pad_with(x: Tensor, widths: Sequence[tuple[int, int]], mode: str, value: float = 0.0) -> Tensor:
    """Elements added at the ends of axes, or taken away where a width is negative."""
    for axis, (before, after) in enumerate(widths):
        if before < 0 or after < 0:
            x = cut(x, axis, max(-before, 0), 2**40 if after >= 0 else after, 1)
    widths = [(max(b, 0), max(a, 0)) for b, a in widths]
    if not any(b or a for b, a in widths):
        return x
    if mode == "wrap":
        for axis, (before, after) in enumerate(widths):
            x = _wrapped(x, axis, before, after)
        return x
    modes = {
        "constant": P.PaddingMode.CONSTANT,
        "edge": P.PaddingMode.REPLICATE,
        "reflect": P.PaddingMode.REFLECT,
    }
    if mode not in modes:
        raise UnsupportedNodeError(f"its mode {mode!r} is unknown")
    if mode != "constant" or (x._dtype.np.itemsize == 4 and not x._dtype.is_float and abs(value) > 1 << 24):
        return _by_parts(x, widths, mode, value)
    if 0 in x._tuple_shape:
        return e.full(const_like(value, x), [b + n + a for n, (b, a) in zip(x.shape, widths, strict=True)])
    return padded(x, widths, modes[mode], value)


def _wrapped(x: Tensor, axis: int, before: int, after: int) -> Tensor:
    n = x._tuple_shape[axis]
    if not before and not after:
        return x
    places = np.arange(-before, n + after) % n
    return e.gather(x, [(axis, const(places.astype(np.int32)))])


def _by_parts(x: Tensor, widths: Sequence[tuple[int, int]], mode: str, value: float) -> Tensor:
    """Padding by indexing each axis, or by joining it with a constant."""
    for axis, (before, after) in enumerate(widths):
        n = x._tuple_shape[axis]
        if not before and not after:
            continue
        if mode == "constant":
            shape = list(x.shape)
            ends = [
                e.full(const_like(value, x), [*shape[:axis], w, *shape[axis + 1 :]]) for w in (before, after)
            ]
            x = joined([ends[0], x, ends[1]], axis)
            continue
        at = np.arange(-before, n + after)
        if mode == "edge":
            at = np.clip(at, 0, n - 1)
        else:
            period = max(2 * (n - 1), 1)
            at = at % period
            at = np.where(at >= n, period - at, at)
        x = e.gather(x, [(axis, const(at.astype(np.int32)))])
    return x


@lower("CenterCropPad")
def _center_crop_pad(c: NodeCall) -> Tensor:
    x = c.t(0)
    target = c.integers(1, "shape")
    axes = c.ints("axes")
    for axis, want in zip(axes if axes is not None else range(x.ndim), target, strict=True):
        axis = front(axis, x.ndim)
        n = x._tuple_shape[axis]
        if want < n:
            start = (n - want) // 2
            x = sliced(x, axis, start, start + want)
        elif want > n:
            before = (want - n) // 2
            widths = [(0, 0)] * x.ndim
            widths[axis] = (before, want - n - before)
            x = pad_with(x, widths, "constant")
    return x
