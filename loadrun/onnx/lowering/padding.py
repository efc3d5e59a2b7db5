"""Elements added at the ends of axes, or cut off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays.joining import padded
from ...build import emit as e
from ...graph import params as P
from ...ops.budget import pay
from ...tensors import Tensor, const
from ...tensors.symbolic import least
from ..call import NodeCall, front, lower
from ..values import UnsupportedNodeError
from .parts import M, const_like, is_open, of_length
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
        pads = c.sizes(1, "pads")
        value = float(c.constant(2, "value").item()) if c.has(2) else 0.0
    axes = list(range(x.ndim))
    if c.opset >= 18 and c.has(3):
        axes = [front(v, x.ndim) for v in c.integers(3, "axes")]
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes):
        widths[axis] = (pads[i], pads[i + len(axes)])
    return pad_with(x, widths, mode, value)


def pad_with(x: Tensor, widths: Sequence[tuple[int, int]], mode: str, value: float = 0.0) -> Tensor:
    """Elements added at the ends of axes, or taken away where a width is negative.

    A width that follows from sizes stays what it is computed from; its sign is that of the sizes that are known.
    """
    for axis, (before, after) in enumerate(widths):
        if before < 0 or after < 0:
            x = cut(x, axis, -before if before < 0 else 0, 2**40 if after >= 0 else x.shape[axis] + after, 1)
    widths = [(0 if b < 0 else b, 0 if a < 0 else a) for b, a in widths]
    if not any(b or a or is_open(b, a) for b, a in widths):
        return x
    modes = {
        "constant": P.PaddingMode.CONSTANT,
        "edge": P.PaddingMode.REPLICATE,
        "reflect": P.PaddingMode.REFLECT,
    }
    if mode not in (*modes, "wrap"):
        raise UnsupportedNodeError(f"its mode {mode!r} is unknown")
    if mode == "constant" and 0 in x._tuple_shape:
        return e.full(const_like(value, x), [b + n + a for n, (b, a) in zip(x.shape, widths, strict=True)])
    # MegEngine's reflection takes less than the axis has.
    far = mode != "edge" and any(
        max(pair) >= n for n, pair in zip(x._tuple_shape, widths, strict=True) if any(pair)
    )
    large = x._dtype.np.itemsize == 4 and not x._dtype.is_float and abs(value) > 1 << 24
    followed = is_open(*(w for pair in widths for w in pair))
    if mode != "wrap" and not followed and not (far if mode == "reflect" else large):
        return padded(x, widths, modes[mode], value)
    for axis, (before, after) in enumerate(widths):
        if before or after or is_open(before, after):
            x = _axis_padded(x, axis, before, after, mode, value, far=far)
    return x


def _axis_padded(
    x: Tensor, axis: int, before: int, after: int, mode: str, value: float, *, far: bool
) -> Tensor:
    """Padding by indexing one axis, or by joining it with a constant."""
    if mode == "constant":
        shape = list(x.shape)
        ends = [e.full(const_like(value, x), [*shape[:axis], w, *shape[axis + 1 :]]) for w in (before, after)]
        return joined([ends[0], x, ends[1]], axis)
    if not x._tuple_shape[axis]:
        raise UnsupportedNodeError(f"its mode {mode!r} has nothing to repeat on axis {axis}, which is empty")
    if far:
        x = of_length(x, axis)
        n = x._tuple_shape[axis]
        pay(16 * (int(before) + n + int(after)))
        places = np.arange(-int(before), n + int(after))
        if mode == "wrap":
            places = places % n
        else:
            period = max(2 * (n - 1), 1)
            places = places % period
            places = np.where(places >= n, period - places, places)
        return e.gather(x, [(axis, const(places.astype(np.int32)))])
    size = x.shape[axis]
    at = e.arange(before + size + after)
    at = e.elem(M.SUB, at, e.like(before, at))
    last = e.like(size - 1, at)
    if mode == "wrap":
        width = e.like(size, at)
        at = e.elem(M.MOD, e.elem(M.ADD, at, width), width)
    elif mode == "edge":
        at = e.elem(M.MIN, e.elem(M.MAX, at, const_like(0, at)), last)
    else:
        beyond = e.elem(M.ABS, e.elem(M.SUB, last, e.elem(M.ABS, at)))
        at = e.elem(M.SUB, last, beyond)
    return e.gather(x, [(axis, at)])


@lower("CenterCropPad")
def _center_crop_pad(c: NodeCall) -> Tensor:
    x = c.t(0)
    target = c.integers(1, "shape")
    axes = c.ints("axes")
    for axis, want in zip(axes if axes is not None else range(x.ndim), target, strict=True):
        axis = front(axis, x.ndim)
        n = x.shape[axis]
        # At other sizes there may be more than is wanted, or less: what is there is cut, then what is missing is added.
        kept = least(n, want) if is_open(n) else min(n, want)
        start = (n - kept) // 2
        if is_open(n) or want < n:
            x = sliced(x, axis, start, start + kept)
        if is_open(n) or want > n:
            before = (want - kept) // 2
            widths = [(0, 0)] * x.ndim
            widths[axis] = (before, want - kept - before)
            x = pad_with(x, widths, "constant")
    return x
