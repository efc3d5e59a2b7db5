"""Convolutions over any number of axes: plain, transposed, deformable, of floats and of integers."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from ...arrays.names import kernel, np
from ...base.registry import late
from ...graph.composite import Known
from ...graph.dtypes import Array
from ...ops.conv.fast import conv_fast
from ...ops.conv.rules import Geometry
from . import operator
from .activations import activation_of, silu
from .common import one_of, refuse_unless, taking, with_attributes
from .linalg import less
from .windows import (
    AUTO_PADS,
    SPACE,
    Ints,
    SpatialWindow,
    check_kernel,
    given_pads,
    reach_of,
    spaced,
    window_of,
)

with late(__name__):
    from ...ops.conv import transpose, volume

__all__ = ["from_last", "integer_convolution", "integer_shape", "to_last"]

CONTRIB = "com.microsoft"
Shape = tuple[int, ...]


def _check(x: Array, w: Array, bias: Array | None, group: int, channels: int) -> None:
    """Check axes, groups and bias of a convolution with so many results."""
    fits = w.ndim == x.ndim >= 3
    refuse_unless(fits, f"its input has {x.ndim} axes and its weight {w.ndim}, expected the same, 3 or more")
    refuse_unless(
        group >= 1 and w.shape[0] % group == 0, f"{w.shape[0]} channels are not a multiple of {group} groups"
    )
    if bias is not None:
        fits = bias.shape == (channels,)
        refuse_unless(fits, f"its bias is {list(bias.shape)} for {channels} channels")


def plan(x: Array, w: Array, bias: Array | None, group: int, space: Mapping[str, Any]) -> SpatialWindow:
    """Check what is convolved, and return the window."""
    _check(x, w, bias, group, w.shape[0])
    refuse_unless(
        x.shape[1] == w.shape[1] * group,
        f"{x.shape[1]} channels, but the weight takes {w.shape[1]} for each of {group} groups",
    )
    return window_of(x.shape[2:], w.shape[2:], **space)


def with_bias(y: Array, bias: Array | None) -> Array:
    """Add one number to every channel."""
    return y if bias is None else y + bias.reshape(-1, *(1,) * (y.ndim - 2))


def _conv_shape(
    x: Array, w: Array, bias: Array | None = None, *rest: Array | None, group: int = 1, **space: Any
) -> Shape:
    window = {name: space[name] for name in SPACE if name in space}
    return (x.shape[0], w.shape[0], *plan(x, w, bias, group, window).out)


@operator("Conv", shape=_conv_shape)
@taking(**SPACE)
def conv(x: Array, w: Array, bias: Array | None = None, *, group: int = 1, **space: Any) -> Array:
    """Convolve (N, C, ...) with (OC, C / group, ...)."""
    return with_bias(convolved(x, w, plan(x, w, bias, group, space), group), bias)


@kernel
def convolved(x: Array, w: Array, window: SpatialWindow, group: int = 1) -> Array:
    """Convolve floats: columns of the data are multiplied by the filters."""
    shape = (x.shape[0], w.shape[0], *window.out)
    if 0 in (*shape, *x.shape):
        return np.zeros(shape, x.dtype)
    before = tuple(min(pair) for pair in window.pads)
    rest = [(a - p, b - p) for (a, b), p in zip(window.pads, before, strict=True)]
    if any(map(any, rest)):
        x = np.pad(x, [(0, 0), (0, 0), *rest])
    filters = np.ascontiguousarray(w.reshape(group, w.shape[0] // group, *w.shape[1:]))
    # A line is an image of one row.
    one = (1,) * (len(window.out) == 1)
    axes = (window.kernel, before, window.strides, window.dilations, x.shape[2:], window.out)
    kernel, pad, stride, dilate, size, out = (one + v for v in axes)
    pad = (0,) * len(one) + before
    geo = Geometry(kernel, pad, stride, dilate, size, out, group, w.shape[1], filters.shape[1])
    y = _run(x.reshape(*x.shape[:2], *size), filters.reshape(*filters.shape[:3], *kernel), geo)
    return y.reshape(shape)


def _run(x: Array, w: Array, geo: Geometry) -> Array:
    """Convolve images and volumes; of more axes the first one joins the batch, tap by tap."""
    if len(geo.out) <= 3:
        return conv_fast(x, w, geo) if len(geo.out) == 2 else volume.conv_volume(x, w, geo)
    axes = ("kernel", "pad", "stride", "dilate", "size", "out")
    inner = replace(geo, **{name: getattr(geo, name)[1:] for name in axes})
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
@taking(**SPACE)
def fused_conv(
    x: Array,
    w: Array,
    bias: Array | None = None,
    z: Array | None = None,
    *,
    activation: str = "",
    activation_params: list[float] | None = None,
    group: int = 1,
    **space: Any,
) -> Array:
    """Convolve, add another tensor, apply an activation."""
    y, numbers = conv(x, w, bias, group=group, **space), activation_params or []
    y = y if z is None else y + z
    refuse_unless(len(numbers) <= 2, f"its activation_params are {numbers}, expected two at most")
    return activation_of(activation, *numbers)(y) if activation else y


def from_last(x: Array) -> Array:
    """Convert (N, ..., C) to (N, C, ...)."""
    return np.moveaxis(x, -1, 1)


def to_last(x: Array) -> Array:
    """Convert (N, C, ...) to (N, ..., C)."""
    return np.moveaxis(x, 1, -1)


def laid_out(function: Callable[..., Any], last: int = 0) -> Callable[..., Any]:
    """Let a function of (N, C, ...), or a rule of shapes, take (N, ..., C): always, or where an attribute says so."""

    def called(x: Array, *others: Any, channels_last: int = last, **how: Any) -> Any:  # noqa: ANN401
        y = function(from_last(x) if channels_last else x, *others, **how)
        if not channels_last:
            return y
        return (y[0], *y[2:], y[1]) if isinstance(y, tuple) else to_last(y)

    return with_attributes(function, called, **{} if last else {"channels_last": 0})


def _filters(x: Array, w: Array, group: int) -> Array:
    """Return filters in the usual layout, of which the channels may be last too."""
    return w if w.shape[1] * group == x.shape[1] else from_last(w)


def _last_shape(x: Array, w: Array, *others: Array | None, group: int = 1, **space: Any) -> Shape:
    return _conv_shape(x, _filters(x, w, group), *others, group=group, **space)


@taking(activation="", activation_params=None, **SPACE)
def _conv_last(
    x: Array, w: Array, bias: Array | None = None, z: Array | None = None, *, group: int = 1, **space: Any
) -> Array:
    """Convolve as FusedConv does, where filters and what is added have their channels last."""
    added = None if z is None else from_last(z)
    return fused_conv(x, _filters(x, w, group), bias, added, group=group, **space)


operator("NhwcConv", "NhwcFusedConv", domain=CONTRIB, shape=laid_out(_last_shape, 1))(laid_out(_conv_last, 1))


# Transposed


def transposed_window(
    x: Array,
    w: Array,
    bias: Array | None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    output_padding: Ints = None,
    output_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> SpatialWindow:
    """Return the window of the convolution whose transpose is computed: its input is the result."""
    _check(x, w, bias, group, w.shape[1] * group)
    n, kernel = x.ndim - 2, w.shape[2:]
    check_kernel(kernel_shape, kernel)
    refuse_unless(x.shape[1] == w.shape[0], f"{x.shape[1]} channels, but the weight takes {w.shape[0]}")
    steps, spread = spaced(kernel, strides, dilations)
    extra, auto = output_padding or [0] * n, one_of("auto_pad", auto_pad, *AUTO_PADS)
    reach = reach_of(kernel, spread)
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
    refuse_unless(min(sizes) >= 0, f"its pads leave a result of {sizes}")
    return SpatialWindow(tuple(kernel), steps, spread, tuple(around), tuple(sizes), x.shape[2:])


def _transposed_shape(
    x: Array, w: Array, bias: Array | None = None, *, group: int = 1, **space: Any
) -> Shape:
    sizes = transposed_window(x, w, bias, group=group, **space).sizes
    return (x.shape[0], w.shape[1] * group, *sizes)


@operator("ConvTranspose", shape=_transposed_shape)
@taking(output_padding=None, output_shape=None, **SPACE)
def conv_transpose(x: Array, w: Array, bias: Array | None = None, *, group: int = 1, **space: Any) -> Array:
    """Compute the transpose of a convolution of (N, C, ...) with (C, OC / group, ...)."""
    window = transposed_window(x, w, bias, group=group, **space)
    shape = (x.shape[0], w.shape[1] * group, *window.sizes)
    if 0 in (*shape, *x.shape):
        return with_bias(np.zeros(shape, x.dtype), bias)
    filters = np.ascontiguousarray(w.reshape(group, w.shape[0] // group, *w.shape[1:]))
    before, sizes = tuple(a for a, _ in window.pads), window.sizes
    extents = [size + 2 * a - r for size, a, r in zip(sizes, before, window.reach, strict=True)]
    cut = set(window.strides) == {1} and extents != [i - 1 for i in window.out]
    if cut:
        # The kernel for strides of 1 knows equal pads alone.
        sizes = tuple(i - 1 + r for i, r in zip(window.out, window.reach, strict=True))
    pads = (0,) * len(before) if cut else before
    geo = Geometry(
        *(window.kernel, pads, window.strides, window.dilations, sizes, window.out),
        *(group, w.shape[1], filters.shape[1]),
    )
    y = transpose.deconv_fast(x, filters, geo)
    for i, (size, a) in enumerate(zip(window.sizes, before, strict=True)):
        y = _placed(y, 2 + i, a, size) if cut else y
    return with_bias(y, bias)


def _placed(y: Array, axis: int, start: int, size: int) -> Array:
    """Return a part of an axis, zeros behind its end."""
    part = y[(slice(None),) * axis + (slice(start, start + size),)]
    short = size - part.shape[axis]
    return np.pad(part, _widths(y.ndim, axis, short)) if short else part


def _widths(ndim: int, axis: int, after: int) -> list[tuple[int, int]]:
    return [(0, after if i == axis else 0) for i in range(ndim)]


# Deformable


def deform_window(
    x: Array, w: Array, bias: Array | None, group: int, offset_group: int, space: Mapping[str, Any]
) -> SpatialWindow:
    refuse_unless(x.ndim == 4, f"its input has {x.ndim - 2} axes of space, expected 2")
    fits = offset_group >= 1 and x.shape[1] % offset_group == 0
    refuse_unless(fits, f"{x.shape[1]} channels are not a multiple of {offset_group} groups of offsets")
    return plan(x, w, bias, group, space)


@operator("DeformConv", since=19)
@taking(**{name: value for name, value in SPACE.items() if name != "auto_pad"})
def deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    group: int = 1,
    offset_group: int = 1,
    **space: Any,
) -> Array:
    """Convolve what every tap finds at its own offset, between pixels by bilinear interpolation."""
    window = deform_window(x, w, bias, group, offset_group, space)
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


@kernel
def integer_convolution(
    x: Array, w: Array, x_zero: Array | None, w_zero: Array | None, group: int = 1, **space: Any
) -> Array:
    """Convolve 8-bit tensors without their zero points, exact in int32."""
    window = plan(x, w, None, group, space)
    if w_zero is not None and w_zero.ndim == 1 and w_zero.shape[0] != 1:
        w_zero = w_zero.reshape(-1, *(1,) * (w.ndim - 1))
    data, filters = less(x, x_zero), less(w, w_zero)
    # float32 holds sums of so many products.
    kind = np.float32 if prod(w.shape[1:]) * 255 * 255 < 1 << 24 else np.float64
    return convolved(data.astype(kind), filters.astype(kind), window, group).astype(np.int64).astype(np.int32)


def integer_shape(x: Array, w: Array, *zeros: Array | None, **space: Any) -> Shape:
    """Return the shape of a convolution without a bias."""
    return _conv_shape(x, w, **space)


@operator("ConvInteger", since=10, out=("Int32",), shape=integer_shape)
@taking(**SPACE)
def conv_integer(
    x: Array,
    w: Array,
    x_zero_point: Array | None = None,
    w_zero_point: Array | None = None,
    *,
    group: int = 1,
    **space: Any,
) -> Array:
    """Convolve 8-bit tensors without their zero points in int32."""
    return integer_convolution(x, w, x_zero_point, w_zero_point, group, **space)


# Windows put back


@operator("Col2Im", since=18)
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


def _overlapped(cells: Array, window: SpatialWindow, i: int) -> Array:
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
) -> list[Shape]:
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
    y = conv(whole, w, bias, group=x.shape[1])
    return y if activation in ("none", "") else silu(y), whole[:, :, whole.shape[2] - short[2] :]
