"""Inputs that MegEngine adds by what a definition holds, before it makes a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import UsageError
from ...base.registry import Registry
from ...tensors.value import Tensor

__all__ = ["NO_AXIS", "PREPARED"]

_FROM_INPUT = -(2**31)
"""An entry of ``slice_items`` that an input gives."""
NO_AXIS = (7, 2**31 - 1)
"""The numbers that stand for no axis, in older records and newer ones."""
_Prepare = Callable[[Mapping[str, Any], list[Tensor]], list[Tensor]]
PREPARED: Registry[str, _Prepare] = Registry("preparation of inputs")
"""The inputs that an operator gets beside its own, from the values of its parameters."""
_prepares = PREPARED.register


@_prepares("Reduce")
def _targeted(values: Mapping[str, Any], inputs: list[Tensor]) -> list[Tensor]:
    """Add the shape of one number where neither an axis nor an input says what is left."""
    return [*inputs, _numbers([1])] if len(inputs) == 1 and values["axis"] in NO_AXIS else inputs


@_prepares("AdaptivePooling", "Broadcast", "Reshape")
def _shaped(values: Mapping[str, Any], inputs: list[Tensor]) -> list[Tensor]:
    """Add the shape that the definition holds, where no input gives it."""
    shape = values["shape"]
    return [*inputs, _numbers(shape)] if len(inputs) == 1 and shape else inputs


@_prepares("Split")
def _sectioned(values: Mapping[str, Any], inputs: list[Tensor]) -> list[Tensor]:
    """Add the sizes of equal sections."""
    n = values["nsections"]
    if len(inputs) != 1 or n <= 0:
        return inputs
    size = int(inputs[0].shape[values["axis"]])
    if size % n:
        raise UsageError(f"{size} elements along axis {values['axis']} do not make {n} equal sections")
    return [inputs[0], *(_numbers([size // n]) for _ in range(n))]


@_prepares("Subtensor")
def _sliced(values: Mapping[str, Any], inputs: list[Tensor]) -> list[Tensor]:
    """Add the numbers of slices that the definition holds."""
    slices = values["slice_items"]
    if not slices:
        return inputs
    if len(slices) != len(values["items"]):
        raise UsageError(f"{len(values['items'])} items need as many slice_items, found {len(slices)}")
    tensors, operands = iter(inputs[1:]), [inputs[0]]
    for item, numbers in zip(values["items"], slices, strict=True):
        for wanted, number in zip(item[1:], numbers, strict=True):
            if wanted:
                operands.append(_numbers([number]) if number != _FROM_INPUT else next(tensors))
    return operands


def _numbers(values: Sequence[int]) -> Tensor:
    return Tensor(np.asarray(values, np.int32), is_const=True)
