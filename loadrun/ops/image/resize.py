"""Resizing of images and volumes (MegEngine dnn resize: x86, fallback and naive kernels).

Weights depend on one axis each, so float32 images are blended axis by axis; others are summed in the order
of MegEngine's kernels, whose rounding decides ties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from ...graph import Opr
from ...graph.dtypes import Array, DType
from ...graph.params import Convolution3DFormat, Format, InterpolationMode, Resize, Resize3D
from ..registry import Call, Shape, ShapeCall, kernel, per_output
from .planes import as_planes, from_planes, output_size, planes_shape
from .sampling import Axis, blend, cubic_weights, lanczos_weights, store

# Resizing NHWC images of 1 or 3 channels as MegEngine's x86 kernel does, which derives from OpenCV.
#
# Unlike OpenCV, LINEAR and AREA cut off the fraction of a uint8 result instead of rounding it.

_BITS = 11
_ONE = 1 << _BITS


def resize_cv(x: Array, oh: int, ow: int, mode: InterpolationMode) -> Array:
    """Resize (N, H, W, C) float32 or uint8 images to (N, oh, ow, C).

    >>> resize_cv(np.uint8([0, 9, 20, 27]).reshape(1, 2, 2, 1), 1, 1, InterpolationMode.AREA).item()
    14
    """
    ih, iw = x.shape[1:3]
    if mode == InterpolationMode.NEAREST:
        return x[:, _cv_nearest(ih, oh)][:, :, _cv_nearest(iw, ow)]
    if mode == InterpolationMode.LINEAR:
        return _cv_linear(x, oh, ow)
    if mode == InterpolationMode.AREA:
        return _area(x, oh, ow)
    fractions = cubic_weights if mode == InterpolationMode.CUBIC else _lanczos_weights
    rows, cols = (_taps(n, o, fractions) for n, o in ((ih, oh), (iw, ow)))
    if x.dtype == np.float32:
        return blend(blend(x, cols, 2), rows, 1)
    wide = blend(blend(x, _fixed(cols), 2), _fixed(rows), 1)
    return np.clip((wide + (1 << (2 * _BITS - 1))) >> (2 * _BITS), 0, 255).astype(np.uint8)


def _lanczos_weights(x: Array) -> Array:
    return lanczos_weights(x, np.float32(np.pi))


def _cv_nearest(size: int, out: int) -> Array:
    step = 1.0 / (out / size)
    return np.clip(np.floor(np.arange(out) * step).astype(np.int64), 0, size - 1)


def _fixed(axis: Axis) -> Axis:
    return axis[0], np.rint(axis[1] * np.float32(_ONE)).astype(np.int32)


def _taps(size: int, out: int, weights: Callable[[Array], Array]) -> Axis:
    position = ((np.arange(out) + 0.5) * (1.0 / (out / size)) - 0.5).astype(np.float32)
    left = np.floor(position)
    w = weights(position - left)
    k = w.shape[-1]
    index = left.astype(np.int64)[:, None] + np.arange(1 - k // 2, k // 2 + 1)
    return np.clip(index, 0, size - 1), w


def _cv_linear(x: Array, oh: int, ow: int) -> Array:
    rows, cols = (_linear_taps(n, o) for n, o in zip(x.shape[1:3], (oh, ow), strict=True))
    if x.dtype == np.float32:
        return blend(blend(x, cols, 2), rows, 1)

    def cut(axis: Axis) -> Axis:
        right = (axis[1][:, 1] * np.float32(_ONE)).astype(np.int32)
        return axis[0], np.stack((_ONE - right, right), -1)

    return (blend(blend(x, cut(cols), 2), cut(rows), 1) >> (2 * _BITS)).astype(np.uint8)


def _linear_taps(size: int, out: int) -> Axis:
    half, one = np.float32(0.5), np.float32(1)
    step = one / (np.float32(out) / np.float32(size))
    position = (np.arange(out, dtype=np.float32) + half) * step - half
    left = np.floor(position)
    alpha = position - left
    alpha[left < 0] = 0
    alpha[left + 1 >= size] = 1 if size > 1 else 0
    index = np.clip(left, 0, max(size - 2, 0)).astype(np.int64)
    return np.stack((index, np.minimum(index + 1, size - 1)), -1), np.stack((one - alpha, alpha), -1)


def _area(x: Array, oh: int, ow: int) -> Array:
    n, ih, iw, c = x.shape
    if oh > ih or ow > iw:
        return _area_up(x, oh, ow)
    if ih % oh or iw % ow:
        cols, rows = _area_taps(iw, ow), _area_taps(ih, oh)
        return blend(blend(x, cols, 2), rows, 1).astype(x.dtype, copy=False)
    sy, sx = ih // oh, iw // ow
    cells = x.reshape(n, oh, sy, ow, sx, c)
    if x.dtype == np.float32:
        return cells.sum((2, 4), dtype=np.float32) * (np.float32(1) / np.float32(sy * sx))
    total = cells.sum((2, 4), dtype=np.int32)
    if sy == sx == 2:
        return ((total + 2) >> 2).astype(np.uint8)
    mean = total.astype(np.float32) * (np.float32(1) / np.float32(sy * sx))
    return mean.astype(np.uint8)


def _area_taps(size: int, out: int) -> Axis:
    """Compute every output pixel's share of the source pixels that it covers."""
    scale = 1.0 / (out / size)
    begin = np.arange(out) * scale
    end = begin + scale
    width = np.minimum(scale, size - begin)
    last = np.minimum(np.floor(end).astype(np.int64), size - 1)
    first = np.minimum(np.ceil(begin).astype(np.int64), last)
    index = (first - 1)[:, None] + np.arange(int((last - first).max()) + 2)
    head, tail = first - begin, end - last
    w = np.where(index < last[:, None], 1.0, 0.0)
    w[:, 0] = np.where(head > 1e-3, head, 0.0)
    at_end = np.where(tail > 1e-3, np.minimum(np.minimum(tail, 1.0), width), 0.0)
    w = np.where((index == last[:, None]) & (index >= first[:, None]), at_end[:, None], w)
    return np.clip(index, 0, size - 1), (w / width[:, None]).astype(np.float32)


