"""Arithmetic, comparisons and logic, element by element."""

from __future__ import annotations

import numpy as np

from ...graph.dtypes import Array
from . import operator


@operator("Add", pointwise=True)
def add(x: Array, y: Array) -> Array:
    """Add with numpy's broadcasting."""
    return x + y


@operator("Clip", since=11, pointwise=True)
def clip(x: Array, lo: Array | None = None, hi: Array | None = None) -> Array:
    """Limit elements to an interval; where its ends cross, the upper one holds."""
    x = x if lo is None else np.maximum(x, lo)
    return x if hi is None else np.minimum(x, hi)
