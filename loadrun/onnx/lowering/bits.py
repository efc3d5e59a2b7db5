"""The bits of float32 numbers as integers and back, by arithmetic operators alone."""

from __future__ import annotations

from math import log

import numpy as np

from ...build import emit as e
from ...graph import params as P
from ...tensors import Tensor, const
from . import M, cast, const_like
from .small_floats import power_above

__all__ = ["bits_of", "float_of"]

_LT, _LEQ, _EQ = P.ElemwiseMultiTypeMode.LT, P.ElemwiseMultiTypeMode.LEQ, P.ElemwiseMultiTypeMode.EQ
_INFINITE, _NAN = 0x7F800000, 0x7FC00000


def bits_of(x: Tensor) -> Tensor:
    """Return the bits of float32 numbers as int32; every NaN has the same bits."""
    zero, one = const_like(0, x), const_like(1, x)
    size = e.elem(M.ABS, x)
    # Powers of two are found below 2^100; the smallest numbers are multiples of 2^-149.
    large = e.compare(_LEQ, one, size)
    scaled = e.where(large, e.elem(M.MUL, size, const_like(2.0**-30, x)), size)
    least = e.compare(_LT, size, const_like(2.0**-126, x))
    scaled = e.where(least, one, scaled)
    power = power_above(scaled)
    power = e.where(e.compare(_LT, scaled, power), e.elem(M.MUL, power, const_like(0.5, x)), power)
    exponent = e.rint(e.elem(M.MUL, e.elem(M.LOG, power), const_like(1 / log(2), x)))
    exponent = e.elem(M.ADD, exponent, e.where(large, const_like(157, x), const_like(127, x)))
    rest = e.elem(M.MUL, e.elem(M.SUB, e.elem(M.TRUE_DIV, scaled, power), one), const_like(2.0**23, x))
    finite = e.compare(_LT, size, const_like(np.inf, x))
    usual = e.elem(
        M.ADD,
        e.elem(M.MUL, cast(e.where(finite, exponent, zero), "int32"), const(np.int32(1 << 23))),
        cast(e.where(finite, rest, zero), "int32"),
    )
    small = e.elem(
        M.MUL, e.elem(M.MUL, e.where(least, size, zero), const_like(2.0**75, x)), const_like(2.0**74, x)
    )
    bits = e.where(least, cast(small, "int32"), usual)
    bits = e.where(e.compare(_EQ, size, const_like(np.inf, x)), const_like(_INFINITE, bits), bits)
    bits = e.where(e.is_nan(x), const_like(_NAN, bits), bits)
    # The sign of zero shows in what it divides.
    negative = e.compare(_LT, e.where(e.compare(_EQ, x, zero), e.elem(M.TRUE_DIV, one, x), x), zero)
    sign = e.where(negative, const_like(-(2**31), bits), const_like(0, bits))
    return e.elem(M.ADD, bits, sign)


def float_of(bits: Tensor) -> Tensor:
    """Build float32 numbers from their bits as int32."""
    zero = const_like(0, bits)
    negative = e.compare(_LT, bits, zero)
    size = e.elem(M.ADD, bits, e.where(negative, const_like(-(2**31), bits), zero))
    exponent = e.elem(M.SHR, size, const_like(23, bits))
    rest = cast(e.elem(M.SUB, size, e.elem(M.SHL, exponent, const_like(23, bits))), "float32")
    with np.errstate(over="ignore"):
        powers = np.ldexp(np.float32(1), np.maximum(np.arange(256), 1) - 150)
    whole = e.where(e.compare(_EQ, exponent, zero), zero, const_like(1 << 23, bits))
    mantissa = e.elem(M.ADD, rest, cast(whole, "float32"))
    floats = e.elem(M.MUL, mantissa, e.gather(const(powers.astype(np.float32)), [(0, exponent)]))
    special = e.compare(_EQ, exponent, const_like(255, bits))
    nothing = e.compare(_EQ, rest, const_like(0, rest))
    beyond = e.where(nothing, const_like(np.inf, floats), const_like(np.nan, floats))
    floats = e.where(special, beyond, floats)
    return e.elem(M.MUL, floats, e.where(negative, const_like(-1, floats), const_like(1, floats)))
