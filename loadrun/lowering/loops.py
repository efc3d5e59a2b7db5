"""What a ufunc computes: its operands promoted, its lowering applied, the result in the dtype that numpy gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..imperative import Tensor
from ..imperative import emit as e
from ..imperative.source import refused
from .promotion import list_as_tensor, loop, narrow, operand, weak
from .registry import UFUNCS, name_of

__all__ = ["apply_ufunc"]


def apply_ufunc(target: np.ufunc, values: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what a ufunc computes, as plain tensors: promoted, lowered, and given the dtype that numpy gives."""
    extra = set(kwargs) - {"out", "where", "dtype", "casting", "order", "subok"}
    if extra:
        raise refused(f"cannot trace {name_of(target)} with {', '.join(sorted(extra))}=")
    lowering, kind, instead = UFUNCS[target]
    values = [list_as_tensor(v) for v in values]
    if target.nin > 1 and target.signature is None:
        e.broadcast_shape([np.shape(v) if not isinstance(v, Tensor) else e.sizes(v) for v in values])
    both, gives = loop(target, values)
    if kwargs.get("dtype") is not None:
        both = np.dtype(kwargs["dtype"])
        gives = tuple(both for _ in gives)
    if kind == "given":
        result = lowering(*(operand(v) for v in values))
    else:
        into = np.dtype(np.bool_) if kind == "bool" else both
        if gives[0].kind == "b" and into.kind in "iu" and _beyond(values, narrow(into)):
            # A comparison with a number that the array's dtype cannot hold has an answer all the same.
            into = np.dtype(np.float64)
        if kind == "auto" and gives[0].kind == "f":
            into = gives[0]
        result = _in_loop(lowering, values, narrow(into), instead)
    if isinstance(result, tuple):
        return tuple(e.cast(r, narrow(g)) for r, g in zip(result, gives, strict=True))
    return e.cast(result, narrow(gives[0]))


def _beyond(values: Sequence[Any], dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return any(weak(v) and not limits.min <= v <= limits.max for v in values)


def _in_loop(lowering: Callable[..., Any], values: Sequence[Any], dtype: np.dtype[Any], instead: str) -> Any:
    if dtype == np.uint16:
        return lowering(*(e.cast(operand(v, dtype), instead) for v in values))
    return lowering(*(operand(v, dtype) for v in values))
