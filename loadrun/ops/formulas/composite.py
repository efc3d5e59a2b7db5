"""Composite operators in float64: the same definition on float64 arrays, without the kernel's pieces."""

import numpy as np

from ...graph.composite import Composite
from ...graph.dtypes import Array
from ..composite import result_arrays, widened
from ..registry import Call


def composite(c: Call, *arrays: Array) -> tuple[Array, ...]:
    """Call the function; floats of the result stay float64."""
    p = c.opr.params[0]
    assert isinstance(p, Composite)
    results = result_arrays(p, p.call(widened(c, arrays)))
    return tuple(
        r.astype(np.float64) if d.is_float else r.astype(d.np, copy=False)
        for r, d in zip(results, p.types.outputs, strict=True)
    )
