"""Comparisons, logic, and choosing by a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...layers import emit
from ..call import FxCall
from ..registry import aten
from ..values import as_array, as_tensor

_COMPARE: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_LOGIC = ("logical_and", "logical_or", "logical_xor", "logical_not")
_TESTS = ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit")


def _compared(function: Callable[..., Any]) -> Callable[..., Any]:
    def lowered(call: FxCall, x: Any, y: Any) -> Any:
        dtype = call.common(0, 1)
        return function(as_array(x, dtype), as_array(_bounded(y, dtype), dtype))

    return lowered


def _bounded(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a number beyond an integer dtype as the next one that fits: no integer of it is between."""
    if type(value) is int and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return max(int(limits.min), min(int(limits.max), value))
    return value


def _logical(function: Callable[..., Any]) -> Callable[..., Any]:
    def lowered(call: FxCall, *xs: Any) -> Any:
        return function(*(as_array(x, "bool") for x in xs))

    return lowered


def _tested(function: Callable[..., Any]) -> Callable[..., Any]:
    def lowered(call: FxCall, x: Any) -> Any:
        x = as_array(x)
        return (
            function(x)
            if np.dtype(x.dtype).kind == "f" or function is np.signbit
            else function(as_array(emit.as_float(as_tensor(x))))
        )

    return lowered


for _name, _function in _COMPARE.items():
    aten(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")(_compared(_function))
for _name in _LOGIC:
    aten(f"aten.{_name}.default")(_logical(getattr(np, _name)))
for _name in _TESTS:
    aten(f"aten.{_name}.default")(_tested(getattr(np, _name)))


@aten("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def where(call: FxCall, condition: Any, x: Any, y: Any) -> Any:
    """Select one value or another."""
    return np.where(as_array(condition, "bool"), as_array(x, call.dtype), as_array(y, call.dtype))


@aten("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(call: FxCall, x: Any, mask: Any, value: Any) -> Any:
    """Fill with a value where a mask is true."""
    x, mask = as_array(x, call.dtype), as_array(mask, "bool")
    return np.where(mask, as_array(value, call.dtype), x)


@aten("aten.equal.default")
def equal(call: FxCall, x: Any, y: Any) -> Any:
    """Return whether all elements are equal."""
    if call.shape_of(0) != call.shape_of(1):
        return as_tensor(False)
    dtype = call.common(0, 1)
    return np.all(as_array(x, dtype) == as_array(y, dtype))
