"""Rotation, flips, colours, blurring and the block cosine transform (MegEngine dnn naive and x86 kernels)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ...graph import Opr, params as P
from ...graph.dtypes import Array, DType, plain
from ..registry import Call, Shape, ShapeCall, first_input, kernel, per_output
from .sampling import border_index, store

_M = P.CvtColorMode
_CHANNELS = {
    _M.RGB2GRAY: (3, 1),
    _M.RGB2YUV: (3, 3),
    _M.YUV2RGB: (3, 3),
    _M.GRAY2RGB: (1, 3),
    _M.RGBA2RGB: (4, 3),
    _M.RGBA2BGR: (4, 3),
    _M.RGBA2GRAY: (4, 1),
    _M.RGB2BGR: (3, 3),
    _M.BGR2GRAY: (3, 1),
    _M.BGR2RGB: (3, 3),
}
_PICK = {_M.RGBA2RGB: (0, 1, 2), _M.RGBA2BGR: (2, 1, 0), _M.RGB2BGR: (2, 1, 0), _M.BGR2RGB: (2, 1, 0)}
_GRAY = {_M.RGB2GRAY: (0, 1, 2), _M.RGBA2GRAY: (0, 1, 2), _M.BGR2GRAY: (2, 1, 0)}
_SHIFT = 14


def converted_shape(shape: Shape, mode: P.CvtColorMode) -> Shape:
    """Return the shape of the converted image.

    Raises:
        ValueError: the mode takes another number of channels, or planes that the size does not hold.

    >>> converted_shape((1, 6, 8, 1), P.CvtColorMode.BT601_YUV2RGB_NV12)
    (1, 4, 8, 3)
    """
    if mode in _CHANNELS:
        source, dest = _CHANNELS[mode]
        if len(shape) != 4 or shape[3] != source:
            raise ValueError(
                f"{mode.name} takes images of shape [n, height, width, {source}], found {list(shape)}"
            )
        return (*shape[:3], dest)
    rows = 6 if mode.name.endswith(("YV12", "YU12")) else 3
    if len(shape) != 4 or shape[3] != 1 or shape[1] % rows or shape[2] % 2:
        raise ValueError(
            f"{mode.name} takes images of shape [n, multiple of {rows}, even, 1], found {list(shape)}"
        )
    return (shape[0], shape[1] // 3 * 2, shape[2], 1 if "GRAY" in mode.name else 3)


def convert_color(x: Array, mode: P.CvtColorMode) -> Array:
    """Convert an NHWC image, float32 or uint8; uint8 in fixed point of 14 bits (planar modes: 8 or 6).

    YUV2RGB_NV21 and the other planar modes without BT601 in their name are full-range JPEG colours.

    Raises:
        ValueError: a shape that the mode does not take, or float planes.

    >>> convert_color(np.uint8([255, 0, 0, 1, 2, 3]).reshape(1, 1, 2, 3), P.CvtColorMode.RGB2GRAY).ravel().tolist()
    [76, 2]
    """
    shape = converted_shape(x.shape, mode)
    if mode in _PICK:
        return x[..., _PICK[mode]]
    if mode in _GRAY:
        return _gray(x, _GRAY[mode])
    if mode == _M.GRAY2RGB:
        return np.repeat(x, 3, -1)
    if mode == _M.RGB2YUV:
        return _to_yuv(x)
    if mode == _M.YUV2RGB:
        return _from_yuv(x)
    if shape[3] == 1:
        return x[:, : shape[1]]
    if x.dtype != np.uint8:
        raise ValueError(f"{mode.name} takes uint8 images")
    return _from_planes(x, mode, shape)


def _bytes(parts: list[Array]) -> Array:
    return np.clip(np.stack(parts, -1), 0, 255).astype(np.uint8)


def _descale(x: Array) -> Array:
    return (x + (1 << (_SHIFT - 1))) >> _SHIFT


def _gray(x: Array, order: tuple[int, ...]) -> Array:
    r, g, b = (x[..., i] for i in order)
    if x.dtype == np.float32:
        out = r * np.float32(0.299)
        out += g * np.float32(0.587)
        out += b * np.float32(0.114)
        return out[..., None]
    wide = r.astype(np.int32) * 4899 + g.astype(np.int32) * 9617 + b.astype(np.int32) * 1868
    return _descale(wide).astype(np.uint8)[..., None]


def _to_yuv(x: Array) -> Array:
    """Convert to YUV; channel 0 is taken for blue, as in MegEngine, whatever the mode's name says."""
    if x.dtype == np.float32:
        b, g, r = (x[..., i] for i in range(3))
        y = b * np.float32(0.114) + g * np.float32(0.587) + r * np.float32(0.299)
        half = np.float32(0.5)
        return np.stack((y, (b - y) * np.float32(0.492) + half, (r - y) * np.float32(0.877) + half), -1)
    b, g, r = (x[..., i].astype(np.int32) for i in range(3))
    y = _descale(b * 1868 + g * 9617 + r * 4899)
    delta = 128 << _SHIFT
    return _bytes([y, _descale((b - y) * 8061 + delta), _descale((r - y) * 14369 + delta)])


