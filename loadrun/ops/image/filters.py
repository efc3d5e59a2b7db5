"""Rotation, flips, colours, blurring and the block cosine transform (MegEngine dnn naive and x86 kernels)."""

from collections.abc import Sequence
from math import prod

import numpy as np

from ...graph import Opr
from ...graph import params as P
from ...graph.dtypes import Array, DType, plain
from ..registry import Call, Shape, ShapeCall, first_input, kernel, per_output
from .color import convert_color, converted_shape
from .sampling import border_index, store

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
