"""Common parts of image samplers: border rules, interpolation weights, rounding."""

from typing import Any

import numpy as np

from ...graph.dtypes import Array, DType
from ...graph.params import BorderMode
from ..numeric.special import round_half

Axis = tuple[Array, Array]
"""Source pixels and their weights for every output pixel of one axis, both (output size, taps)."""
_INT_MIN = -(2**31)
_EPSILON = np.float32(2.0**-23)
_PI = np.float64(np.pi)


def to_integer(x: Array) -> Array:
    """Convert float to int as x86 converts: toward zero, and -2^31 for NaN and what int32 cannot hold."""
    fits = (x >= _INT_MIN) & (x < 2.0**31)
    return np.where(fits, x, _INT_MIN).astype(np.int64)


def border_index(p: Array, size: int, mode: BorderMode) -> Array:
    """Return the pixel that stands for position `p` of a row of `size` pixels, -1 where it is the border value.

    REFLECT is ``fedcba|abcdef|fedcba``, REFLECT_101 ``gfedcb|abcdef|edcba`` (MegEngine's `get_real_coord`).

    >>> border_index(np.arange(-3, 6), 3, BorderMode.REFLECT).tolist()
    [2, 1, 0, 0, 1, 2, 2, 1, 0]
    >>> border_index(np.arange(-3, 6), 3, BorderMode.REFLECT_101).tolist()
    [1, 2, 1, 0, 1, 2, 1, 0, 1]
    """
    if mode == BorderMode.REPLICATE:
        return np.clip(p, 0, size - 1)
    if mode == BorderMode.WRAP:
        return p % size
    if mode == BorderMode.REFLECT:
        q = p % (2 * size)
        return np.minimum(q, 2 * size - 1 - q)
    if mode == BorderMode.REFLECT_101:
        period = max(2 * size - 2, 1)
        q = p % period
        return np.minimum(q, period - q)
    if mode == BorderMode.CONSTANT:
        return np.where((p >= 0) & (p < size), p, -1)
    raise ValueError(f"border mode {mode.name} is not supported")


def round_half_away(x: Array) -> Array:
    """Round to the nearest integer, halves away from zero, in the array's own precision."""
    whole = np.trunc(x)
    return whole + np.copysign(np.abs(x - whole) >= 0.5, x)


def cubic_weights(x: Array) -> Array:
    """Compute the four weights of cubic interpolation (A = -0.75) at fractions `x`, on a new last axis.

    >>> cubic_weights(np.float32([0.5])).tolist()
    [[-0.09375, 0.59375, 0.59375, -0.09375]]
    """
    a, one = np.float32(-0.75), np.float32(1)
    x = x.astype(np.float32)
    y, z = x + one, one - x
    w0 = ((a * y - 5 * a) * y + 8 * a) * y - 4 * a
    w1 = ((a + 2) * x - (a + 3)) * x * x + one
    w2 = ((a + 2) * z - (a + 3)) * z * z + one
    return np.stack((w0, w1, w2, one - w0 - w1 - w2), -1).astype(np.float32, copy=False)


def lanczos_weights(x: Array, pi: np.floating[Any] = _PI) -> Array:
    """Compute the eight weights of Lanczos interpolation at fractions `x`, on a new last axis, float32.

    Angles are computed in the precision of `pi`: warps take double, resizing takes float.
    """
    s = np.sqrt(0.5)
    sines = np.array([1, -s, 0, s, -1, s, 0, -s])
    cosines = np.array([0, -s, 1, -s, 0, s, -1, s])
    x = x.astype(np.float32)[..., None]
    offset = x + np.float32(3) - np.arange(8, dtype=np.float32)
    y = (offset.astype(pi.dtype) * pi).astype(np.float64) * -0.25
    first = y[..., :1]
    exact = x[..., 0] < _EPSILON
    y[exact] = 1
    w = ((sines * np.sin(first) + cosines * np.cos(first)) / (y * y)).astype(np.float32)
    w *= np.float32(1) / np.cumsum(w, -1, dtype=np.float32)[..., -1:]
    w[exact] = np.eye(8, dtype=np.float32)[3]
    return w


def blend(x: Array, axis: Axis, at: int, fill: np.float32 | None = None) -> Array:
    """Sum weighted pixels along axis `at`, tap by tap in the weights' arithmetic.

    Index -1 stands for a pixel of value `fill` where that is given.

    >>> taps, weights = np.array([[0, 1], [1, 2]]), np.float32([[0.5, 0.5], [1, 0]])
    >>> blend(np.float32([[2, 4, 8]]), (taps, weights), 1).tolist()
    [[3.0, 4.0]]
    """
    index, weight = axis
    shape = [1] * x.ndim
    shape[at] = -1
    out: Array | None = None
    for k in range(index.shape[1]):
        part = x.take(index[:, k], at).astype(weight.dtype, copy=False)
        if fill is not None:
            part[(slice(None),) * at + (np.flatnonzero(index[:, k] < 0),)] = fill
        part *= weight[:, k].reshape(shape)
        out = part if out is None else np.add(out, part, out=out)
    assert out is not None
    return out


def store(x: Array, dtype: DType) -> Array:
    """Convert float32 results to the dtype's storage.

    Integers round halves away from zero. Int8 keeps the low byte of what does not fit, as MegEngine on x86
    does, the others saturate.
    """
    if dtype.is_float:
        return round_half(x) if dtype.name == "Float16" else x
    if dtype.np == np.int8 and dtype.bits == 8:
        return round_half_away(x).astype(np.int32).astype(np.int8)
    low, high = dtype.range if dtype.is_quantized else (0, 255)
    # fmax and fmin turn NaN into the lower bound.
    return round_half_away(np.fmin(np.fmax(x, low), high)).astype(dtype.np)
