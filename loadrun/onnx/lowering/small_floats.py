"""Rounding to floating-point numbers of 8 and 4 bits, which are stored in float32."""

from __future__ import annotations

import numpy as np

from ...build import emit as e
from ...graph import params as P
from ...tensors import Tensor
from ..call import NodeCall
from ..tensors import E8M0, FLOAT4, SMALL_FLOATS
from ..values import UnsupportedNodeError
from . import M, cast, const_like

__all__ = ["is_small_float", "power_above", "rounded_for", "to_small_float"]

_LT, _LEQ, _EQ = P.ElemwiseMultiTypeMode.LT, P.ElemwiseMultiTypeMode.LEQ, P.ElemwiseMultiTypeMode.EQ


def is_small_float(kind: int) -> bool:
    """Return whether a type is one of those of 8 and 4 bits."""
    return kind == E8M0 or kind in SMALL_FLOATS


def rounded_for(c: NodeCall, x: Tensor, kind: int) -> Tensor:
    """Round floats as Cast, CastLike and QuantizeLinear do."""
    return to_small_float(x, kind, c.flag("saturate", 1), c.text("round_mode", "up"))


def _rounded_off(x: Tensor, large: Tensor) -> Tensor:
    """Return (x + large) - large in float32 for numbers from 0 on: what of `x` the sum can hold.

    MegEngine would simplify that to `x`; an operator between the two keeps it from doing so.
    """
    total = e.elem(M.MAX, e.elem(M.ADD, large, x), const_like(0, x))
    return e.elem(M.SUB, total, large)


def power_above(x: Tensor) -> Tensor:
    """Return the smallest power of two that is no less than each number from 0 to 2^100 (S. M. Rump)."""
    q = e.elem(M.MUL, x, const_like(2.0**24, x))
    power = _rounded_off(x, q)
    return e.where(e.compare(_EQ, power, const_like(0, x)), x, power)


def to_small_float(x: Tensor, kind: int, saturate: bool, mode: str) -> Tensor:
    """Round numbers to those that a type has, halves to even.

    Args:
        x: the numbers.
        kind: ONNX's number of the type.
        saturate: whether too large values become the largest number.
        mode: how float8e8m0 rounds.
    """
    # Numbers of 64 bits are rounded to 32 first, as in ONNX Runtime.
    x = cast(x, "float32")
    if kind == E8M0:
        return _power(x, saturate, mode)
    layout = SMALL_FLOATS[kind]
    size = e.elem(M.ABS, x)
    # A bound beyond the range of all types, at which the sums below are still exact.
    near = e.elem(M.MIN, size, const_like(2.0**20, x))
    step = e.elem(M.MUL, power_above(near), const_like(2.0 ** (-1 - layout.mantissa), x))
    step = e.elem(M.MAX, step, const_like(layout.least, x))
    # Where numbers are a step apart, float32 itself rounds to them.
    there = e.elem(M.MUL, step, const_like(1.5 * 2.0**23, x))
    y = _rounded_off(near, there)
    most = const_like(layout.largest, x)
    beyond = most if saturate or kind == FLOAT4 else const_like(np.inf if layout.infinite else np.nan, x)
    y = e.where(e.compare(_LT, most, y), beyond, y)
    zero = const_like(0, x)
    if kind == FLOAT4:
        # It has no NaN.
        y = e.where(e.is_nan(x), zero, y)
    negative = e.compare(_LT, x, zero)
    if not layout.signed_zero:
        # What rounds to zero loses its sign.
        negative = e.elem(M.AND, negative, e.compare(_LT, zero, y))
        return e.where(negative, e.elem(M.NEGATE, y), y)
    # A product, so that a negative number that rounds to zero keeps its sign.
    return e.elem(M.MUL, y, e.where(negative, const_like(-1, x), const_like(1, x)))


def _power(x: Tensor, saturate: bool, mode: str) -> Tensor:
    """Return powers of two from 2^-127 to 2^127, whatever the sign; NaN for nonfinite numbers."""
    if mode not in ("up", "down", "nearest"):
        raise UnsupportedNodeError(f"its round_mode {mode!r} is unknown, expected up, down or nearest")
    one = const_like(1, x)
    size = e.elem(M.ABS, x)
    large = e.compare(_LEQ, one, size)
    scaled = e.where(large, e.elem(M.MUL, size, const_like(2.0**-30, x)), size)
    back = e.where(large, const_like(2.0**30, x), one)
    above = power_above(scaled)
    half = const_like(0.5, x)
    below = e.where(e.compare(_LT, scaled, above), e.elem(M.MUL, above, half), above)
    up = above
    if mode == "down":
        up = below
    elif mode == "nearest":
        middle = e.elem(M.MUL, below, const_like(1.5, x))
        up = e.where(e.compare(_LT, scaled, middle), below, above)
    # The smallest numbers have a code of their own, up to 2^-126; it stands for 2^-127.
    normal = const_like(2.0**-126, x)
    least = const_like(2.0**-127, x)
    fraction = e.compare(_LT, const_like(0, x), size)
    if mode == "nearest":
        fraction = e.compare(_LT, least, size)
    tiny = least if mode == "down" else e.where(fraction, normal, least)
    y = e.where(e.compare(_LT, size, normal), tiny, e.elem(M.MUL, up, back))
    most = const_like(2.0**127, x)
    y = e.where(e.compare(_LT, most, y), most if saturate else const_like(np.nan, x), y)
    finite = e.compare(_LT, size, const_like(np.inf, x))
    return e.where(finite, y, const_like(np.nan, x))