def _area_up(x: Array, oh: int, ow: int) -> Array:
    """Compute the taps of AREA that enlarges an axis: linear between cells instead of pixel centres."""
    # The last column stands alone; the last row is blended with itself, which costs uint8 a fraction.
    rows, cols = _area_up_taps(x.shape[1], oh, False), _area_up_taps(x.shape[2], ow, True)
    if x.dtype == np.float32:
        return blend(blend(x, cols, 2), rows, 1)
    wide = blend(x, _fixed(cols), 2) >> 4
    index, w = _fixed(rows)
    # Rows of 15 bits are weighed against each other, each product cut to 16 bits.
    parts = [(wide.take(index[:, i], 1) * w[:, i].reshape(1, -1, 1, 1)) >> 16 for i in (0, 1)]
    return np.clip((parts[0] + parts[1] + 2) >> 2, 0, 255).astype(np.uint8)


def _area_up_taps(size: int, out: int, stop: bool) -> Axis:
    inverse = out / size
    scale = 1.0 / inverse
    index = np.arange(out)
    left = np.floor(index * scale).astype(np.int64)
    alpha = ((index + 1) - (left + 1) * inverse).astype(np.float32)
    alpha = np.where(alpha <= 0, np.float32(0), alpha - np.floor(alpha))
    if stop:
        alpha[left >= size - 1] = 0
    left = np.clip(left, 0, size - 1)
    taps = np.stack((left, np.minimum(left + 1, size - 1)), -1)
    return taps, np.stack((np.float32(1) - alpha, alpha), -1)


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
