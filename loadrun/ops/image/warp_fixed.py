"""Warping of NHWC images at positions rounded to 1/32 pixel, as MegEngine's x86 kernels (from OpenCV)."""

from __future__ import annotations

from functools import cache

import numpy as np

from ...graph.dtypes import Array
from ...graph.params import BorderMode, InterpolationMode
from .sampling import border_index, cubic_weights, lanczos_weights

_BITS = 5
_SIZE = 1 << _BITS
_COEF_BITS = 15
_AFFINE_BITS = 10
_INT = np.iinfo(np.int32)

Positions = tuple[Array, Array, Array, Array]
"""Columns and rows of pixels and their fractions in 1/32 pixel (zero for NEAREST)."""


def _short(x: Array) -> Array:
    return np.clip(x, -(2**15), 2**15 - 1)


def _int32(x: Array) -> Array:
    """Round to int32, halves to even; what does not fit becomes -2^31, as x86 converts."""
    r = np.rint(x)
    return np.where((r >= _INT.min) & (r <= _INT.max), r, _INT.min).astype(np.int64)


def _wrap(x: Array) -> Array:
    return x.astype(np.int32).astype(np.int64)


def perspective_positions(m: Array, oh: int, ow: int, mode: InterpolationMode) -> Positions:
    """Compute where a 3x3 matrix (9 floats) takes every output pixel, in double precision."""
    t = m.astype(np.float64)
    w, h = np.arange(ow, dtype=np.float64), np.arange(oh, dtype=np.float64)[:, None]
    below = t[6] * w + (t[7] * h + t[8])
    near = mode == InterpolationMode.NEAREST
    scale = np.divide(1 if near else _SIZE, below, out=np.zeros_like(below), where=below != 0)

    def to_int(above: Array) -> Array:
        v = above * scale
        return np.rint(np.clip(np.where(np.isnan(v), _INT.max, v), _INT.min, _INT.max)).astype(np.int64)

    x = to_int((t[1] * h + t[2]) + t[0] * w)
    y = to_int((t[4] * h + t[5]) + t[3] * w)
    return _parts(x, y, near)


def affine_positions(m: Array, oh: int, ow: int, mode: InterpolationMode) -> Positions:
    """Compute where a 2x3 matrix (6 floats) takes every output pixel, in fixed point of 10 bits."""
    t = m.astype(np.float64)
    w, h = np.arange(ow, dtype=np.float64), np.arange(oh, dtype=np.float64)[:, None]
    one = 1 << _AFFINE_BITS
    near = mode == InterpolationMode.NEAREST
    half = one // 2 if near else one // _SIZE // 2
    x = _wrap(_int32((t[1] * h + t[2]) * one) + half + _int32(t[0] * w * one))
    y = _wrap(_int32((t[4] * h + t[5]) * one) + half + _int32(t[3] * w * one))
    shift = _AFFINE_BITS if near else _AFFINE_BITS - _BITS
    return _parts(x >> shift, y >> shift, near)


def _parts(x: Array, y: Array, near: bool) -> Positions:
    if near:
        return _short(x), _short(y), np.zeros_like(x), np.zeros_like(y)
    return _short(x >> _BITS), _short(y >> _BITS), x & (_SIZE - 1), y & (_SIZE - 1)


@cache
def _table(mode: InterpolationMode) -> Array:
    """Return the float weights of all fractions, (32, 32, taps, taps) for (row, column)."""
    x = np.arange(_SIZE, dtype=np.float32) * np.float32(1 / _SIZE)
    if mode == InterpolationMode.LINEAR:
        w = np.stack((np.float32(1) - x, x), -1)
    else:
        w = cubic_weights(x) if mode == InterpolationMode.CUBIC else lanczos_weights(x)
    return w[:, None, :, None] * w[None, :, None, :]


@cache
def _integer_table(mode: InterpolationMode) -> Array:
    """Return the weights in 1/2^15, with the rounding error of their sum moved to one of the four middle weights."""
    one = 1 << _COEF_BITS
    w = _short(np.rint(_table(mode) * np.float32(one))).astype(np.int32)
    k = w.shape[-1]
    if k == 2:
        # All sums are exact but that of the whole pixel, whose weight 2^15 is no int16: 2^15 - 1 gives the same.
        return w
    error = w.sum((2, 3)) - one
    middle = w[:, :, k // 2 : k // 2 + 2, k // 2 : k // 2 + 2].reshape(_SIZE, _SIZE, 4)
    at = np.where(error < 0, middle.argmax(-1), middle.argmin(-1))
    i, j = np.indices((_SIZE, _SIZE))
    w[i, j, k // 2 + at // 2, k // 2 + at % 2] -= error
    return w


def remap_fixed(
    x: Array,
    cols: Array,
    rows: Array,
    col_parts: Array,
    row_parts: Array,
    mode: InterpolationMode,
    border: BorderMode,
    value: float,
) -> Array:
    """Sample one (H, W, C) float32 or uint8 image at quantized positions.

    Args:
        x: the image.
        cols: column left of every output pixel, shape (oh, ow).
        rows: row above it.
        col_parts: distance from that column in 1/32 pixel.
        row_parts: distance from that row.
        mode: NEAREST, LINEAR, CUBIC or LANCZOS4.
        border: what is outside the image.
        value: the value there in CONSTANT mode.

    Returns:
        (oh, ow, C) of the image's dtype.
    """
    h, w, c = x.shape
    shape = cols.shape
    fill = np.asarray(np.float32(value)).astype(np.int64).astype(np.uint8) if x.dtype == np.uint8 else value
    flat = x.reshape(h * w, c)

    def pixels(r: Array, q: Array) -> Array:
        r, q = border_index(r, h, border).reshape(-1), border_index(q, w, border).reshape(-1)
        out = flat.take(np.maximum(r, 0) * w + np.maximum(q, 0), 0)
        if border == BorderMode.CONSTANT:
            out[np.flatnonzero((r < 0) | (q < 0))] = fill
        return out

    if mode == InterpolationMode.NEAREST:
        return pixels(rows, cols).reshape(*shape, c)
    whole = x.dtype == np.uint8
    weights = (_integer_table if whole else _table)(mode)
    k = weights.shape[-1]
    # One row of weights per output pixel, tap by tap to save memory.
    part = (row_parts * _SIZE + col_parts).reshape(-1)
    weights = weights.reshape(_SIZE * _SIZE, k, k)
    total = np.zeros((rows.size, c), weights.dtype)
    for i in range(k):
        for j in range(k):
            tap = pixels(rows + (i - k // 2 + 1), cols + (j - k // 2 + 1)).astype(weights.dtype, copy=False)
            total += tap * weights[part, i, j][:, None]
    if whole:
        total = np.clip((total + (1 << (_COEF_BITS - 1))) >> _COEF_BITS, 0, 255).astype(np.uint8)
    return total.reshape(*shape, c)