def _from_yuv(x: Array) -> Array:
    if x.dtype == np.float32:
        half = np.float32(0.5)
        y, u, v = x[..., 0], x[..., 1] - half, x[..., 2] - half
        green = y + v * np.float32(-0.581) + u * np.float32(-0.395)
        return np.stack((y + u * np.float32(2.032), green, y + v * np.float32(1.14)), -1)
    y = x[..., 0].astype(np.int32)
    u, v = x[..., 1].astype(np.int32) - 128, x[..., 2].astype(np.int32) - 128
    green = y + _descale(v * -9519 + u * -6472)
    return _bytes([y + _descale(u * 33292), green, y + _descale(v * 18678)])


def _chroma(x: Array, mode: P.CvtColorMode, h: int) -> tuple[Array, Array]:
    """Return U and V as int32 (n, h / 2, w / 2)."""
    n, _, w, _ = x.shape
    flat = x[:, h:].reshape(n, -1).astype(np.int32)
    if mode.name.endswith(("YV12", "YU12")):
        first, second = flat.reshape(n, 2, h // 2, w // 2).transpose(1, 0, 2, 3)
    else:
        first, second = flat.reshape(n, h // 2, w // 2, 2).transpose(3, 0, 1, 2)
    # YCrCb modes are NV21, V before U.
    u_first = mode.name.endswith(("NV12", "YU12"))
    return (first, second) if u_first else (second, first)


def _from_planes(x: Array, mode: P.CvtColorMode, shape: Shape) -> Array:
    h = shape[1]
    y = x[:, :h, :, 0].astype(np.int32)
    u, v = _chroma(x, mode, h)

    def wide(plane: Array) -> Array:
        return plane.repeat(2, 1).repeat(2, 2)

    if mode.name.startswith("BT601"):
        # 1.164 * 64 in 16 bits, -16 and the rounding; -2.018 * 64 is limited to -128.
        y1 = ((y * 0x0101 * 18997) >> 16) - 1160
        r = (y1 + wide(102 * v - 102 * 128)) >> 6
        g = (y1 + wide(77 * 128 - (25 * u + 52 * v))) >> 6
        b = (y1 + wide(128 * u - 128 * 128)) >> 6
    else:
        r = y + wide((359 * (v - 128)) >> 8)
        g = y - wide((88 * (u - 128) + 183 * (v - 128)) >> 8)
        b = y + wide((454 * (u - 128)) >> 8)
    return _bytes([b, g, r] if "BGR" in mode.name else [r, g, b])


_MAX_KERNEL = 4095
_SEQUENTIAL = 32
"""Cosine transforms of blocks up to this size are summed in MegEngine's order, to round alike."""


def _image(shape: Shape) -> Shape:
    if len(shape) != 4 or shape[3] not in (1, 3):
        raise ValueError(f"an image has shape [n, height, width, 1 or 3], found {list(shape)}")
    return shape


def _simple(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[0].name not in ("Float32", "Uint8"):
        raise ValueError(f"images for {opr.type} are Float32 or Uint8, not {inputs[0]}")
    return (inputs[0],)


def _rotated(s: ShapeCall) -> Sequence[Shape | None]:
    n, h, w, c = _image(s.shape(0))
    return ((n, w, h, c),)


@kernel("Rotate", dtype=first_input, shape=_rotated)
def rotate(c: Call, x: Array) -> Array:
    """Turn NHWC images of 1 or 3 channels by 90 degrees, clockwise or not."""
    _image(x.shape)
    turned = x.transpose(0, 2, 1, 3)
    return turned[:, :, ::-1] if c.get(P.Rotate).clockwise else turned[:, ::-1]


def _same_image(s: ShapeCall) -> Sequence[Shape | None]:
    return (_image(s.shape(0)),)


@kernel("Flip", dtype=first_input, shape=_same_image)
def flip(c: Call, x: Array) -> Array:
    """Mirror NHWC images of 1 or 3 channels: ``vertical`` swaps top and bottom, ``horizontal`` the sides."""
    _image(x.shape)
    p = c.get(P.Flip)
    return x[:, :: -1 if p.vertical else 1, :: -1 if p.horizontal else 1]


def _color_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (converted_shape(s.shape(0), s.get(P.CvtColor).mode),)


@kernel("CvtColor", dtype=_simple, shape=_color_shape, flops=per_output(3))
def cvt_color(c: Call, x: Array) -> Array:
    """Convert the colours of NHWC images (float32, or uint8 in integer arithmetic)."""
    return convert_color(x, c.get(P.CvtColor).mode)


# --- GaussianBlur -------------------------------------------------------------------------------------

_FIXED = {
    1: (1.0,),
    3: (0.25, 0.5, 0.25),
    5: (0.0625, 0.25, 0.375, 0.25, 0.0625),
    7: (0.03125, 0.109375, 0.21875, 0.28125, 0.21875, 0.109375, 0.03125),
}
"""The kernels that stand for no sigma."""


def _gaussian(size: int, sigma: float) -> Array:
    if size == 0 and sigma > 0:
        # Four sigmas to each side, made odd; large sigmas are refused below.
        size = int(min(sigma * 8 + 1, 1e6) + 0.5) | 1
    if size % 2 == 0 or size > _MAX_KERNEL:
        raise ValueError(
            f"the blur's kernel size must be odd and at most {_MAX_KERNEL}, or 0 with a positive sigma; "
            f"found {size} with sigma {sigma}"
        )
    if sigma <= 0 and size in _FIXED:
        return np.array(_FIXED[size], np.float32)
    sigma = sigma if sigma > 0 else ((size - 1) * 0.5 - 1) * 0.3 + 0.8
    x = np.arange(size) - (size - 1) * 0.5
    w = np.exp(-0.5 / (sigma * sigma) * x * x).astype(np.float32)
    return (w * (1.0 / w.sum(dtype=np.float64))).astype(np.float32)


def blur_kernels(p: P.GaussianBlur) -> tuple[Array, Array]:
    """Compute the float32 weights of a blur along rows and along columns.

    Raises:
        ValueError: an even or absurd kernel size, or neither size nor sigma.

    >>> [k.tolist() for k in blur_kernels(P.GaussianBlur(kernel_height=3, kernel_width=1))]
    [[1.0], [0.25, 0.5, 0.25]]
    """
    sigma_y = p.sigma_y if p.sigma_y > 0 else p.sigma_x
    return _gaussian(p.kernel_width, p.sigma_x), _gaussian(p.kernel_height, sigma_y)


def _blur_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    p = opr.get(P.GaussianBlur)
    return 2 * (p.kernel_height + p.kernel_width) * prod(outputs[0])


@kernel("GaussianBlur", dtype=_simple, shape=_same_image, flops=_blur_flops)
def gaussian_blur(c: Call, x: Array) -> Array:
    """Blur NHWC images of 1 or 3 channels, float32 or uint8 (8-bit weights, cut off, not rounded).

    A kernel size of 0 follows from sigma; sigma 0 follows from the kernel size; ``sigma_y`` 0 is
    ``sigma_x``. Outside the image CONSTANT and TRANSPARENT are zero.

    Raises:
        ValueError: an even or absurd kernel size, or neither size nor sigma.
    """
    _image(x.shape)
    p = c.get(P.GaussianBlur)
    if p.border_mode == P.BorderMode.ISOLATED:
        raise ValueError("border mode ISOLATED is not supported")
    border = P.BorderMode.CONSTANT if p.border_mode == P.BorderMode.TRANSPARENT else p.border_mode
    kernels = blur_kernels(p)
    if 0 in x.shape:
        return np.zeros(x.shape, x.dtype)
    if x.dtype == np.float32:
        for w, at in zip(kernels, (2, 1), strict=True):
            x = _filter(x, w, at, border)
        return x
    wide = x.astype(np.int32)
    for w, at in zip(kernels, (2, 1), strict=True):
        wide = _filter(wide, (w * np.float32(256)).astype(np.int32), at, border)
    return _narrow(wide, len(kernels[1]))


def _narrow(x: Array, height: int) -> Array:
    """Round sums in 1/2^16 to uint8 as the x86 kernel rounds them.

    Whole groups of 4 values of a row round halves to even; the rest of the row rounds halves up, or is cut
    off under kernels of height 3.
    """
    n, h, w, c = x.shape
    rows = x.reshape(n * h, w * c)
    vector = w * c // 4 * 4
    groups = np.rint(rows[:, :vector] * 2.0**-16).astype(np.uint8)
    rest = (rows[:, vector:] + (0 if height == 3 else 1 << 15)) >> 16
    return np.concatenate((groups, rest.astype(np.uint8)), 1).reshape(x.shape)


def _filter(x: Array, weights: Array, at: int, border: P.BorderMode) -> Array:
    size, half = x.shape[at], len(weights) // 2
    index = border_index(np.arange(-half, size + half), size, border)
    wide = np.moveaxis(x.take(index, at), at, 0)
    wide[index < 0] = 0
    out = wide[:size] * weights[0]
    for k in range(1, len(weights)):
        out += wide[k : k + size] * weights[k]
    return np.moveaxis(out, 0, at)


# --- DctChannelSelect ---------------------------------------------------------------------------------


def _dct_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    p = opr.get(P.DctChannelSelect)
    out = opr.output_dtype or plain("Float32")
    want = {P.Format.NCHW: "Float32", P.Format.NCHW4: "QuantizedS8"}.get(p.format)
    if inputs[0].name != "Uint8" or out.name != want:
        raise ValueError(
            "the transform turns Uint8 into Float32 (NCHW) or QuantizedS8 (NCHW4), "
            f"not {inputs[0]} into {out} ({p.format.name})"
        )
    return (out,)


def _dct_blocks(p: P.DctChannelSelect, shape: Shape) -> tuple[int, int]:
    b = p.dct_block_size
    if len(shape) != 4 or b < 1 or shape[2] % b or shape[3] % b:
        raise ValueError(f"{b}x{b} blocks do not fill an image of shape {list(shape)}")
    return shape[2] // b, shape[3] // b


def _dct_shape(s: ShapeCall) -> Sequence[Shape | None]:
    p, shape = s.get(P.DctChannelSelect), s.shape(0)
    oh, ow = _dct_blocks(p, shape)
    masked = len(s.shapes) > 2 and s.shape(1) != (0,)
    oc = s.shape(2)[0] if masked else shape[1] * p.dct_block_size**2
    return (_dct_output(p, shape[0], oc, oh, ow),)


def _dct_output(p: P.DctChannelSelect, n: int, oc: int, oh: int, ow: int) -> Shape:
    if p.fastImpl == P.DctFastImpl.FIX_32_MASK and oc != 32:
        raise ValueError(f"FIX_32_MASK selects 32 channels, found {oc}")
    if p.format == P.Format.NCHW:
        return (n, oc, oh, ow)
    if oc % 4:
        raise ValueError(f"the NCHW4 layout takes a multiple of 4 channels, found {oc}")
    return (n, oc // 4, oh, ow, 4)


def _dct_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return 4 * opr.get(P.DctChannelSelect).dct_block_size * prod(inputs[0])


@kernel("DctChannelSelectV1", dtype=_dct_dtype, shape=_dct_shape, flops=_dct_flops)
def dct_channel_select(c: Call, x: Array, *mask: Array) -> Array:
    """Apply the cosine transform to square blocks; the coefficients become channels.

    Args:
        x: uint8 image (N, C, H, W).
        mask: int32 offsets (C + 1) and values: channel c keeps the coefficients
            ``values[offsets[c]:offsets[c + 1]]``, numbered row by row. Without them all are kept.

    Returns:
        (N, coefficients, H / block, W / block), float32 or, in NCHW4, QuantizedS8.

    Raises:
        ValueError: blocks that do not fill the image, or offsets and values that do not fit.
    """
    p = c.get(P.DctChannelSelect)
    oh, ow = _dct_blocks(p, x.shape)
    n, ch = x.shape[:2]
    b = p.dct_block_size
    keep = _dct_keep(mask, ch, b * b)
    shape = _dct_output(p, n, ch * b * b if keep is None else len(keep), oh, ow)
    blocks = x.reshape(n, ch, oh, b, ow, b).transpose(0, 1, 2, 4, 3, 5).astype(np.float32)
    basis = dct_basis(b)
    if b <= _SEQUENTIAL:
        half = sum(basis[:, k, None] * blocks[..., k, None, :] for k in range(b))
        full = sum(half[..., k, None] * basis[:, k] for k in range(b))
    else:
        full = basis @ blocks @ basis.T
    out = full.transpose(0, 1, 4, 5, 2, 3).reshape(n, ch * b * b, oh, ow)
    if keep is not None:
        out = out.take(keep, 1)
    if p.format == P.Format.NCHW:
        return out
    packed, target = out.reshape(n, shape[1], 4, oh, ow).transpose(0, 1, 3, 4, 2), c.outputs[0]
    return packed if target.is_float else store(np.clip(packed / np.float32(target.scale), -128, 127), target)


def _dct_keep(mask: Sequence[Array], channels: int, coefficients: int) -> Array | None:
    if len(mask) < 2 or mask[0].size == 0:
        return None
    offset, value = (m.reshape(-1).astype(np.int64) for m in mask[:2])
    sizes = np.diff(offset)
    if len(sizes) != channels or offset[0] != 0 or (sizes < 0).any() or offset[-1] != len(value):
        raise ValueError(
            f"mask offsets rise from 0 to {len(value)} in {channels} steps, found {offset[:9].tolist()}"
        )
    if len(value) and not (value.min() >= 0 and value.max() < coefficients):
        raise ValueError(f"mask values lie in 0..{coefficients - 1}, found {value.min()}..{value.max()}")
    return np.repeat(np.arange(channels) * coefficients, sizes) + value


def dct_basis(b: int) -> Array:
    """Compute the cosine basis of blocks of `b` pixels, float32 [coefficients, pixels]; its rows are orthonormal.

    >>> dct_basis(2).round(3).tolist()
    [[0.7070000171661377, 0.7070000171661377], [0.7070000171661377, -0.7070000171661377]]
    """
    one = np.float32(1)
    i, j = np.arange(b, dtype=np.float32)[:, None], np.arange(b, dtype=np.float32)
    angle = (2 * j + one) * i * np.float32(np.pi) / np.float32(2 * b)
    alpha = np.where(i == 0, np.sqrt(one / np.float32(b)), np.sqrt(np.float32(2) / np.float32(b)))
    return (alpha * np.cos(angle.astype(np.float64))).astype(np.float32)
