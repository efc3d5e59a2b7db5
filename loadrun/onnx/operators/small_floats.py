"""Rounding to floats of 8 and 4 bits, which are held in float32."""

from __future__ import annotations

from functools import cache

import numpy as np

from ...graph.dtypes import Array
from ..tensors import E8M0, FLOAT4, SMALL_FLOATS, decoded
from .common import one_of, tensor_type

__all__ = ["SMALL", "rounded_small"]

SMALL = {tensor_type(kind).name: kind for kind in (*SMALL_FLOATS, E8M0)}
"""ONNX's numbers of the types by their names in graphs."""


@cache
def _steps(kind: int, saturate: int) -> tuple[Array, Array]:
    """Return the sizes that a type has in their order, and from which size on the next one is the nearer one.

    At the end stand what is beyond the largest, and NaN. Ties go to even codes.
    """
    layout = SMALL_FLOATS[kind]
    codes = decoded(np.arange(8 if kind == FLOAT4 else 128), kind)
    sizes = codes[np.isfinite(codes)]
    beyond = np.float32(2 * sizes[-1] - sizes[-2])
    middles = (sizes + np.append(sizes[1:], beyond)) / 2
    middles[::2] = np.nextafter(middles[::2], np.float32(np.inf))
    over = sizes[-1] if saturate or kind == FLOAT4 else np.inf if layout.infinite else np.nan
    nothing = 0 if kind == FLOAT4 else np.nan
    return _frozen([*sizes, over, nothing], [*middles, np.nan])


@cache
def _powers(saturate: int, mode: str) -> tuple[Array, Array]:
    """Return the same for float8e8m0, whose smallest number stands for all that lies below the second one."""
    powers = np.ldexp(np.float32(1), np.arange(-127, 128)).astype(np.float32)
    above = np.float32(np.inf)
    if mode == "down":
        starts = np.append(powers[1:], above)
    elif mode == "up":
        starts = np.nextafter(np.append(np.float32(0), powers[1:]), above)
    else:
        starts = np.append(np.nextafter(powers[0], above), powers[1:] * np.float32(1.5))
    return _frozen([*powers, powers[-1] if saturate else np.nan, np.nan], [*starts, np.inf])


def _frozen(values: list[float], starts: list[float]) -> tuple[Array, Array]:
    both = np.array(values, np.float32), np.array(starts, np.float32)
    for a in both:
        a.flags.writeable = False
    return both


def rounded_small(x: Array, kind: int, saturate: int = 1, round_mode: str = "up") -> Array:
    """Round numbers to those that a type has, halves to even; by way of float32, as ONNX Runtime does.

    Args:
        x: the numbers.
        kind: ONNX's number of the type.
        saturate: whether too large values become the largest number.
        round_mode: how float8e8m0 rounds.
    """
    x = x.astype(np.float32)
    if kind == E8M0:
        values, starts = _powers(saturate, one_of("round_mode", round_mode, "up", "down", "nearest"))
        return np.take(values, np.searchsorted(starts, np.abs(x), "right"))
    values, starts = _steps(kind, saturate)
    size = np.take(values, np.searchsorted(starts, np.abs(x), "right"))
    # Where there is no negative zero, its code is that of NaN.
    negative = x < 0 if SMALL_FLOATS[kind].signed_zero else (x < 0) & (size != 0)
    return np.where(negative, -size, size)
