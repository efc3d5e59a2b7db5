"""Small arrays by their elements."""

from __future__ import annotations

import numpy as np

from loadrun.graph.dtypes import Array


def ints(*values: int) -> Array:
    return np.array(values, "i4")
