"""Warping of one image: at positions rounded to 1/32 pixel, and bilinear at float positions."""

from __future__ import annotations

from functools import cache

import numpy as np

from ...graph.dtypes import Array
from ...graph.params import BorderMode, InterpolationMode
from .sampling import blend, border_index, cubic_weights, lanczos_weights, to_integer

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


def _neighbours(
    position: Array, size: int, mode: BorderMode, *, whole: bool = False
) -> tuple[Array, Array, Array]:
    """Return both pixels around every position, and how far it is from the first, or from its number if `whole`.

    The two differ where the position is beyond int32.
    """
    low = np.floor(position)
    number = to_integer(low)
    first = border_index(number, size, mode)
    second = border_index(to_integer(low + np.float32(1)), size, mode)
    return first, second, position - (number.astype(np.float32) if whole else low)


def bilinear_grid(x: Array, rows: Array, cols: Array, mode: BorderMode, border: float) -> Array:
    """Sample at the crossings of rows and columns, columns first.

    Args:
        x: (groups, H, W, packed channels).
        rows: float32 positions on the H axis.
        cols: float32 positions on the W axis.
        mode: what is outside the image.
        border: the value there in CONSTANT mode, which also replaces results that are not finite.

    Returns:
        float32 (groups, rows, cols, packed channels).
    """
    one = np.float32(1)
    fill = np.float32(border) if mode == BorderMode.CONSTANT else None
    r0, r1, rf = _neighbours(rows, x.shape[1], mode)
    c0, c1, cf = _neighbours(cols, x.shape[2], mode)
    used, where = np.unique(np.maximum(np.concatenate((r0, r1)), 0), return_inverse=True)
    where = np.where(np.concatenate((r0, r1)) < 0, -1, where.reshape(-1))
    if len(used) < x.shape[1]:
        x = x.take(used, 1)
    else:
        where = np.concatenate((r0, r1))
    col_axis = np.stack((c0, c1), -1), np.stack((one - cf, cf), -1)
    row_axis = where.reshape(2, -1).T, np.stack((one - rf, rf), -1)
    out = blend(blend(x, col_axis, 2, fill), row_axis, 1, fill)
    return out if fill is None else _finite(out, fill)


def bilinear_points(
    x: Array, rows: Array, cols: Array, mode: BorderMode, border: float, *, finite: bool = True
) -> Array:
    """Sample at points.

    Args:
        x: (groups, H, W, packed channels).
        rows: float32 (oh, ow), position on the H axis.
        cols: float32 (oh, ow), position on the W axis.
        mode: what is outside the image.
        border: the value there in CONSTANT mode.
        finite: whether the border value replaces results that are not finite in CONSTANT mode, and positions beyond
            int32 are as far from their pixels as others, as in warps; in Remap, neither is so.

    Returns:
        float32 (groups, oh, ow, packed channels).
    """
    g, h, w, k = x.shape
    one = np.float32(1)
    r0, r1, v = _neighbours(rows.reshape(-1), h, mode, whole=not finite)
    c0, c1, u = _neighbours(cols.reshape(-1), w, mode, whole=not finite)
    fill = np.float32(border) if mode == BorderMode.CONSTANT else None
    flat = x.reshape(g, h * w, k)
    out: Array | None = None
    for r, c, a, b in (
        (r0, c0, one - u, one - v),
        (r0, c1, u, one - v),
        (r1, c0, one - u, v),
        (r1, c1, u, v),
    ):
        part = flat.take(np.maximum(r, 0) * w + np.maximum(c, 0), 1).astype(np.float32, copy=False)
        if fill is not None:
            part[:, np.flatnonzero((r < 0) | (c < 0))] = fill
        if x.dtype != np.float32:
            # The order of the products decides how exact halves are rounded.
            part *= a[:, None]
            part *= b[:, None]
        else:
            part *= (a * b)[:, None]
        out = part if out is None else np.add(out, part, out=out)
    assert out is not None
    out = out.reshape(g, *rows.shape, k)
    return out if fill is None or not finite else _finite(out, fill)


def _finite(x: Array, border: np.float32) -> Array:
    good = np.isfinite(x)
    return x if good.all() else np.where(good, x, border)
