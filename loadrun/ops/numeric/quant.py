"""Quantizing and dequantizing, shared by all kernels with quantized inputs or outputs.

A quantized type stands for ``real = (stored - zero_point) * scale``. MegEngine divides by the scale, rounds half
away from zero, adds the zero point and saturates; its x86 kernels for 8-bit and 32-bit types multiply by the
float32 reciprocal of the scale instead of dividing, and so does this module. The low-bit types and
QuantizedS16 divide.
"""

from __future__ import annotations

import numpy as np

from ...dtypes import Array, DType
from .chunks import filled, in_chunks

__all__ = ["HIGHEST", "LOWEST", "dequantize", "quantize", "requantize", "round_away", "saturate"]

_F = np.float32
# The float32 just below one half: added to a value it rounds exactly as C's roundf does, also for
# 0.49999997 and for values that have no fraction bits left.
_HALF_BITS = np.nextafter(_F(0.5), _F(0)).view(np.uint32)
_SIGN = np.uint32(0x80000000)
LOWEST, HIGHEST = -(2**31), 2**31 - 1
_DIVIDED = ("QuantizedS16", "QuantizedS4", "Quantized4Asymm", "QuantizedS1")


def round_away(x: Array, out: Array | None = None) -> Array:
    """Round float values to whole numbers, halves away from zero (C's ``round``); `out` may be `x`.

    >>> round_away(np.array([0.5, -0.5, 1.5, -2.5, 0.49999997], "f4")).tolist()
    [1.0, -1.0, 2.0, -3.0, 0.0]
    """
    if x.dtype == np.float32:
        # Bit operations, since numpy's copysign is many times slower.
        bits = x.view(np.uint32) & _SIGN
        bits |= _HALF_BITS
        signed = bits.view(np.float32)
    else:
        signed = np.copysign(np.nextafter(x.dtype.type(0.5), x.dtype.type(0)), x)
    signed += x
    return np.trunc(signed, out=signed if out is None else out)


def saturate(x: Array, dtype: DType, out: Array | None = None) -> Array:
    """Whole float32 numbers as stored values of a quantized type: clamped to its range, NaN to the lowest.

    `out` may be `x` and serves as working memory.

    >>> saturate(np.array([300.0, -7.0, np.nan], "f4"), DType("Quantized8Asymm", 0.1, 3)).tolist()
    [255, 0, 0]
    """
    low, high = dtype.range
    if dtype.name == "QuantizedS32":
        high = 2147483520  # the largest float32 below 2^31
    x = np.fmax(x, filled(low, x), out=out)
    np.minimum(x, filled(high, x), out=x)
    return x.astype(dtype.np)


def quantize(x: Array, dtype: DType, divide: bool = False, overflow: int | None = None) -> Array:
    """Real numbers as stored values of a quantized type.

    Args:
        x: float32 values of any shape (other dtypes are converted); not changed.
        dtype: a quantized type.
        divide: divide by the scale in any case, as MegEngine's plain (naive) kernels do.
        overflow: what QuantizedS32 values that are too large become, default 2147483520.

    Returns:
        an array of the type's storage dtype.

    >>> quantize(np.array([0.35, -1.0, 100.0], "f4"), DType("QuantizedS8", 0.1)).tolist()
    [4, -10, 127]
    >>> quantize(np.array([0.25, -9.0], "f4"), DType("Quantized8Asymm", 0.5, 10)).tolist()
    [11, 0]
    """
    x = np.asarray(x, np.float32)
    scale = _F(dtype.scale)
    divided = divide or dtype.name in _DIVIDED
    factor = scale if divided else _F(1) / scale

    def piece(out: Array, x: Array) -> None:
        v = np.asarray(x / factor if divided else x * factor)
        out[...] = _finish(v, dtype, overflow)

    result = np.empty(x.shape, dtype.np)
    in_chunks(piece, result, [x], True)
    return result


def _finish(v: Array, dtype: DType, overflow: int | None) -> Array:
    """Round, shift by the zero point and saturate scaled values; overwrites `v`."""
    round_away(v, out=v)
    if overflow is not None and dtype.name == "QuantizedS32":
        large = v >= _F(2**31)
        stored = saturate(v, dtype, out=v)
        stored[large] = overflow
        return stored
    if dtype.zero_point:
        v += _F(dtype.zero_point)
    return saturate(v, dtype, out=v)


def dequantize(x: Array, dtype: DType, out: Array | None = None) -> Array:
    """Stored values of a quantized type as float32 real numbers.

    >>> dequantize(np.array([130, 0], "u1"), DType("Quantized8Asymm", 0.5, 128)).tolist()
    [1.0, -64.0]
    """
    if out is None:
        v = x.astype(np.float32)
    else:
        v = out
        np.copyto(v, x, casting="unsafe")
    if dtype.zero_point:
        v -= _F(dtype.zero_point)
    v *= _F(dtype.scale)
    return v


def requantize(x: Array, source: DType, target: DType) -> Array:
    """Stored values of one quantized type as stored values of another.

    The 8-bit and 32-bit types are scaled once, as MegEngine's x86 kernels do: by the float32 quotient of both
    scales, or from and between asymmetric types by the product with the reciprocal. The others go through the
    real value.

    >>> requantize(np.array([5, -5, 1000], "i4"), DType("QuantizedS32", 0.1), DType("QuantizedS8", 0.2)).tolist()
    [3, -3, 127]
    """
    if source.name in _DIVIDED or target.name in _DIVIDED:
        return quantize(dequantize(x, source), target)
    if source.is_asymmetric or (source.name == "QuantizedS8" and target.is_asymmetric):
        factor = _F(source.scale) * (_F(1) / _F(target.scale))
    else:
        factor = _F(source.scale) / _F(target.scale)

    def piece(out: Array, x: Array) -> None:
        v = x.astype(np.float32)
        if source.zero_point:
            v -= _F(source.zero_point)
        v *= factor
        out[...] = _finish(v, target, LOWEST)

    result = np.empty(x.shape, target.np)
    in_chunks(piece, result, [x], True)
    return result
