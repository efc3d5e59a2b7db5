"""Floating-point types of 8 and 4 bits: the numbers that their codes encode. Tensors of them are stored in float32."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from ..graph.dtypes import Array

__all__ = ["E8M0", "FLOAT4", "SMALL_FLOATS", "FloatFormat", "decoded"]


class FloatFormat(NamedTuple):
    """The bit layout of a type.

    Attributes:
        exponent: how many bits the exponent has.
        mantissa: how many the mantissa has.
        bias: the exponent's code minus the exponent.
        infinite: whether it has infinities.
        signed_zero: whether it has a negative zero; where not, its code is the one NaN.
        largest: the largest number.
    """

    exponent: int
    mantissa: int
    bias: int
    infinite: bool
    signed_zero: bool
    largest: float

    @property
    def least(self) -> float:
        """The distance of the smallest numbers."""
        return 2.0 ** (1 - self.bias - self.mantissa)


FLOAT4, E8M0 = 23, 24
SMALL_FLOATS: dict[int, FloatFormat] = {
    17: FloatFormat(4, 3, 7, False, True, 448.0),
    18: FloatFormat(4, 3, 8, False, False, 240.0),
    19: FloatFormat(5, 2, 15, True, True, 57344.0),
    20: FloatFormat(5, 2, 16, False, False, 57344.0),
    FLOAT4: FloatFormat(2, 1, 1, False, True, 6.0),
}
"""By ONNX's number of the type: float8e4m3fn, float8e4m3fnuz, float8e5m2, float8e5m2fnuz, float4e2m1."""


@cache
def _table(kind: int) -> Array:
    if kind == E8M0:
        powers = np.ldexp(np.float32(1), np.arange(255) - 127).astype(np.float32)
        return np.append(powers, np.float32(np.nan))
    layout = SMALL_FLOATS[kind]
    bits = layout.exponent + layout.mantissa
    codes = np.arange(1 << bits)
    power, rest = codes >> layout.mantissa, codes & ((1 << layout.mantissa) - 1)
    whole = np.where(power > 0, rest + (1 << layout.mantissa), rest)
    found = np.ldexp(whole.astype(np.float32), np.maximum(power, 1) - layout.bias - layout.mantissa)
    found[found > layout.largest] = np.nan
    if layout.infinite:
        found[(power == (1 << layout.exponent) - 1) & (rest == 0)] = np.inf
    both = np.concatenate([found, -found])
    if not layout.signed_zero:
        both[1 << bits] = np.nan
    return both.astype(np.float32)


def decoded(codes: Array, kind: int) -> Array:
    """Decode codes to float32 numbers."""
    return _table(kind)[codes]
