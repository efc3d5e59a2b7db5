"""What ONNX's first versions say otherwise for many operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...graph.dtypes import Array
from . import F, operator
from .common import axis_of, refuse_unless, with_attributes
from .kernels import broadcast_shapes

Function = Callable[..., Any]


def consuming(function: Function) -> Function:
    """Take the attribute of versions before 6 that says which inputs may be overwritten."""

    def called(*inputs: Array, consumed_inputs: object = None, **attributes: object) -> Any:  # noqa: ANN401
        return function(*inputs, **attributes)

    return with_attributes(function, called, consumed_inputs=None)


def _aligned(function: Function) -> Function:
    """Broadcast the second input along an axis, as versions before 7 do."""

    def called(x: Array, y: Array, *, axis: int | None = None, broadcast: int = 0) -> Any:  # noqa: ANN401
        if broadcast and axis is not None:
            rest = x.ndim - axis_of(axis, x.ndim) - y.ndim
            refuse_unless(rest >= 0, f"{y.ndim} axes do not fit {x.ndim} at axis {axis}")
            y = y.reshape(*y.shape, *[1] * rest)
        return function(x, y)

    return with_attributes(function, called, axis=None, broadcast=0)


def operator_since_1(*names: str, **how: Any) -> Callable[[F], F]:
    """Register operators that have the attribute consumed_inputs before version 6."""

    def register(function: F) -> F:
        operator(*names, since=6, **how)(function)
        operator(*names, **how)(consuming(function))
        return function

    return register


def operator_since_7(name: str, *, consumed: bool = False, **how: Any) -> Callable[[F], F]:
    """Register an operator of two inputs that numpy's broadcasting holds for since version 7."""

    def register(function: F) -> F:
        operator(name, since=7, pointwise=True, **how)(function)
        older = _aligned(function)
        how["shape"] = _aligned(lambda x, y: broadcast_shapes(x.shape, y.shape))
        operator(name, since=6 if consumed else 1, **how)(older)
        if consumed:
            operator(name, **{**how, "shape": consuming(how["shape"])})(consuming(older))
        return function

    return register
