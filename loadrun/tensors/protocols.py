"""The one hook for higher layers: who records numpy's functions when one is called with a tensor.

Tensors are below `loadrun.arrays`, which holds a lowering for every numpy function; it is found by its name.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..base.registry import resolve


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
    """The answers to numpy's two protocols for tensors."""

    ufunc: LowerUfunc
    function: LowerFunction


@cache
def lowering() -> NumpyProtocols:
    """Return the lowering of numpy's functions, which is above tensors and imported when one needs it.

    >>> lowering().ufunc.__module__
    'loadrun.arrays.protocol'
    """
    protocols: NumpyProtocols = resolve("loadrun.arrays.protocol:PROTOCOLS")
    return protocols
