"""Colour conversions of NHWC images (MegEngine dnn cvt_color)."""

from __future__ import annotations

import numpy as np

from ...graph.dtypes import Array
from ...graph.params import CvtColorMode
from ..registry import Shape

_M = CvtColorMode
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


def converted_shape(shape: Shape, mode: CvtColorMode) -> Shape:
    """Return the shape of the converted image.

    Raises:
        ValueError: the mode takes another number of channels, or planes that the size does not hold.

    >>> converted_shape((1, 6, 8, 1), CvtColorMode.BT601_YUV2RGB_NV12)
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


def convert_color(x: Array, mode: CvtColorMode) -> Array:
    """Convert an NHWC image, float32 or uint8; uint8 in fixed point of 14 bits (planar modes: 8 or 6).

    YUV2RGB_NV21 and the other planar modes without BT601 in their name are full-range JPEG colours.

    Raises:
        ValueError: a shape that the mode does not take, or float planes.

    >>> convert_color(np.uint8([255, 0, 0, 1, 2, 3]).reshape(1, 1, 2, 3), CvtColorMode.RGB2GRAY).ravel().tolist()
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


def _chroma(x: Array, mode: CvtColorMode, h: int) -> tuple[Array, Array]:
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


def _from_planes(x: Array, mode: CvtColorMode, shape: Shape) -> Array:
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
