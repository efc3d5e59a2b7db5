"""The evaluation of a ufunc: its operands promoted, its lowering applied, the result in the dtype that numpy gives."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..layers import emit as e
from ..tensors import Tensor
from ..tensors.access import dtype_of, static_shape
from ..tensors.naming import refused
from ..tensors.switches import is_exact
from .promotion import list_as_tensor, loop, narrow, operand, weak
from .registry import UFUNCS, name_of


def apply_ufunc(target: np.ufunc, values: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what a ufunc computes, as plain tensors: promoted, lowered, and given the dtype that numpy gives."""
    extra = set(kwargs) - {"out", "where", "dtype", "casting", "order", "subok"}
    if extra:
        raise refused(f"cannot trace {name_of(target)} with {', '.join(sorted(extra))}=")
    lowering, kind, instead, _ = UFUNCS[target]
    key = None if kwargs else _key(target, values)
    plan = _PLANS.get(key) if key is not None else None
    if plan is None:
        values = [list_as_tensor(v) for v in values]
        plan = _planned(target, kind, values, kwargs)
        if key is not None and len(_PLANS) < _MOST:
            _PLANS[key] = plan
    into, gives = plan
    operands = [operand(v, into) for v in values]
    if into == np.uint16:
        operands = [e.cast(x, instead) for x in operands]
    result = lowering(*operands)
    if isinstance(result, tuple):
        return tuple(e.cast(r, g) for r, g in zip(result, gives, strict=True))
    return e.cast(result, gives[0])


_Plan = tuple["np.dtype[Any] | None", tuple["np.dtype[Any]", ...]]
"""The dtype that operands are converted to, None if they stay as they are, and those of the results."""
_PLANS: dict[Any, _Plan] = {}
_MOST = 4096
"""So many plans are kept."""
_NUMBERS = (bool, int, float)


def _key(target: np.ufunc, values: Sequence[Any]) -> Any:
    """Return what the plan of a call follows from; None if that is more than dtypes, shapes and numbers."""
    key: list[Any] = [target, is_exact()]
    # Shapes only where they are checked, since reading one may mean computing it.
    shaped = target.nin > 1 and target.signature is None
    for v in values:
        if isinstance(v, Tensor):
            key += (dtype_of(v), static_shape(v) if shaped else None)
        elif isinstance(v, np.ndarray):
            key += (v.dtype, v.shape)
        elif type(v) in _NUMBERS:
            key += (type(v), v)
        else:
            return None
    return tuple(key)


def _planned(target: np.ufunc, kind: str, values: Sequence[Any], kwargs: Mapping[str, Any]) -> _Plan:
    """Check the operands against each other, and promote as numpy does."""
    if target.nin > 1 and target.signature is None:
        e.broadcast_shape([np.shape(v) if not isinstance(v, Tensor) else e.sizes(v) for v in values])
    both, gives = loop(target, values)
    if kwargs.get("dtype") is not None:
        both = np.dtype(kwargs["dtype"])
        gives = tuple(both for _ in gives)
    if kind == "given":
        return None, tuple(map(narrow, gives))
    into = np.dtype(np.bool_) if kind == "bool" else both
    if gives[0].kind == "b" and into.kind in "iu" and _beyond(values, narrow(into)):
        # A comparison with a number outside the array's dtype still has an answer.
        into = np.dtype(np.float64)
    if kind == "auto" and gives[0].kind == "f":
        into = gives[0]
    return narrow(into), tuple(map(narrow, gives))


def _beyond(values: Sequence[Any], dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return any(weak(v) and not limits.min <= v <= limits.max for v in values)
