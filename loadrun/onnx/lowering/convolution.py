"""Convolutions over one to three axes, plain, transposed, deformable, of floats and of integers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ...build import emit as e
from ...build.exact_products import by_bytes
from ...build.layers import windows as build
from ...build.layers.windows import WindowGeometry
from ...graph.dtypes import plain
from ...ops.registry import pay
from ...tensors import Tensor, const
from ...tensors.access import dtype_of, static_shape
from ...tensors.symbolic import largest
from ..call import CONTRIB, NodeCall, lower
from ..values import INT32, UnsupportedNodeError, Value
from . import M, cast, const_like, flags, folded, is_open, of_length, transposed
from .functions import activation
from .linalg import minus_zero

__all__ = ["automatic", "padding_of", "window_of"]


def window_of(c: NodeCall, kernel: Sequence[int]) -> WindowGeometry:
    """Read the window of a convolution or pooling, without its pads."""
    n = len(kernel)
    said = c.ints("kernel_shape")
    if said is not None and said != list(kernel):
        raise UnsupportedNodeError(
            f"its kernel_shape is {said}, expected {list(kernel)} as the weight has it"
        )
    result = WindowGeometry(kernel, flags(c.ints("strides"), n, 1), flags(c.ints("dilations"), n, 1))
    if len(result.strides) != n or len(result.dilations) != n:
        raise UnsupportedNodeError(f"strides and dilations must name {n} axes")
    if any(v < 1 for v in (*result.kernel, *result.strides, *result.dilations)):
        raise UnsupportedNodeError("a kernel, stride or dilation is less than 1")
    return result


def automatic(c: NodeCall) -> str:
    """Return how pads are computed, if they are: the attribute ``auto_pad``, which may be empty."""
    return c.choice("auto_pad", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", "")


def padding_of(c: NodeCall, window: WindowGeometry, x: Tensor) -> list[tuple[int, int]]:
    """Compute pads before and after the axes of space from the attributes ``auto_pad`` and ``pads``."""
    n = len(window.kernel)
    auto = automatic(c)
    if auto == "VALID":
        return [(0, 0)] * n
    if auto.startswith("SAME"):
        result = []
        for size, s, reach in zip(x.shape[2:], window.strides, window.reach, strict=True):
            if s == 1 or not c.open_space(x):
                total = max((-(-int(size) // s) - 1) * s + reach - int(size), 0)
            else:
                total = largest(((size + s - 1) // s - 1) * s + reach - size, 0)
            less = total // 2
            result.append((less, total - less) if auto == "SAME_UPPER" else (total - less, less))
        return result
    pads = flags(c.ints("pads"), 2 * n, 0)
    if len(pads) != 2 * n or min(pads, default=0) < 0:
        raise UnsupportedNodeError(f"its pads are {pads[:8]}, expected {2 * n} numbers from 0 on")
    return list(zip(pads[:n], pads[n:], strict=True))


def _convolved(
    c: NodeCall, x: Tensor, w: Tensor, window: WindowGeometry, groups: int, bias: Tensor | None = None
) -> Tensor:
    """Convolve, after checking that the shapes fit."""
    if x.ndim not in (3, 4, 5) or w.ndim != x.ndim:
        raise UnsupportedNodeError(f"{x.ndim - 2} spatial axes; MegEngine convolves over 1 to 3")
    if static_shape(x)[1] != static_shape(w)[1] * groups:
        raise UnsupportedNodeError(
            f"{static_shape(x)[1]} channels, but the weight takes {static_shape(w)[1]} for each of {groups} groups"
        )
    _check_groups(w, groups)
    sizes = [int(n) + int(a) + int(b) for n, (a, b) in zip(static_shape(x)[2:], window.pads, strict=True)]
    if c.importer.assumed and any(n < r for n, r in zip(sizes, window.reach, strict=True)):
        raise UnsupportedNodeError(
            f"a window of {window.reach} is larger than its input, {list(static_shape(x)[2:])}"
        )
    return build.convolved(x, w, window, groups, bias)


def _bias(c: NodeCall, i: int, channels: int) -> Tensor | None:
    """Return an input of one number for each channel, which may be left out."""
    bias = c.maybe(i)
    if bias is not None and static_shape(bias) != (channels,):
        raise UnsupportedNodeError(f"its bias is {list(static_shape(bias))} for {channels} channels")
    return bias


def _check_groups(w: Tensor, groups: int) -> None:
    if groups < 1 or static_shape(w)[0] % groups:
        raise UnsupportedNodeError(f"{static_shape(w)[0]} channels are not a multiple of {groups} groups")


@lower("Conv")
def _conv(c: NodeCall) -> Tensor:
    x, w = c.t(0), c.t(1)
    window = window_of(c, static_shape(w)[2:])
    window.pads = padding_of(c, window, x)
    return _convolved(c, x, w, window, c.number("group", 1), _bias(c, 2, static_shape(w)[0]))


@lower("FusedConv", domain=CONTRIB)
def _fused_conv(c: NodeCall) -> Tensor:
    return _ended(c, _conv(c), c.maybe(3))


def _ended(c: NodeCall, y: Tensor, added: Tensor | None) -> Tensor:
    """Apply the additions of com.microsoft's operators to a convolution: another tensor, an activation."""
    if added is not None:
        y = e.elem(M.ADD, y, added)
    name = c.text("activation")
    numbers = c.floats("activation_params") or []
    return activation(name, y, *numbers[:2]) if name else y


