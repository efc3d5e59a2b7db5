"""Padding and cropping."""

from __future__ import annotations

from ...build.layers.padding import pad
from ...tensors import Tensor
from ...tensors.access import static_shape
from ...tensors.symbolic import least
from ..call import NodeCall, front, lower
from ..values import UnsupportedNodeError
from . import is_open
from .shapes import sliced

__all__: list[str] = []


@lower("Pad")
def _pad(c: NodeCall) -> Tensor:
    x = c.t(0)
    mode = c.text("mode", "constant")
    if c.opset < 11:
        pads = c.ints("pads") or c.ints("paddings") or []
        value = c.real("value")
    else:
        pads = c.sizes(1, "pads")
        value = float(c.constant(2, "value").item()) if c.has(2) else 0.0
    axes = list(range(x.ndim))
    if c.opset >= 18 and c.has(3):
        axes = [front(v, x.ndim) for v in c.integers(3, "axes")]
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes):
        widths[axis] = (pads[i], pads[i + len(axes)])
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise UnsupportedNodeError(f"its mode {mode!r} is unknown")
    if mode != "constant" and any(
        not n and (b > 0 or a > 0) for n, (b, a) in zip(static_shape(x), widths, strict=True)
    ):
        raise UnsupportedNodeError(f"its mode {mode!r} has nothing to repeat on an axis that is empty")
    return pad(x, widths, mode, value)


@lower("CenterCropPad")
def _center_crop_pad(c: NodeCall) -> Tensor:
    x = c.t(0)
    target = c.integers(1, "shape")
    axes = c.ints("axes")
    for axis, want in zip(axes if axes is not None else range(x.ndim), target, strict=True):
        axis = front(axis, x.ndim)
        n = x.shape[axis]
        # At other sizes the axis may be too long or too short: crop it, then pad it.
        kept = least(n, want) if is_open(n) else min(n, want)
        start = (n - kept) // 2
        if is_open(n) or want < n:
            x = sliced(x, axis, start, start + kept)
        if is_open(n) or want > n:
            before = (want - kept) // 2
            widths = [(0, 0)] * x.ndim
            widths[axis] = (before, want - kept - before)
            x = pad(x, widths)
    return x
