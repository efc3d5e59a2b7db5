"""Tolerances that nobody gave: they go by the size of the output, and by the dtype that it is computed in."""

from __future__ import annotations

import math

import numpy as np

from ..graph.dtypes import Array

__all__ = ["COARSE", "MAXERR", "default_maxerr", "magnitude"]

MAXERR = 1e-4
"""The tolerance of MegEngine's ``trace.dump``."""
COARSE = {"Float16": 4e-3, "BFloat16": 3e-2}
"""Tolerances of what is computed in 11 and 8 bits: four units in the last place."""
_SMALL = 0.1
"""Outputs whose numbers are all smaller have a default tolerance of their scale."""
_LEAST_HALF = 2.0**-22
"""And those of float16 no less than this, four of its smallest steps."""


def magnitude(value: Array) -> float:
    """Return the largest magnitude of finite real or complex numbers; 1 for others.

    >>> magnitude(np.float32([-0.5, 0.25, np.inf])), magnitude(np.arange(3))
    (0.5, 1.0)
    """
    if value.dtype.kind not in "fc":
        return 1.0
    sizes = np.abs(value)
    return float(sizes.max(initial=0, where=np.isfinite(sizes)))


def default_maxerr(scale: float, plain: float = MAXERR) -> float:
    """Return the tolerance of an output for which none is asked.

    MegEngine's measure is absolute below 1, so that zeros in place of small numbers are within a fixed tolerance.

    Args:
        scale: the largest magnitude that is expected; where it is less than 0.1, `plain` holds for its power of ten.
        plain: the tolerance of numbers near 1.

    >>> default_maxerr(20.0), default_maxerr(0.1), default_maxerr(0.03), default_maxerr(1e-5), default_maxerr(0.0)
    (0.0001, 0.0001, 1e-05, 1e-09, 0.0001)
    """
    if not 1e-30 < scale < _SMALL:
        return plain
    tolerance = float(f"{plain * 10.0 ** math.ceil(math.log10(scale)):.0e}")
    return max(tolerance, _LEAST_HALF) if plain == COARSE["Float16"] else tolerance
