"""The one door upward: who records numpy's functions when one is called with a tensor.

Tensors are below `loadrun.arrays`, which holds a lowering for every numpy function. It registers itself here with
`provide` when it is imported; where a tensor meets a numpy function before that, `lowering` imports it by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np

__all__ = ["NumpyProtocols", "lowering", "provide"]


class LowerUfunc(Protocol):
    """Compute or record a ufunc, or one of its methods, with a tensor among its arguments."""

    def __call__(
        self, ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any], /
    ) -> Any:
        """Take what ``__array_ufunc__`` takes."""


class LowerFunction(Protocol):
    """Compute or record any other function of numpy with a tensor among its arguments."""

    def __call__(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], /) -> Any:
        """Take what ``__array_function__`` takes."""


class NumpyProtocols(NamedTuple):
    """What answers numpy's two protocols for tensors."""

    ufunc: LowerUfunc
    function: LowerFunction


_provided: list[NumpyProtocols] = []


def provide(found: NumpyProtocols) -> None:
    """Register the lowering of numpy's functions."""
    _provided[:] = [found]


def lowering() -> NumpyProtocols:
    """Return the registered lowering.

    >>> lowering().ufunc.__module__
    'loadrun.arrays.protocol'
    """
    if not _provided:
        import_module("loadrun.arrays.protocol")  # the door upward, opened late for start-up
    return _provided[0]
