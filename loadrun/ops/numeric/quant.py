"""Quantizing and dequantizing, shared by all kernels with quantized inputs or outputs.

A quantized type stands for ``real = (stored - zero_point) * scale``. MegEngine divides by the scale, rounds half
away from zero, adds the zero point and saturates; its x86 kernels for 8-bit and 32-bit types multiply by the
float32 reciprocal of the scale instead of dividing, and so does this module. The low-bit types and
QuantizedS16 divide.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from ...graph.dtypes import Array, DType
from .special import PIECE, filled, in_chunks

_F = np.float32
# The float32 just below one half: added to a value it rounds exactly as C's roundf does, also for
# 0.49999997 and for values that have no fraction bits left.
_HALF_BITS = np.nextafter(_F(0.5), _F(0)).view(np.uint32)
# One half itself: what MegEngine's vector code of convolutions adds, though 0.49999997 becomes 1 by it.
_PLAIN_HALF_BITS = _F(0.5).view(np.uint32)
_SIGN = np.asarray(0x80000000, np.uint32)
LOWEST, HIGHEST = -(2**31), 2**31 - 1
_DIVIDED = ("QuantizedS16", "QuantizedS4", "Quantized4Asymm", "QuantizedS1")


def round_away(x: Array, out: Array | None = None) -> Array:
    """Round float values to integers, halves away from zero (C's ``round``); `out` may be `x`.

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
    """Convert whole float32 numbers to stored values of a quantized type: clamped to its range, NaN to the lowest.

    `out` may be `x` and serves as working memory.

    >>> saturate(np.array([300.0, -7.0, np.nan], "f4"), DType("Quantized8Asymm", 0.1, 3)).tolist()
    [255, 0, 0]
    """
    low, high = dtype.range
    if dtype.name == "QuantizedS32":
        high = 2147483520  # The largest float32 below 2^31.
    x = np.fmax(x, filled(low, x), out=out)
    np.minimum(x, filled(high, x), out=x)
    return x.astype(dtype.np)


class Quantizer:
    """Scales, rounds and clamps float32 values, with everything decided in advance; the cast is left to the caller.

    Args:
        target: the quantized type; what is too large for QuantizedS32 becomes 2147483520.
        factor: what values are multiplied with, or divided by if `divide`.
        half: whether exact halves are rounded (True), or 0.5 is added as it is.
        positive: whether negative values are to become 0, as they do after a RELU.
        shape: the shape of the values, where it is known.

    >>> q = Quantizer(DType("QuantizedS8", 0.1), 10.0)
    >>> q.settle(np.array([0.35, -1.0, 100.0], "f4")).astype("i1").tolist()
    [4, -10, 127]
    """

    def __init__(
        self,
        target: DType,
        factor: float,
        divide: bool = False,
        exact: bool = True,
        positive: bool = False,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        low, high = target.range
        zero = target.zero_point
        self._scaled = np.divide if divide else np.multiply
        self._factor = np.asarray(factor, np.float32)
        # Arrays without axes: numpy converts a number again in every call.
        self._bits = np.asarray(_HALF_BITS if exact else _PLAIN_HALF_BITS)
        self._half = self._bits.view(np.float32)
        self._positive = positive
        self._zero = np.asarray(zero, np.float32) if zero else None
        self._limits = max(low, zero) if positive else low, min(high, 2147483520)
        self._low: Array | None = None
        if shape is not None:
            self._low, self._high = (np.full(shape, n, np.float32) for n in self._limits)

    def scaled(self, x: Array) -> Array:
        """Return the settled values of `x`, which stays as it is."""
        return self._settled(self._scaled(x, self._factor))

    def settle(self, x: Array) -> Array:
        """Change `x` to numbers whose whole part is the stored value, NaN to the lowest."""
        return self._settled(self._scaled(x, self._factor, x))

    def _settled(self, x: Array) -> Array:
        if self._positive:
            np.add(x, self._half, x)
        else:
            bits = np.bitwise_and(x.view(np.uint32), _SIGN)
            np.bitwise_or(bits, self._bits, bits)
            np.add(x, bits.view(np.float32), x)
        if self._zero is not None:
            np.trunc(x, x)
            np.add(x, self._zero, x)
        if self._low is None:
            low, high = (filled(n, x) for n in self._limits)
        else:
            low, high = self._low, self._high
        np.fmax(x, low, x)
        # The cast cuts off the fraction.
        return np.minimum(x, high, out=x)


def quantize(x: Array, dtype: DType, divide: bool = False, overflow: int | None = None) -> Array:
    """Convert real numbers to stored values of a quantized type.

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


def dequantize(x: Array, dtype: DType) -> Array:
    """Convert stored values of a quantized type to float32 real numbers.

    >>> dequantize(np.array([130, 0], "u1"), DType("Quantized8Asymm", 0.5, 128)).tolist()
    [1.0, -64.0]
    """
    return reals(dtype)(x)


def reals(dtype: DType) -> Callable[[Array], Array]:
    """Return a function from stored values of a quantized type to float32 real numbers in new memory.

    >>> reals(DType("Quantized8Asymm", 0.5, 128))(np.array([130, 0], "u1")).tolist()
    [1.0, -64.0]
    """
    scale, zero = np.asarray(dtype.scale, np.float32), np.asarray(dtype.zero_point, np.float32)

    def plain(x: Array) -> Array:
        v = x.astype(np.float32)
        return np.multiply(v, scale, v)

    def shifted(x: Array) -> Array:
        v = x.astype(np.float32)
        np.subtract(v, zero, v)
        return np.multiply(v, scale, v)

    return shifted if dtype.zero_point else plain


def quantizer(shape: tuple[int, ...], dtype: DType, divide: bool = False) -> Callable[[Array], Array] | None:
    """Return `quantize` for float32 values of a shape; None for types and sizes for which that saves nothing."""
    if dtype.name == "QuantizedS32" or not 0 < prod(shape) <= PIECE:
        return None
    divided = divide or dtype.name in _DIVIDED
    scale = _F(dtype.scale)
    converter = Quantizer(dtype, float(scale if divided else _F(1) / scale), divided, shape=shape)
    kind = dtype.np
    return lambda x: converter.scaled(x).astype(kind)


def requantizer(shape: tuple[int, ...], source: DType, target: DType) -> Callable[[Array], Array] | None:
    """Return `requantize` for values of a shape; None for types and sizes for which that saves nothing."""
    if target.name == "QuantizedS32" or not 0 < prod(shape) <= PIECE:
        return None
    if source.name in _DIVIDED or target.name in _DIVIDED:
        return None
    converter = Quantizer(target, float(_quotient(source, target)), shape=shape)
    zero = np.asarray(source.zero_point, np.float32) if source.zero_point else None
    kind = target.np

    def apply(x: Array) -> Array:
        v = x.astype(np.float32)
        if zero is not None:
            np.subtract(v, zero, v)
        return converter.settle(v).astype(kind)

    return apply


def _quotient(source: DType, target: DType) -> np.float32:
    """Return the factor by which `requantize` multiplies 8-bit and 32-bit values."""
    if source.is_asymmetric or (source.name == "QuantizedS8" and target.is_asymmetric):
        return _F(source.scale) * (_F(1) / _F(target.scale))
    return _F(source.scale) / _F(target.scale)


def requantize(x: Array, source: DType, target: DType) -> Array:
    """Convert stored values of one quantized type to those of another.

    The 8-bit and 32-bit types are scaled once, as MegEngine's x86 kernels do: by the float32 quotient of both
    scales, or from and between asymmetric types by the product with the reciprocal. The others go through the
    real value.

    >>> requantize(np.array([5, -5, 1000], "i4"), DType("QuantizedS32", 0.1), DType("QuantizedS8", 0.2)).tolist()
    [3, -3, 127]
    """
    if source.name in _DIVIDED or target.name in _DIVIDED:
        return quantize(dequantize(x, source), target)
    factor = _quotient(source, target)

    def piece(out: Array, x: Array) -> None:
        v = x.astype(np.float32)
        if source.zero_point:
            v -= _F(source.zero_point)
        v *= factor
        out[...] = _finish(v, target, LOWEST)

    result = np.empty(x.shape, target.np)
    in_chunks(piece, result, [x], True)
    return result