def from_last(x: Tensor) -> Tensor:
    """Convert (N, ..., C) to (N, C, ...)."""
    return transposed(x, [0, x.ndim - 1, *range(1, x.ndim - 1)])


def to_last(x: Tensor) -> Tensor:
    """Convert (N, C, ...) to (N, ..., C)."""
    return transposed(x, [0, *range(2, x.ndim), 1])


@lower("NhwcConv", "NhwcFusedConv", domain=CONTRIB)
def _conv_last(c: NodeCall) -> Tensor:
    """Convolve with channels last in data and result; the weight has the usual layout, or channels last too."""
    x, w = from_last(c.t(0)), c.t(1)
    groups = c.number("group", 1)
    if static_shape(w)[1] * groups != static_shape(x)[1]:
        w = folded(from_last, w)
    window = window_of(c, static_shape(w)[2:])
    window.pads = padding_of(c, window, x)
    added = c.maybe(3)
    y = _convolved(c, x, w, window, groups, _bias(c, 2, static_shape(w)[0]))
    return to_last(_ended(c, y, None if added is None else from_last(added)))


# Transposed


@lower("ConvTranspose")
def _conv_transpose(c: NodeCall) -> Tensor:
    x, w = c.t(0), c.t(1)
    n = x.ndim - 2
    groups = c.number("group", 1)
    window = window_of(c, static_shape(w)[2:])
    extra = flags(c.ints("output_padding"), n, 0)
    if c.ints("output_shape") is not None:
        for axis in range(2, x.ndim):
            x = of_length(x, axis)
    full = [
        s * (int(i) - 1) + r
        for i, s, r in zip(static_shape(x)[2:], window.strides, window.reach, strict=True)
    ]
    if n not in (1, 2, 3):
        raise UnsupportedNodeError(f"{n} spatial axes; MegEngine convolves over 1 to 3")
    _check_groups(w, groups)
    window.pads = _transposed_pads(c, x, window, full, extra)
    return build.transposed(x, w, window, extra, groups, _bias(c, 2, static_shape(w)[1] * groups))


def _transposed_pads(
    c: NodeCall, x: Tensor, window: WindowGeometry, full: Sequence[int], extra: list[int]
) -> list[tuple[int, int]]:
    wanted = c.ints("output_shape")
    n = len(full)
    auto = automatic(c)
    if wanted is None and not auto.startswith("SAME"):
        return padding_of(c, window, x) if auto != "VALID" else [(0, 0)] * n
    result = []
    for i, (size, o) in enumerate(zip(full, extra, strict=True)):
        # As many times the size as the stride, if the kernel reaches that far; or what is wanted, zeros at the end.
        if wanted is None:
            total = max(window.reach[i] - window.strides[i] + o, 0)
        else:
            total = size + o - wanted[i - n]
        if total < 0:
            result.append((0, total))
            continue
        half = total // 2
        result.append((half, total - half) if auto == "SAME_UPPER" else (total - half, half))
    return result


# Deformable


