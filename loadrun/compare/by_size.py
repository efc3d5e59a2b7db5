"""Differences of arrays whose tolerance nobody gave: by the size of the array, and the dtypes that are computed in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ..graph.dtypes import Array
from .tolerances import error_between

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
