"""Resizing NHWC images of 1 or 3 channels as MegEngine's x86 kernel does, which derives from OpenCV.

Unlike OpenCV, LINEAR and AREA cut off the fraction of a uint8 result instead of rounding it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...graph.dtypes import Array
from ...graph.params import InterpolationMode
from .sampling import Axis, blend, cubic_weights, lanczos_weights

_BITS = 11
_ONE = 1 << _BITS


def resize_cv(x: Array, oh: int, ow: int, mode: InterpolationMode) -> Array:
    """Resize (N, H, W, C) float32 or uint8 images to (N, oh, ow, C).

    >>> resize_cv(np.uint8([0, 9, 20, 27]).reshape(1, 2, 2, 1), 1, 1, InterpolationMode.AREA).item()
    14
    """
    ih, iw = x.shape[1:3]
    if mode == InterpolationMode.NEAREST:
        return x[:, _nearest(ih, oh)][:, :, _nearest(iw, ow)]
    if mode == InterpolationMode.LINEAR:
        return _linear(x, oh, ow)
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


def _nearest(size: int, out: int) -> Array:
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


def _linear(x: Array, oh: int, ow: int) -> Array:
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
