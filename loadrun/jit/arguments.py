"""The tensors and ndarrays among the arguments of a traced call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..dtypes import Array
from ..errors import TraceError
from ..imperative.dtypes import narrowed
from ..imperative.value import Tensor
from ..lowering.array import Array as Traced
from .recording import Recording

__all__ = ["Argument", "TraceArgumentError", "changed_among", "settle"]


class Argument:
    """One tensor or ndarray among the arguments of a call."""

    __slots__ = ("name", "original", "tensor")

    def __init__(self, name: str, original: Any) -> None:
        self.name = name
        self.original = original
        self.tensor: Tensor = original if isinstance(original, Tensor) else _stand_in(original)

    def shares(self, other: Argument) -> bool:
        """Whether assigning to one argument would show in the other."""
        if isinstance(self.original, Tensor) or isinstance(other.original, Tensor):
            return self.original is other.original
        return np.shares_memory(self.original, other.original)

    def update(self, inside: Tensor) -> None:
        """Pass on what the function assigned to its argument."""
        if isinstance(self.original, Tensor):
            self.original._copy_state(inside)
        else:
            self.original[...] = inside._stored().reshape(self.original.shape)


def _stand_in(array: Array) -> Tensor:
    """A tensor around a caller's ndarray, which is not copied."""
    value, dtype = narrowed(array)
    return Traced._of(value.reshape(1) if value.ndim == 0 else value, dtype, value.ndim == 0)


class TraceArgumentError(TraceError, AssertionError):
    """An argument that a trace cannot take."""


def settle(found: list[Argument], changed: list[tuple[Argument, Tensor]], results: Iterable[Tensor]) -> None:
    """Write to the arguments what the function assigned to them, and part its results from the caller's arrays.

    Raises:
        TraceError: another argument shares the memory, and would have changed, too.
    """
    for argument, _ in changed:
        for other in found:
            if other is not argument and argument.shares(other):
                raise TraceError(
                    f"the function assigns to {argument.name}, which shares its memory with {other.name}; a trace "
                    "cannot follow that, pass a copy"
                )
    arrays = [a.original for a in found if not isinstance(a.original, Tensor)]
    if arrays:
        for tensor in results:
            value = tensor._value
            if value is not None and any(np.may_share_memory(value, a) for a in arrays):
                tensor._value = value.copy()
    for argument, tensor in changed:
        argument.update(tensor)


def changed_among(
    found: list[Argument], inside: Mapping[int, Tensor], recording: Recording
) -> list[tuple[Argument, Tensor]]:
    """The arguments to which the function assigned, with what they are now."""
    return [(a, inside[id(a)]) for a in found if inside[id(a)]._var is not recording.args[a.name]]
