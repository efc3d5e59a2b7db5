"""Tolerances that nobody gave: they go by the size of the output, and by the dtype that it is computed in."""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from ..graph.dtypes import Array
from .metrics import errors

MAXERR = 1e-4
"""The tolerance of MegEngine's ``trace.dump``."""
COARSE = {"Float16": 4e-3, "BFloat16": 3e-2}
"""Tolerances of what is computed in 11 and 8 bits: four units in the last place."""
_SMALL = 0.1
"""Outputs whose numbers are all smaller have a default tolerance of their scale."""
_LEAST_HALF = 2.0**-22
"""And those of float16 no less than this, four of its smallest steps."""
_LEAST_SIZE = 1e-30
"""Numbers below are no size to measure by, as in `default_maxerr`."""


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


def error_between(a: Array, b: Array, *, by_size: bool = False) -> float:
    """Return the largest ``|a - b| / max(1, min(|a|, |b|))``; equal values, NaN and infinity included, have none.

    Args:
        a: what is right.
        b: what is compared with it.
        by_size: whether the largest magnitude of `a` takes the place of 1 where it is less, so that 0 in place of small
            numbers is an error; for tolerances that nobody gave.

    >>> error_between(np.array([1.0, np.nan]), np.array([1.5, np.nan]))
    0.5
    >>> error_between(np.array([1e-4]), np.array([0.0])), error_between(np.array([1e-4]), np.array([0.0]), by_size=True)
    (0.0001, 1.0)
    """
    if a.shape != b.shape:
        return float("inf")
    if not a.size:
        return 0.0
    unit = 1.0
    if by_size and a.dtype.kind in "fc" and (size := magnitude(a)) > _LEAST_SIZE:
        unit = min(1.0, max(size, float(np.finfo(a.dtype).tiny)))
    x, y = a.astype(np.float64) / unit, b.astype(np.float64) / unit
    error = errors(x, y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
    return float(error.max())


_LIMITS = {"float16": 5e-2, "bfloat16": 5e-2}
_LIMIT = 1e-3
"""The error, of the size of an output, from which on rounding is looked at."""


def limit_of(dtypes: Iterable[str]) -> float:
    """Return the error, of the size of an output, from which on rounding is looked at, by the dtypes computed in.

    >>> limit_of(["Float32"]), limit_of(["Float32", "BFloat16"])
    (0.001, 0.05)
    """
    return max((_LIMITS.get(d.lower(), _LIMIT) for d in dtypes), default=_LIMIT)


def error_of(a: Array, b: Array) -> float:
    """Return the error of `b`, of the size of `a`; of 8-bit numbers one is rounding."""
    if a.dtype.kind in "iu" and a.dtype.itemsize == 1 and a.shape == b.shape:
        return float(np.abs(a.astype(np.int64) - b.astype(np.int64)).max(initial=0) > 1)
    return error_between(a, b, by_size=True)


def _far(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        far = np.abs(a.astype(np.result_type(a, np.float64)) - b)
    return np.nan_to_num(far, nan=np.inf)


def farthest(a: Array, b: Array) -> float:
    """Return the greatest difference of two arrays of one shape; infinity where one is NaN."""
    return float(_far(a, b).max(initial=0))


def largest(feeds: Mapping[str, Array]) -> float:
    """Return the largest of all real numbers of some arrays."""
    return max((float(np.abs(v).max(initial=0)) for v in feeds.values() if v.dtype.kind == "f"), default=0.0)


def is_finite(value: Array) -> bool:
    """Return whether no element is infinite or NaN."""
    return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())


def difference(name: str, a: Array, b: Array) -> str:
    """Say where an output differs most from the model's, which comes first."""
    if a.shape != b.shape:
        return f"output {name!r} has shape {list(b.shape)}, in the model {list(a.shape)}"
    far = _far(a, b)
    at = np.unravel_index(int(far.argmax()), far.shape)
    place = ", ".join(str(int(i)) for i in at)
    return f"output {name!r} is {b[at]} at [{place}], in the model {a[at]}"
