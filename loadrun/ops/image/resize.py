"""Resizing of images and volumes (MegEngine dnn resize: x86, fallback and naive kernels).

Weights depend on one axis each, so float32 images are blended axis by axis; others are summed in the order
of MegEngine's kernels, whose rounding decides ties.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from ...graph import Opr
from ...graph.dtypes import Array, DType
from ...graph.params import Convolution3DFormat, Format, InterpolationMode, Resize, Resize3D
from ..registry import Call, Shape, ShapeCall, kernel, per_output
from .planes import as_planes, from_planes, output_size, planes_shape
from .resize_cv import resize_cv
from .sampling import Axis, blend, cubic_weights, store

_DTYPES = ("Float32", "Float16", "BFloat16", "Int8", "Uint8", "QuantizedS8", "Quantized8Asymm")
_FORMATS = (Format.NCHW, Format.NHWC, Format.NHWCD4, Format.NCHW4, Format.NCHW44, Format.NCHW88)


def _dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[0].name not in _DTYPES:
        raise ValueError(f"images to resize are {', '.join(_DTYPES)}")
    return (inputs[0],)


def _check(p: Resize) -> None:
    planar = (InterpolationMode.NEAREST, InterpolationMode.LINEAR, InterpolationMode.CUBIC)
    allowed = planar if p.format == Format.NCHW else planar[:2]
    if p.format not in _FORMATS:
        raise ValueError(f"images in the {p.format.name} layout cannot be resized")
    if p.format != Format.NHWC and p.imode not in allowed:
        names = ", ".join(m.name for m in allowed)
        raise ValueError(f"{p.format.name} images are resized by {names}, not {p.imode.name}")


def _shape(s: ShapeCall) -> Sequence[Shape | None]:
    p = s.get(Resize)
    _check(p)
    n, g, _, _, c = planes_shape(s.shape(0), p.format)
    oh, ow = output_size(s.ints(1))
    dest = {Format.NCHW: (n, g, oh, ow), Format.NHWC: (n, oh, ow, c), Format.NHWCD4: (n, oh, g, ow, c)}
    return (dest.get(p.format, (n, g, oh, ow, c)),)


def _flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    taps = {InterpolationMode.NEAREST: 0, InterpolationMode.CUBIC: 16, InterpolationMode.LANCZOS4: 64}
    return prod(outputs[0]) * 2 * taps.get(opr.get(Resize).imode, 4)


@kernel("ResizeV2", dtype=_dtype, shape=_shape, flops=_flops)
def resize(c: Call, x: Array, out_shape: Array) -> Array:
    """Resample an image to another size, half-pixel centres.

    Args:
        x: image in the layout of ``Resize.format``, float, int8 or uint8 storage.
        out_shape: int32 (height, width).

    NHWC images of 1 or 3 channels in float32 or uint8 follow OpenCV (11-bit fixed point for uint8); NHWC
    images of other channel counts or types know only NEAREST, every other mode is LINEAR there.

    Raises:
        ValueError: the layout knows no such interpolation, or the shape is none of the layout's.
    """
    p = c.get(Resize)
    _check(p)
    oh, ow = output_size(out_shape)
    planes = as_planes(x, p.format)
    n, g, ih, iw, k = planes.shape
    if min(planes.shape) == 0:
        if min(ih, iw) == 0 and n * g * k:
            raise ValueError(f"cannot resize an image of {ih}x{iw} pixels")
        return from_planes(np.zeros((n, g, oh, ow, k), x.dtype), p.format)
    planes = planes.reshape(n * g, ih, iw, k)
    if p.format == Format.NHWC and k in (1, 3) and c.inputs[0].name in ("Float32", "Uint8"):
        out = resize_cv(planes, oh, ow, p.imode)
    elif p.imode == InterpolationMode.NEAREST:
        out = planes[:, _nearest(ih, oh)][:, :, _nearest(iw, ow)]
    else:
        cubic = p.imode == InterpolationMode.CUBIC and p.format == Format.NCHW
        axis = _cubic if cubic else _linear
        out = store(_sample(planes, axis(ih, oh), axis(iw, ow)), c.outputs[0])
    return from_planes(out.reshape(n, g, oh, ow, k), p.format)


def _scale(size: int, out: int) -> np.float32:
    return np.float32(out) / np.float32(size)


def _nearest(size: int, out: int) -> Array:
    position = np.arange(out, dtype=np.float32) / _scale(size, out)
    return np.minimum(position.astype(np.int64), size - 1)


def _position(size: int, out: int) -> tuple[Array, Array]:
    """Return the left pixel and fraction of every output pixel's centre."""
    half = np.float32(0.5)
    alpha = (np.arange(out, dtype=np.float32) + half) / _scale(size, out) - half
    left = np.floor(alpha)
    return left.astype(np.int64), alpha - left


