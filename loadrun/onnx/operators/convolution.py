"""Convolutions over any number of axes: plain, transposed, deformable, of floats and of integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...graph.composite import Known
from ...graph.dtypes import Array
from ...ops.conv.fast import conv_fast
from ...ops.conv.rules import Geometry
from ...ops.conv.transpose import deconv_fast
from ...ops.conv.volume import conv_volume
from . import operator
from .activations import activated, silu
from .common import one_of, refuse_unless
from .linalg import less

__all__ = ["Window", "from_last", "integer_convolution", "integer_shape", "spaced", "to_last", "window_of"]

CONTRIB = "com.microsoft"
_AUTO = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", "")
Ints = list[int] | None


class Window(NamedTuple):
    """How a window moves over (N, C, ...), for each axis of space.

    Attributes:
        kernel: how many elements it takes.
        strides: from one window to the next.
        dilations: from one of its elements to the next.
        pads: what is added before and after; a negative number before leaves elements out.
        sizes, out: how many elements and windows there are.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def reach(self) -> list[int]:
        """How far a window reaches on each axis."""
        return _reach(self.kernel, self.dilations)


def _reach(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


def spaced(kernel: Sequence[int], strides: Ints, dilations: Ints) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return strides and dilations for every axis, 1 where they are left out.

    Raises:
        ValueError: there are too many or too few of them, or one is less than 1.
    """
    n = len(kernel)
    steps, spread = tuple(strides or (1,) * n), tuple(dilations or (1,) * n)
    if len(steps) != n or len(spread) != n:
        raise ValueError(f"strides and dilations must name {n} axes")
    if any(v < 1 for v in (*kernel, *steps, *spread)):
        raise ValueError("a kernel, stride or dilation is less than 1")
    return steps, spread


def given_pads(pads: Ints, n: int) -> list[tuple[int, int]]:
    """Return pads before and after each axis.

    Raises:
        ValueError: there are too many or too few of them, or one is negative.
    """
    pads = pads or [0] * (2 * n)
    if len(pads) != 2 * n or min(pads, default=0) < 0:
        raise ValueError(f"its pads are {pads[:8]}, expected {2 * n} numbers from 0 on")
    return list(zip(pads[:n], pads[n:], strict=True))


def window_of(
    sizes: Sequence[int],
    kernel: Sequence[int],
    *,
    kernel_shape: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    auto_pad: str = "NOTSET",
    pads: Ints = None,
) -> Window:
    """Compute the window of a convolution from its attributes.

    Raises:
        ValueError: attributes that contradict each other, or a window larger than its input.
    """
    n = len(kernel)
    if kernel_shape is not None and kernel_shape != list(kernel):
        raise ValueError(f"its kernel_shape is {kernel_shape}, expected {list(kernel)} as the weight has it")
    if len(sizes) != n:
        raise ValueError(f"its input has {len(sizes)} axes of space, its weight {n}")
    steps, spread = spaced(kernel, strides, dilations)
    reach, auto = _reach(kernel, spread), one_of("auto_pad", auto_pad, *_AUTO)
    if auto == "VALID":
        around = [(0, 0)] * n
    elif auto.startswith("SAME"):
        around = []
        for size, s, r in zip(sizes, steps, reach, strict=True):
            total = max((-(-size // s) - 1) * s + r - size, 0)
            half = total // 2
            around.append((half, total - half) if auto == "SAME_UPPER" else (total - half, half))
    else:
        around = given_pads(pads, n)
    out = []
    for size, (a, b), s, r in zip(sizes, around, steps, reach, strict=True):
        if 0 < size + a + b < r:
            raise ValueError(f"a window of {r} is larger than its input ({size + a + b})")
        out.append(max((size + a + b - r) // s + 1, 0))
    return Window(tuple(kernel), steps, spread, tuple(around), tuple(sizes), tuple(out))


def check_channels(x: Array, w: Array, bias: Array | None, group: int) -> None:
    """Check the channels of data, weight and bias.

    Raises:
        ValueError: they do not fit together.
    """
    if group < 1 or w.shape[0] % group:
        raise ValueError(f"{w.shape[0]} channels are not a multiple of {group} groups")
    if x.shape[1] != w.shape[1] * group:
        raise ValueError(
            f"{x.shape[1]} channels, but the weight takes {w.shape[1]} for each of {group} groups"
        )
    check_bias(bias, w.shape[0])


def check_bias(bias: Array | None, channels: int) -> None:
    """Raise a ValueError if there is not one number for each channel."""
    if bias is not None and bias.shape != (channels,):
        raise ValueError(f"its bias is {list(bias.shape)} for {channels} channels")


def with_bias(y: Array, bias: Array | None) -> Array:
    """Add one number to every channel."""
    return y if bias is None else y + bias.reshape(-1, *(1,) * (y.ndim - 2))


def _plan(x: Array, w: Array, bias: Array | None, group: int, space: Mapping[str, Any]) -> Window:
    if w.ndim != x.ndim or x.ndim < 3:
        raise ValueError(f"its input has {x.ndim} axes and its weight {w.ndim}, expected the same, 3 or more")
    check_channels(x, w, bias, group)
    return window_of(x.shape[2:], w.shape[2:], **space)


def _conv_shape(
    x: Array, w: Array, bias: Array | None = None, *rest: Array | None, group: int = 1, **space: Any
) -> tuple[int, ...]:
    for other in ("activation", "activation_params"):
        space.pop(other, None)
    return (x.shape[0], w.shape[0], *_plan(x, w, bias, group, space).out)


@operator("Conv", shape=_conv_shape)
def conv(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    group: int = 1,
    kernel_shape: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    auto_pad: str = "NOTSET",
    pads: Ints = None,
) -> Array:
    """Convolve (N, C, ...) with (OC, C / group, ...)."""
    space = {
        "kernel_shape": kernel_shape,
        "strides": strides,
        "dilations": dilations,
        "auto_pad": auto_pad,
        "pads": pads,
    }
    window = _plan(x, w, bias, group, space)
    return with_bias(convolved(x, w, window, group), bias)


def convolved(x: Array, w: Array, window: Window, group: int = 1) -> Array:
    """Convolve floats: columns of the data are multiplied by the filters."""
    shape = (x.shape[0], w.shape[0], *window.out)
    if 0 in (*shape, *x.shape):
        return np.zeros(shape, x.dtype)
    before = [min(pair) for pair in window.pads]
    rest = [(a - p, b - p) for (a, b), p in zip(window.pads, before, strict=True)]
    if any(map(any, rest)):
        x = np.pad(x, [(0, 0), (0, 0), *rest])
    filters = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    # Images have two axes; of more, the leading ones become part of the batch, tap by tap.
    *lead, height, width = ((1,) if len(window.out) == 1 else ()) + window.out
    one = 1 if len(window.out) == 1 else 0
    geo = Geometry(
        (1,) * one + window.kernel,
        (0,) * one + tuple(before),
        (1,) * one + window.strides,
        (1,) * one + window.dilations,
        (1,) * one + x.shape[2:],
        (*lead, height, width),
        group,
        w.shape[1],
        filters.shape[1],
    )
    if one:
        x, filters = x[:, :, None], filters[:, :, :, None]
    y = _run(x, np.ascontiguousarray(filters), geo)
    return y.reshape(shape)


def _run(x: Array, w: Array, geo: Geometry) -> Array:
    if len(geo.out) == 2:
        return conv_fast(x, w, geo)
    if len(geo.out) == 3:
        return conv_volume(x, w, geo)
    inner = Geometry(
        geo.kernel[1:],
        geo.pad[1:],
        geo.stride[1:],
        geo.dilate[1:],
        geo.size[1:],
        geo.out[1:],
        geo.groups,
        geo.icg,
        geo.ocg,
    )
    x = np.pad(x, [(0, 0), (0, 0), (geo.pad[0],) * 2, *((0, 0),) * (x.ndim - 3)])
    n, rows = x.shape[0], geo.out[0]
    total: Array | None = None
    for k in range(geo.kernel[0]):
        at = k * geo.dilate[0]
        part = x[:, :, at : at + (rows - 1) * geo.stride[0] + 1 : geo.stride[0]].swapaxes(1, 2)
        images = np.ascontiguousarray(part).reshape(n * rows, *part.shape[2:])
        y = _run(images, np.ascontiguousarray(w[:, :, :, k]), inner)
        total = y if total is None else total + y
    assert total is not None
    return total.reshape(n, rows, *total.shape[1:]).swapaxes(1, 2)


@operator("FusedConv", domain=CONTRIB, shape=_conv_shape)
def fused_conv(
    x: Array,
    w: Array,
    bias: Array | None = None,
    z: Array | None = None,
    *,
    activation: str = "",
    activation_params: list[float] | None = None,
    group: int = 1,
    kernel_shape: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    auto_pad: str = "NOTSET",
    pads: Ints = None,
) -> Array:
    """Convolve, add another tensor, apply an activation."""
    y = conv(
        x,
        w,
        bias,
        group=group,
        kernel_shape=kernel_shape,
        strides=strides,
        dilations=dilations,
        auto_pad=auto_pad,
        pads=pads,
    )
    y, numbers = y if z is None else y + z, activation_params or []
    refuse_unless(len(numbers) <= 2, f"its activation_params are {numbers}, expected two at most")
    return activated(activation, y, *numbers) if activation else y


def from_last(x: Array) -> Array:
    """Convert (N, ..., C) to (N, C, ...)."""
    return np.moveaxis(x, -1, 1)


def to_last(x: Array) -> Array:
    """Convert (N, C, ...) to (N, ..., C)."""
    return np.moveaxis(x, 1, -1)


def _last_shape(
    x: Array, w: Array, bias: Array | None = None, z: Array | None = None, *, group: int = 1, **space: Any
) -> tuple[int, ...]:
    n, channels, *out = _conv_shape(from_last(x), _filters(x, w, group), bias, group=group, **space)
    return (n, *out, channels)


def _filters(x: Array, w: Array, group: int) -> Array:
    """Return filters in the usual layout, of which the channels may be last too."""
    return w if w.shape[1] * group == x.shape[-1] else from_last(w)


@operator("NhwcConv", "NhwcFusedConv", domain=CONTRIB, shape=_last_shape)
def conv_last(
    x: Array,
    w: Array,
    bias: Array | None = None,
    z: Array | None = None,
    *,
    activation: str = "",
    activation_params: list[float] | None = None,
    group: int = 1,
    kernel_shape: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    auto_pad: str = "NOTSET",
    pads: Ints = None,
) -> Array:
    """Convolve as FusedConv does, with channels last in data and result."""
    y = fused_conv(
        from_last(x),
        _filters(x, w, group),
        bias,
        None if z is None else from_last(z),
        activation=activation,
        activation_params=activation_params,
        group=group,
        kernel_shape=kernel_shape,
        strides=strides,
        dilations=dilations,
        auto_pad=auto_pad,
        pads=pads,
    )
    return to_last(y)


# Transposed


def _transposed_window(
    x: Array,
    w: Array,
    bias: Array | None,
    *,
    group: int = 1,
    kernel_shape: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    auto_pad: str = "NOTSET",
    pads: Ints = None,
    output_padding: Ints = None,
    output_shape: Ints = None,
) -> Window:
    """Return the window of the convolution whose transpose is computed: its input is the result."""
    if w.ndim != x.ndim or x.ndim < 3:
        raise ValueError(f"its input has {x.ndim} axes and its weight {w.ndim}, expected the same, 3 or more")
    n, kernel = x.ndim - 2, w.shape[2:]
    if kernel_shape is not None and kernel_shape != list(kernel):
        raise ValueError(f"its kernel_shape is {kernel_shape}, expected {list(kernel)} as the weight has it")
    if x.shape[1] != w.shape[0]:
        raise ValueError(f"{x.shape[1]} channels, but the weight takes {w.shape[0]}")
    if group < 1 or w.shape[0] % group:
        raise ValueError(f"{w.shape[0]} channels are not a multiple of {group} groups")
    check_bias(bias, w.shape[1] * group)
    steps, spread = spaced(kernel, strides, dilations)
    extra, auto = output_padding or [0] * n, one_of("auto_pad", auto_pad, *_AUTO)
    reach = _reach(kernel, spread)
    full = [s * (i - 1) + r for i, s, r in zip(x.shape[2:], steps, reach, strict=True)]
    if output_shape is not None:
        totals = [f + o - w for f, o, w in zip(full, extra, output_shape[-n:], strict=True)]
    else:
        # As many times the size as the stride, if the kernel reaches that far.
        totals = [max(r - s + o, 0) for r, s, o in zip(reach, steps, extra, strict=True)]
    if output_shape is None and not auto.startswith("SAME"):
        around = given_pads(None if auto == "VALID" else pads, n)
    else:
        # What is wanted beyond the whole is zeros at the end.
        upper = auto == "SAME_UPPER"
        halves = [(t // 2 if upper else t - t // 2) if t > 0 else 0 for t in totals]
        around = [(h, t - h) for h, t in zip(halves, totals, strict=True)]
    sizes = [f - a - b + o for f, (a, b), o in zip(full, around, extra, strict=True)]
    if min(sizes, default=0) < 0:
        raise ValueError(f"its pads leave a result of {sizes}")
    return Window(tuple(kernel), steps, spread, tuple(around), tuple(sizes), x.shape[2:])


def _transposed_shape(
    x: Array, w: Array, bias: Array | None = None, *, group: int = 1, **space: Any
) -> tuple[int, ...]:
    window = _transposed_window(x, w, bias, group=group, **space)
    return (x.shape[0], w.shape[1] * group, *window.sizes)


@operator("ConvTranspose", shape=_transposed_shape)
def conv_transpose(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    group: int = 1,
    kernel_shape: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    auto_pad: str = "NOTSET",
    pads: Ints = None,
    output_padding: Ints = None,
    output_shape: Ints = None,
) -> Array:
    """Compute the transpose of a convolution of (N, C, ...) with (C, OC / group, ...)."""
    window = _transposed_window(
        x,
        w,
        bias,
        group=group,
        kernel_shape=kernel_shape,
        strides=strides,
        dilations=dilations,
        auto_pad=auto_pad,
        pads=pads,
        output_padding=output_padding,
        output_shape=output_shape,
    )
    shape = (x.shape[0], w.shape[1] * group, *window.sizes)
    if 0 in (*shape, *x.shape):
        return with_bias(np.zeros(shape, x.dtype), bias)
    filters = np.ascontiguousarray(w.reshape(group, w.shape[0] // group, *w.shape[1:]))
    before = tuple(a for a, _ in window.pads)
    natural = [s + 2 * a - r for s, a, r in zip(window.sizes, before, window.reach, strict=True)]
    if set(window.strides) == {1} and natural != [i - 1 for i in window.out]:
        # The kernel for strides of 1 knows equal pads alone.
        before = (0,) * len(before)
    whole = [
        size if p == a else s * (i - 1) + r
        for size, p, (a, _), s, i, r in zip(
            window.sizes, before, window.pads, window.strides, window.out, window.reach, strict=True
        )
    ]
    geo = Geometry(
        window.kernel,
        before,
        window.strides,
        window.dilations,
        tuple(whole),
        window.out,
        group,
        w.shape[1],
        filters.shape[1],
    )
    y = deconv_fast(x, filters, geo)
    for axis, (size, p, (a, _)) in enumerate(zip(window.sizes, before, window.pads, strict=True), 2):
        if p != a or y.shape[axis] != size:
            y = _placed(y, axis, a - p, size)
    return with_bias(y, bias)


def _placed(y: Array, axis: int, start: int, size: int) -> Array:
    """Return a part of an axis, zeros behind its end."""
    part = y[(slice(None),) * axis + (slice(start, start + size),)]
    short = size - part.shape[axis]
    return np.pad(part, _widths(y.ndim, axis, short)) if short else part


def _widths(ndim: int, axis: int, after: int) -> list[tuple[int, int]]:
    return [(0, after if i == axis else 0) for i in range(ndim)]


# Deformable


def _deform_window(
    x: Array,
    w: Array,
    bias: Array | None,
    *,
    group: int = 1,
    offset_group: int = 1,
    kernel_shape: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    pads: Ints = None,
) -> Window:
    if x.ndim != 4:
        raise ValueError(f"its input has {x.ndim - 2} axes of space, expected 2")
    if offset_group < 1 or x.shape[1] % offset_group:
        raise ValueError(f"{x.shape[1]} channels are not a multiple of {offset_group} groups of offsets")
    space = {"kernel_shape": kernel_shape, "strides": strides, "dilations": dilations, "pads": pads}
    return _plan(x, w, bias, group, space)


def _deform_shape(
    x: Array, w: Array, offset: Array, bias: Array | None = None, mask: Array | None = None, **space: Any
) -> tuple[int, ...]:
    return (x.shape[0], w.shape[0], *_deform_window(x, w, bias, **space).out)


@operator("DeformConv", since=19, shape=_deform_shape)
def deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    group: int = 1,
    offset_group: int = 1,
    kernel_shape: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    pads: Ints = None,
) -> Array:
    """Convolve what every tap finds at its own offset, between pixels by bilinear interpolation."""
    window = _deform_window(
        x,
        w,
        bias,
        group=group,
        offset_group=offset_group,
        kernel_shape=kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
    )
    n, taps = x.shape[0], prod(window.kernel)
    moves = offset.reshape(n, offset_group, taps, 2, *window.out)
    grid = np.meshgrid(*(np.arange(k) for k in window.kernel), indexing="ij")
    places = []
    for axis, (s, d, (before, _)) in enumerate(
        zip(window.strides, window.dilations, window.pads, strict=True)
    ):
        starts = np.arange(window.out[axis]).reshape((-1, 1) if axis == 0 else (1, -1)) * s - before
        places.append(moves[:, :, :, axis] + (grid[axis].reshape(-1, 1, 1) * d + starts).astype(x.dtype))
    columns = _between(x.reshape(n, offset_group, -1, *x.shape[2:]), *places)
    if mask is not None:
        columns = columns * mask.reshape(n, offset_group, 1, taps, *window.out)
    matrix = w.reshape(group, w.shape[0] // group, -1)
    y = np.matmul(matrix, columns.reshape(n, group, matrix.shape[2], prod(window.out)))
    return with_bias(y.reshape(n, w.shape[0], *window.out), bias)


def _between(x: Array, rows: Array, columns: Array) -> Array:
    """Read images (N, G, C, H, W) at places (N, G, ...) between pixels, zero outside: (N, G, C, ...)."""
    n, groups, channels, height, width = x.shape
    flat = x.reshape(n, groups, channels, height * width)
    top, left = np.floor(rows), np.floor(columns)
    total: Array | None = None
    for dy, dx in product((0, 1), (0, 1)):
        y, z = top + dy, left + dx
        share = (1 - np.abs(rows - y)) * (1 - np.abs(columns - z))
        share = np.where((y >= 0) & (y < height) & (z >= 0) & (z < width), share, 0)
        at = np.clip(y, 0, height - 1).astype(np.int64) * width + np.clip(z, 0, width - 1).astype(np.int64)
        seen = np.take_along_axis(flat, at.reshape(n, groups, 1, -1), 3)
        part = seen.reshape(n, groups, channels, *at.shape[2:]) * share[:, :, None]
        total = part if total is None else total + part
    assert total is not None
    return total


# Integers


def integer_convolution(
    x: Array, w: Array, x_zero: Array | None, w_zero: Array | None, group: int = 1, **space: Ints | str
) -> Array:
    """Convolve 8-bit tensors without their zero points, exact in int32."""
    window = _plan(x, w, None, group, space)
    if w_zero is not None and w_zero.ndim == 1 and w_zero.shape[0] != 1:
        w_zero = w_zero.reshape(-1, *(1,) * (w.ndim - 1))
    data, filters = less(x, x_zero), less(w, w_zero)
    # float32 holds sums of so many products.
    kind = np.float32 if prod(w.shape[1:]) * 255 * 255 < 1 << 24 else np.float64
    return convolved(data.astype(kind), filters.astype(kind), window, group).astype(np.int64).astype(np.int32)


def integer_shape(x: Array, w: Array, *zeros: Array | None, **space: Any) -> tuple[int, ...]:
    """Return the shape of a convolution of integers."""
    return _conv_shape(x, w, **space)


@operator("ConvInteger", since=10, out=("Int32",), shape=integer_shape)
def conv_integer(
    x: Array,
    w: Array,
    x_zero_point: Array | None = None,
    w_zero_point: Array | None = None,
    *,
    group: int = 1,
    kernel_shape: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    auto_pad: str = "NOTSET",
    pads: Ints = None,
) -> Array:
    """Convolve 8-bit tensors without their zero points in int32."""
    return integer_convolution(
        x,
        w,
        x_zero_point,
        w_zero_point,
        group,
        kernel_shape=kernel_shape,
        strides=strides,
        dilations=dilations,
        auto_pad=auto_pad,
        pads=pads,
    )


# Windows put back


def _col2im_shape(x: Array, image_shape: Known, block_shape: Known, **space: Any) -> tuple[int, ...]:
    image = [int(n) for n in image_shape]
    return (x.shape[0], x.shape[1] // prod(int(n) for n in block_shape), *image)


@operator("Col2Im", since=18, shape=_col2im_shape)
def col2im(
    x: Array,
    image_shape: Known,
    block_shape: Known,
    *,
    dilations: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """Add up blocks (N, C * block, L) where their windows lie in (N, C, ...)."""
    image, block = ([int(n) for n in v] for v in (image_shape, block_shape))
    window = window_of(image, block, strides=strides, dilations=dilations, pads=pads)
    cells = x.reshape(x.shape[0], -1, *block, *window.out)
    for i in range(len(block)):
        cells = _overlapped(cells, window, i)
    return cells


def _overlapped(cells: Array, window: Window, i: int) -> Array:
    """Add up what the taps of an axis of space, the third axis, have for the places of the image along it."""
    s, d, (before, _) = window.strides[i], window.dilations[i], window.pads[i]
    axis, count, size = 1 + len(window.out), window.out[i], window.sizes[i]
    total: Array | None = None
    for k in range(window.kernel[i]):
        part = np.take(cells, k, 2)
        # Zeros between the windows, so that neighbours are as far apart as the windows are.
        wide = np.pad(part[(slice(None),) * (axis + 1) + (None,)], _widths(part.ndim + 1, axis + 1, s - 1))
        wide = wide.reshape(*part.shape[:axis], count * s, *part.shape[axis + 1 :])
        start = k * d - before
        if start > 0:
            wide = np.pad(wide, [(b, a) for a, b in _widths(wide.ndim, axis, start)])
        wide = _placed(wide, axis, max(-start, 0), size)
        total = wide if total is None else total + wide
    assert total is not None
    return total


def _causal_shape(
    x: Array, w: Array, bias: Array | None = None, past: Array | None = None, *, activation: str = "none"
) -> list[tuple[int, ...]]:
    if x.ndim != 3 or w.ndim != 3:
        raise ValueError(f"its input has {x.ndim} axes and its weight {w.ndim}, expected 3")
    return [x.shape, (*x.shape[:2], w.shape[2] - 1)]


@operator("CausalConvWithState", since=27, shape=_causal_shape)
def causal_conv(
    x: Array, w: Array, bias: Array | None = None, past: Array | None = None, *, activation: str = "none"
) -> tuple[Array, Array]:
    """Convolve depthwise over time, continuing where the last call ended."""
    one_of("activation", activation, "none", "silu", "swish", "")
    short = _causal_shape(x, w)[1]
    before = np.zeros(short, x.dtype) if past is None else past
    if before.shape != short:
        raise ValueError(f"its past_state is {list(before.shape)}, expected {list(short)}")
    whole = np.concatenate([before, x], 2)
    check_channels(x, w, bias, x.shape[1])
    y = with_bias(convolved(whole, w, window_of(whole.shape[2:], w.shape[2:]), x.shape[1]), bias)
    return y if activation in ("none", "") else silu(y), whole[:, :, whole.shape[2] - short[2] :]