@lower("DeformConv")
def _deform_conv(c: NodeCall) -> Tensor:
    x, w, offset = cast(c.t(0), "float32"), cast(c.t(1), "float32"), cast(c.t(2), "float32")
    if x.ndim != 4:
        raise UnsupportedNodeError("MegEngine's deformable convolution has two spatial axes")
    window = window_of(c, static_shape(w)[2:])
    pads = padding_of(c, window, x)
    groups = c.number("group", 1)
    if any(a != b or is_open(a, b) for a, b in pads):
        # Padding in front moves positions along; what is outside counts as zero in both.
        from ...build.layers.padding import pad  # for start-up

        x = pad(x, [(0, 0), (0, 0), *pads], "constant")
        pads = [(0, 0)] * 2
    mask = c.maybe(4)
    if mask is None:
        shape = offset.shape
        mask = e.full(const_like(1.0, offset), (shape[0], shape[1] // 2, *shape[2:]))
    count, per = static_shape(w)[0], static_shape(offset)[1] // (2 * prod(window.kernel))
    missing = -count % max(per, 1) if groups == 1 else 0
    if missing:
        # MegEngine divides the results among the groups of offsets, too.
        w = folded(lambda v: e.concat([v, e.full(const_like(0.0, v), (missing, *v.shape[1:]))], 0), w)
    from ...build.conv import deformable_conv2d  # for start-up

    y = deformable_conv2d(
        x,
        build.grouped(w, groups),
        offset,
        mask,
        None,
        window.strides,
        [a for a, _ in pads],
        window.dilations,
        groups,
    )
    if missing:
        y = e.subtensor(y, [(1, None, count, None, None)])
    return build.with_bias(cast(y, dtype_of(c.t(0))), _bias(c, 3, static_shape(w)[0]))


# Integers


def exact_convolution(
    c: NodeCall, x: Tensor, w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None
) -> Tensor:
    """Convolve 8-bit tensors without their zero points in int32.

    Sums of up to 258 products are exact in float32; longer ones are sums of int8 convolutions.
    """
    window = window_of(c, static_shape(w)[2:])
    window.pads = padding_of(c, window, x)
    groups = c.number("group", 1)
    if w_zero is not None and w_zero.ndim == 1 and static_shape(w_zero)[0] != 1:
        w_zero = e.reshape(w_zero, (-1, *[1] * (w.ndim - 1)))
    a, b = minus_zero(x, x_zero), minus_zero(w, w_zero)

    def convolved(p: Tensor, q: Tensor) -> Tensor:
        return cast(_convolved(c, p, q, window, groups), "int32")

    long = prod(static_shape(w)[1:]) * 255 * 255 >= 1 << 24
    if long and x.ndim < 5:
        return by_bytes(convolved, a, b)
    # MegEngine convolves volumes of floats alone.
    wide = plain("Float64" if long else "Float32")
    return convolved(cast(a, wide), cast(b, wide))


@lower("ConvInteger")
def _conv_integer(c: NodeCall) -> Value:
    return Value(INT32, exact_convolution(c, c.t(0), c.t(1), c.maybe(2), c.maybe(3)))


# Windows put back


@lower("Col2Im")
def _col2im(c: NodeCall) -> Tensor:
    """Add up blocks where their windows lie, as a transposed convolution with unit filters."""
    x = c.t(0)
    image, block = c.integers(1, "image_shape"), c.integers(2, "block_shape")
    n = len(image)
    window = window_of(c, block)
    pads = flags(c.ints("pads"), 2 * n, 0)
    area = prod(block)
    pay(4 * area * area)
    batch, channels = x.shape[0], x.shape[1] // area
    steps = [
        (i + pads[k] + pads[n + k] - window.reach[k]) // window.strides[k] + 1 for k, i in enumerate(image)
    ]
    cells = e.reshape(x, (channels * batch, area, *steps))
    units = np.eye(area, dtype=np.float32).reshape(area, 1, *block)
    y = build.transposed(cells, const(units), window, [0] * n)
    widths = []
    for k, i in enumerate(image):
        full = (steps[k] - 1) * window.strides[k] + window.reach[k]
        widths.append((-pads[k], i + pads[k] - full))
    from ...build.layers.padding import pad  # for start-up

    y = pad(y, [(0, 0), (0, 0), *widths], "constant")
    return cast(e.reshape(y, (batch, channels, *image)), dtype_of(x))


@lower("CausalConvWithState")
def _causal(c: NodeCall) -> tuple[Tensor, Tensor]:
    """Convolve depthwise over time, continuing where the last call ended."""
    x, w = c.t(0), c.t(1)
    k = static_shape(w)[-1]
    state = c.maybe(3)
    if state is None:
        state = e.full(const_like(0, x), (*x.shape[:-1], k - 1))
    whole = e.concat([state, x], x.ndim - 1) if k > 1 else x
    window = WindowGeometry([k], [1], [1])
    y = _convolved(c, whole, w, window, static_shape(x)[1], _bias(c, 2, static_shape(w)[0]))
    name = c.text("activation", "none")
    if name in ("silu", "swish"):
        y = e.elem(M.SILU, y)
    elif name not in ("none", ""):
        y = activation(name, y)
    late = e.subtensor(whole, [(x.ndim - 1, -(k - 1), None, None, None)]) if k > 1 else state
    return y, late
