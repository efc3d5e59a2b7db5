"""float16 and bfloat16 arithmetic as MegEngine's CPU kernels do it: float32 operations, rounded after each one."""

from __future__ import annotations

import numpy as np

from ...graph.dtypes import Array, DType, round_bfloat16

__all__ = ["round_half", "rounded", "stored", "sum_rounded"]

_BLOCK = 4096
"""MegEngine's Reduce adds up to this many elements in order, and splits longer rows in two halves."""


def round_half(x: Array) -> Array:
    """Round float32 values to float16, ties away from zero.

    numpy and IEEE 754 round ties to even; the software float16 of MegEngine's CPU build does not. Values from
    65520 on become infinite, NaN is kept.

    >>> tie = np.array([2049.0, -2049.0, 2051.0], "f4")
    >>> round_half(tie).tolist(), tie.astype("f2").tolist()
    ([2050.0, -2050.0, 2052.0], [2048.0, -2048.0, 2052.0])
    """
    x = np.ascontiguousarray(x, np.float32)
    # Sets the last of the 24 bits: ties move above the middle, and no other value rounds differently.
    with np.errstate(over="ignore"):
        return (x.view(np.uint32) | np.isfinite(x)).view(np.float32).astype(np.float16)


def stored(x: Array, dtype: DType) -> Array:
    """Convert float32 values to the storage dtype of a float type, rounded as MegEngine rounds."""
    if dtype.name == "Float16":
        return round_half(x)
    return round_bfloat16(x) if dtype.name == "BFloat16" else np.asarray(x, np.float32)


def rounded(x: Array, dtype: DType) -> Array:
    """Round float32 values to the precision of a float type, still float32."""
    return stored(x, dtype).astype(np.float32, copy=False)


def sum_rounded(x: Array, axis: int, dtype: DType) -> Array:
    """Sum over one axis (kept, with size 1), rounded after every addition, in MegEngine's order.

    Args:
        x: float32 values that float16 or bfloat16 can hold.
        axis: the axis to sum over.
        dtype: Float16 or BFloat16.

    Returns:
        float32 sums. They stop growing where one more element is less than half a unit in the last place; that
        is what MegEngine computes, so a softmax or a sum over a long axis needs it.

    >>> sum_rounded(np.ones(4000, "f4"), 0, DType("BFloat16")).tolist()
    [256.0]
    """
    rows = np.ascontiguousarray(np.moveaxis(x, axis, 0))

    def total(part: Array) -> Array:
        if len(part) > _BLOCK:
            middle = len(part) // 2
            return rounded(total(part[:middle]) + total(part[middle:]), dtype)
        acc = np.zeros(part.shape[1:], np.float32)
        for row in part:
            acc = rounded(acc + row, dtype)
        return acc

    return np.expand_dims(total(rows).reshape(rows.shape[1:]), axis)
