"""Convolutions and pooling, of which MegEngine has one to three axes of space."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ...arrays.array import TracedArray
from ...base.registry import late
from ...graph import Var
from ...graph.dtypes import Array, plain as plain_type
from ...layers import emit as e
from ...layers.shared import windows as layers, windows as pools
from ...layers.shared.windows import WindowGeometry, pad
from ...tensors import Tensor
from ...tensors.access import from_variable, is_scalar, recorded_variable, session_of
from ..operators import convolution, filling, pooling
from ..operators.windows import SpatialWindow, window_of
from . import instead, known, operand, traced

with late(__name__):
    from ...layers import conv as conv_layers

__all__: list[str] = []


def _geometry(window: SpatialWindow) -> WindowGeometry:
    """Return the window as layers take it: what is cut in front, and what the last position needs beyond the pads."""
    pads = [(max(a, 0), b) for a, b in window.pads]
    result = WindowGeometry(window.kernel, window.strides, window.dilations, pads)
    result.cuts = [max(-a, 0) for a, _ in window.pads]
    result.sizes = window.sizes
    ends = zip(window.out, window.strides, window.reach, window.sizes, window.pads, strict=True)
    result.beyond = [max((out - 1) * s + r - (size + a + b), 0) for out, s, r, size, (a, b) in ends]
    return result


def _plain(window: SpatialWindow) -> WindowGeometry:
    """Return the window of a convolution as layers take it."""
    return WindowGeometry(window.kernel, window.strides, window.dilations, window.pads)


def _extra(window: SpatialWindow, sizes: Sequence[int]) -> list[int]:
    """Return by how much sizes are beyond what the windows of a transposed convolution reach."""
    ends = zip(sizes, window.out, window.strides, window.reach, window.pads, strict=True)
    return [size + a + b - (s * (i - 1) + r) for size, i, s, r, (a, b) in ends]


@instead(convolution.convolved)
def convolved(x: Any, w: Any, window: SpatialWindow, group: int = 1) -> Any:
    if not 1 <= len(window.out) <= 3:
        return NotImplemented
    return layers.convolved(operand(x), operand(w), _plain(window), group)


@instead("Conv", halves=True)
def conv(x: Any, w: Any, bias: Any = None, *, group: int = 1, **space: Any) -> Any:
    window = convolution.plan(x, w, bias, group, space)
    if not 1 <= len(window.out) <= 3:
        return NotImplemented
    data, added = operand(x), None if bias is None else operand(bias)
    y = layers.convolved(data, operand(w), _plain(window), group, added)
    if isinstance(w, np.ndarray) and not isinstance(bias, Tensor):

        def again(x: Any, factor: Array, shift: Array) -> Any:
            filters = w * factor.reshape(-1, *(1,) * (w.ndim - 1))
            moved = shift if bias is None else shift + bias * factor
            return conv(x, filters.astype(w.dtype), moved.astype(w.dtype), group=group, **space)

        _FIXED[recorded_variable(y)] = recorded_variable(data), again
    return y


_FIXED: WeakKeyDictionary[Var, tuple[Var, Callable[[Any, Array, Array], Any]]] = WeakKeyDictionary()
"""What convolutions of constant filters read, and how they are computed with their channels scaled and shifted."""


def rescaled(x: Any, factor: Array, shift: Array) -> Any:
    """Scale and shift the channels of a convolution within it; None where `x` is none of constant filters."""
    source, again = _FIXED.get(recorded_variable(x), (None, None))
    if source is None or again is None:
        return None
    return again(_float(source, x), factor, shift)


def _float(var: Var, reader: TracedArray) -> TracedArray:
    """Return the float32 variable that a traced array was made of."""
    session = session_of(reader)
    assert session is not None
    return traced(from_variable(var, plain_type("Float32"), is_scalar(reader), session))


@instead("ConvTranspose", halves=True)
def conv_transpose(x: Any, w: Any, bias: Any = None, *, group: int = 1, **space: Any) -> Any:
    window = convolution.transposed_window(x, w, bias, group=group, **space)
    if not 1 <= len(window.sizes) <= 3 or 0 in (*x.shape, *window.sizes):
        return NotImplemented
    added = None if bias is None else operand(bias)
    return layers.transposed(
        operand(x), operand(w), _plain(window), _extra(window, window.sizes), group, added
    )


@instead("DeformConv")
def deform_conv(
    x: Any,
    w: Any,
    offset: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    group: int = 1,
    offset_group: int = 1,
    **space: Any,
) -> Any:
    window = convolution.deform_window(x, w, bias, group, offset_group, space)
    if any(a != b for a, b in window.pads) or (group == 1 and w.shape[0] % offset_group):
        return NotImplemented
    if mask is None:
        mask = np.ones((offset.shape[0], offset.shape[1] // 2, *offset.shape[2:]), np.float32)

    filters = layers.grouped(operand(w), group)
    pads = [a for a, _ in window.pads]
    y = conv_layers.deformable_conv2d(
        operand(x),
        filters,
        operand(offset),
        operand(mask),
        None,
        window.strides,
        pads,
        window.dilations,
        group,
    )
    return layers.with_bias(y, None if bias is None else operand(bias))


@instead(convolution.integer_convolution)
def integer_convolution(x: Any, w: Any, x_zero: Any, w_zero: Any, group: int = 1, **space: Any) -> Any:
    """Sum products of 8-bit numbers in float32, which holds 258 of them; longer sums in parts."""
    window = convolution.plan(x, w, None, group, space)
    if not 1 <= len(window.out) <= 3:
        return NotImplemented
    if w_zero is not None and w_zero.ndim == 1 and w_zero.shape[0] != 1:
        w_zero = w_zero.reshape(-1, *(1,) * (w.ndim - 1))
    data, filters = less(x, x_zero), less(w, w_zero)
    each = max(258 // prod(window.kernel), 1)
    per = w.shape[1] * group
    if per <= each * group or group > 1:
        return convolution.convolved(data, filters, window, group).astype(np.int32)
    total: Any = None
    for start in range(0, per, each):
        part = convolution.convolved(
            data[:, start : start + each], filters[:, start : start + each], window
        ).astype(np.int32)
        total = part if total is None else total + part
    return total


STEPS: WeakKeyDictionary[Var, tuple[Var, int]] = WeakKeyDictionary()
"""What quantized numbers are as float32, before they become integers: whole steps from the least one, and that."""


def less(x: Any, zero: Any) -> Any:
    """Subtract a zero point as float32; what was quantized just before is taken from before it became integers."""
    start = np.float32(0) if zero is None else zero.astype(np.float32)
    opr = recorded_variable(x).owner if isinstance(x, TracedArray) else None
    steps, low = STEPS.get(opr.inputs[0], (None, 0)) if opr and opr.type == "TypeCvtV2" else (None, 0)
    if steps is None:
        wide = x.astype(np.float32)
    else:
        wide, start = _float(steps, x), start - np.float32(low)
    return wide - start if isinstance(start, Tensor) or start.any() else wide


# Windows put back


@instead("Col2Im")
def col2im(
    x: Any,
    image_shape: Any,
    block_shape: Any,
    *,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """Add up blocks where their windows lie by a transposed convolution with unit filters."""
    image, block = ([int(n) for n in known(v, "shape")] for v in (image_shape, block_shape))
    if len(block) > 3:
        return NotImplemented
    window = window_of(image, block, strides=strides, dilations=dilations, pads=pads)
    area = prod(block)
    cells = x.reshape(x.shape[0] * x.shape[1] // area, area, *window.out)
    units = np.eye(area, dtype=np.float32).reshape(area, 1, *block)
    y = layers.transposed(operand(cells, np.float32), operand(units), _plain(window), _extra(window, image))
    return e.reshape(y, (x.shape[0], -1, *image))


# Pooling and borders


@instead(filling.padded)
def padded(x: Any, widths: filling.Widths, mode: str, value: Any) -> Any:
    """Add borders by MegEngine's operator, which has no reflection of more than an axis has."""
    near = all(min(pair) >= 0 and max(pair) < n for n, pair in zip(x.shape, widths, strict=True))
    return pad(operand(x), widths, mode) if mode in ("edge", "reflect") and near else NotImplemented


@instead(pooling.folded)
def folded(x: Any, window: SpatialWindow, fold: Any, start: float) -> Any:
    """Take maxima by MegEngine's operator; sums as they are defined."""
    return pools.max_pooled(operand(x), _geometry(window)) if fold is np.maximum else NotImplemented


@instead("AveragePool")
def average_pool(x: Any, *, count_include_pad: int = 0, **space: Any) -> Tensor:
    window = pooling.pooling_window(x, **space)
    return pools.averaged(operand(x), _geometry(window), include=bool(count_include_pad))
