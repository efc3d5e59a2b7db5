"""MegEngine's error measure, and the predicate that holds it against a tolerance."""

from __future__ import annotations

import numpy as np

from ..graph.dtypes import Array
from .chunks import as_numbers, chunks

__all__ = ["assert_equal_error", "errors", "passes"]


def passes(error: float, maxerr: float) -> bool:
    """Tell whether an error is within a tolerance; NaN on either side never is.

    >>> passes(1e-5, 1e-4), passes(float("nan"), 1e-4), passes(float("inf"), float("inf"))
    (True, False, True)
    """
    return bool(0 <= error <= maxerr)


def errors(expect: Array, get: Array) -> Array:
    """Return MegEngine's error of every element, in float64: ``|expect - get| / max(1, min(|expect|, |get|))``.

    Absolute below 1, relative above. NaN where either value is NaN, or both are the same infinity: what becomes of
    those is the caller's to decide.

    Args:
        expect: expected values, any real dtype.
        get: computed values of the same shape.

    >>> import numpy as np
    >>> errors(np.array([0.5, 200.0]), np.array([0.75, 202.0])).tolist()
    [0.25, 0.01]
    """
    e, g = expect.astype(np.float64, copy=False), get.astype(np.float64, copy=False)
    with np.errstate(all="ignore"):
        return np.abs(e - g) / np.maximum(np.minimum(np.abs(e), np.abs(g)), 1)


def assert_equal_error(expect: Array, get: Array) -> np.float32:
    """Compute MegEngine's error of two arrays of one shape, which its AssertEqual compares with ``maxerr``.

    The maximum of ``|expect - get| / max(1, min(|expect|, |get|))`` in float32: absolute below 1, relative above.
    NaN as soon as one quotient is NaN: where either value is NaN, or both are the same infinity. Integers are
    subtracted without wrapping around, where MegEngine's would hide a difference of 255 in an int8 array.

    Args:
        expect: expected values, any real dtype.
        get: computed values of the same shape.

    Returns:
        the error; 0 for arrays without elements.

    Raises:
        ValueError: the shapes differ.
        TypeError: a dtype that does not hold numbers.

    >>> import numpy as np
    >>> float(assert_equal_error(np.array([0.5, 200.0], "f4"), np.array([0.75, 202.0], "f4")))
    0.25
    """
    expect, get = as_numbers(expect), as_numbers(get)
    if expect.shape != get.shape:
        raise ValueError(f"shapes differ: expected {list(expect.shape)}, got {list(get.shape)}")
    exact = "f" not in expect.dtype.kind + get.dtype.kind
    worst = np.float32(0)
    with np.errstate(all="ignore"):
        for e, g in chunks(expect, get):
            if exact:
                d = np.abs(np.subtract(e, g, dtype=np.float64)).astype(np.float32)
            e, g = e.astype(np.float32, copy=False), g.astype(np.float32, copy=False)
            if not exact:
                d = e - g
                np.abs(d, out=d)
            bound = np.minimum(np.abs(e), np.abs(g))
            d /= np.maximum(bound, np.float32(1), out=bound)
            # numpy's maximum keeps a NaN, whichever side it is on.
            worst = np.maximum(worst, d.max())
    return np.float32(worst)
