"""Operators and constants of sizes, which a trace has once, however often they are computed."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..graph import params as P
from ..graph.dtypes import Array, DType
from .apply import apply1
from .switches import active
from .value import Tensor

__all__ = ["once", "vector"]


@lru_cache(maxsize=1024)
def vector(numbers: tuple[int, ...], dtype: DType) -> Array:
    """Return numbers in storage form, the same array each time, by which a later call of a trace knows them."""
    result = np.array(numbers, dtype.np)
    result.flags.writeable = False
    return result


def once(type: str, param: P.Record, inputs: list[Tensor], *, scalar: bool) -> Tensor:
    """Apply an operator on sizes, or take what a trace has for the same sizes already."""
    session = active()
    if session is None:
        return apply1(type, param, inputs=inputs, scalar=scalar)
    refs: list[object] = []
    for x in inputs:
        if x._session is session and x._var is not None:
            refs.append(x._var.id)
        elif x._const and x._value is not None:
            refs.append((x._dtype, *x._value.tolist()))
        else:
            return apply1(type, param, inputs=inputs, scalar=scalar)
    key = (type, param, *refs)
    result = session.sizes.get(key)
    if result is None:
        result = session.sizes[key] = apply1(type, param, inputs=inputs, scalar=scalar)
    return result._frozen()