def _linear(size: int, out: int) -> Axis:
    left, alpha = _position(size, out)
    alpha[left < 0] = 0
    alpha[left + 1 >= size] = 1
    left = np.clip(left, 0, max(size - 2, 0))
    if size == 1:
        alpha[:] = 0
    taps = np.stack((left, np.minimum(left + 1, size - 1)), -1)
    return taps, np.stack((np.float32(1) - alpha, alpha), -1)


def _cubic(size: int, out: int) -> Axis:
    left, alpha = _position(size, out)
    return np.clip(left[:, None] + np.arange(-1, 3), 0, size - 1), cubic_weights(alpha)


def _sample(x: Array, rows: Axis, cols: Axis) -> Array:
    """Sum, weighted, over the taps of both axes of (planes, H, W, packed channels)."""
    if x.dtype == np.float32:
        # Blending the axis first that shrinks most keeps the intermediate image small.
        first = (rows, 1), (cols, 2)
        by_rows = len(rows[0]) * x.shape[2] < len(cols[0]) * x.shape[1]
        for axis, at in first if by_rows else first[::-1]:
            x = blend(x, axis, at)
        return x
    return _sample_exact(x, rows, cols)


def _sample_exact(x: Array, rows: Axis, cols: Axis) -> Array:
    """Sum in MegEngine's order in float32: tap by tap, pixel * row weight * column weight."""
    out: Array | None = None
    for i in range(rows[0].shape[1]):
        lines = x.take(rows[0][:, i], 1).astype(np.float32)
        lines *= rows[1][:, i, None, None]
        for j in range(cols[0].shape[1]):
            part = lines.take(cols[0][:, j], 2)
            part *= cols[1][:, j, None]
            out = part if out is None else np.add(out, part, out=out)
    assert out is not None
    return out


def _shape_3d(s: ShapeCall) -> Sequence[Shape | None]:
    shape = s.shape(0)
    _check_3d(s.get(Resize3D), shape)
    return ((*shape[:2], *output_size(s.ints(1), 3)),)


def _check_3d(p: Resize3D, shape: Shape) -> None:
    if p.format != Convolution3DFormat.NCDHW or p.imode != InterpolationMode.LINEAR:
        raise ValueError(f"volumes are resized in NCDHW by LINEAR, not {p.format.name} by {p.imode.name}")
    if len(shape) != 5:
        raise ValueError(f"a volume has 5 axes, found shape {list(shape)}")


def _dtype_3d(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if not inputs[0].is_float:
        raise ValueError("volumes to resize are Float32 or Float16")
    return (inputs[0],)


@kernel("Resize3D", dtype=_dtype_3d, shape=_shape_3d, flops=per_output(16))
def resize_3d(c: Call, x: Array, out_shape: Array) -> Array:
    """Resample a volume trilinearly, (N, C, D, H, W) to int32 (depth, height, width).

    With ``align_corners`` the outer pixels' centres coincide, otherwise the volumes' edges do and positions
    before the first pixel take its value.

    Raises:
        ValueError: another layout or interpolation, or not 5 axes.
    """
    p = c.get(Resize3D)
    _check_3d(p, x.shape)
    size = output_size(out_shape, 3)
    if x.shape[0] * x.shape[1] == 0:
        return np.zeros((*x.shape[:2], *size), x.dtype)
    if 0 in x.shape:
        raise ValueError(f"cannot resize a volume of shape {list(x.shape)}")
    out = x.astype(np.float32, copy=False)
    for at in (4, 3, 2):
        out = blend(out, _linear_3d(x.shape[at], size[at - 2], p.align_corners), at)
    return store(out, c.outputs[0])


def _linear_3d(size: int, out: int, align_corners: bool) -> Axis:
    index = np.arange(out, dtype=np.float32)
    if align_corners:
        scale = np.float32(size - 1) / np.float32(out - 1) if out > 1 else np.float32(0)
        position = scale * index
    else:
        half = np.float32(0.5)
        position = np.maximum(np.float32(size) / np.float32(out) * (index + half) - half, np.float32(0))
    left = np.minimum(position.astype(np.int64), size - 1)
    alpha = position - left.astype(np.float32)
    taps = np.stack((left, np.minimum(left + 1, size - 1)), -1)
    return taps, np.stack((np.float32(1) - alpha, alpha), -1).astype(np.float32, copy=False)
