"""Exact products of integer matrices on floating-point BLAS.

float32 holds every whole number up to 2^24 and float64 up to 2^53, so a product is exact as long as no sum of
magnitudes passes that bound. Longer sums are cut along the inner dimension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...graph.dtypes import Array
from .parallel import matmul

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["int_matmul", "largest"]

_MOST_CUTS = 6
"""More cuts than this cost more than float64."""


def largest(x: Array) -> int:
    """Return the largest magnitude in an integer array, 0 when it is empty.

    >>> largest(np.array([3, -128], "i1"))
    128
    """
    return max(-int(x.min()), int(x.max()), 0) if x.size else 0


def int_matmul(
    a: Array, b: Array, dtype: DTypeLike = np.int32, bounds: tuple[int, int] | None = None
) -> Array:
    """Compute ``a @ b`` of integers, exact and then wrapped to `dtype`.

    Args:
        a: matrix (or stack of matrices) of whole numbers, an integer dtype or float32 that holds whole numbers.
        b: the same, one stack dimension less or the same number of them.
        dtype: integer dtype of the result.
        bounds: largest magnitudes in `a` and `b`, where the caller knows them.

    >>> int_matmul(np.full((1, 5000), 127, "i1"), np.full((5000, 1), -128, "i1")).tolist()
    [[-81280000]]
    """
    if bounds is None:
        bounds = largest(a), largest(b)
    inner = a.shape[-1]
    term = max(1, bounds[0] * bounds[1])
    if term >= 2**53:
        # No float holds such products: numpy's own loops are slow, and wrap as they should.
        return np.matmul(a.astype(dtype), b.astype(dtype))
    step = (2**24 - 1) // term
    if step and inner <= step * _MOST_CUTS:
        fa, fb = a.astype(np.float32, copy=False), b.astype(np.float32, copy=False)
        if inner <= step:
            return _whole(matmul(fa, fb), dtype)
        total = None
        for k in range(0, inner, step):
            part = matmul(fa[..., k : k + step], fb[..., k : k + step, :]).astype(np.int64)
            total = part if total is None else np.add(total, part, out=total)
        assert total is not None
        return total.astype(dtype)
    step = max(1, (2**53 - 1) // term)
    wide = a.astype(np.float64), b.astype(np.float64)
    out = _whole(matmul(wide[0][..., :step], wide[1][..., :step, :]), np.int64)
    for k in range(step, inner, step):
        out += _whole(matmul(wide[0][..., k : k + step], wide[1][..., k : k + step, :]), np.int64)
    return out.astype(dtype)


def _whole(x: Array, dtype: DTypeLike) -> Array:
    """Convert whole float numbers to integers that wrap; what lies beyond int32 goes through int64."""
    if np.dtype(dtype).itemsize >= 4 and x.dtype == np.float32:
        return x.astype(dtype)
    return x.astype(np.int64).astype(dtype)
