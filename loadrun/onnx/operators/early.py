"""What ONNX's first versions say otherwise for many operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...graph.dtypes import Array
from . import F, operator
from .common import axis_of, refuse_unless, with_attributes
from .kernels import broadcast_shapes

Function = Callable[..., Any]


def _aligned(function: Function) -> Function:
    """Broadcast the second input along an axis, as versions before 7 do."""

    def called(x: Array, y: Array, *, axis: int | None = None, broadcast: int = 0) -> Any:  # noqa: ANN401
        if broadcast and axis is not None:
            rest = x.ndim - axis_of(axis, x.ndim) - y.ndim
            refuse_unless(rest >= 0, f"{y.ndim} axes do not fit {x.ndim} at axis {axis}")
            y = y.reshape(*y.shape, *[1] * rest)
        return function(x, y)

    return with_attributes(function, called, axis=None, broadcast=0)


def operator_since_7(name: str, **how: Any) -> Callable[[F], F]:
    """Register an operator of two inputs that numpy's broadcasting holds for since version 7."""

    def register(function: F) -> F:
        operator(name, since=7, pointwise=True, **how)(function)
        how["shape"] = _aligned(lambda x, y: broadcast_shapes(x.shape, y.shape))
        operator(name, **how)(_aligned(function))
        return function

    return register
