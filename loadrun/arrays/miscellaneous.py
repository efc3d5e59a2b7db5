"""numpy functions about dtypes, memory and text, which record nothing."""

from typing import Any

import numpy as np

from ..tensors import Tensor
from .array import TracedArray
from .promotion import common
from .registry import lowers


def _dtype_or_value(value: Any) -> Any:
    return value.dtype if isinstance(value, Tensor) else value


@lowers("result_type")
def result_type(*arrays_and_dtypes: Any) -> Any:
    """Return numpy's result type of the narrowed dtypes."""
    dtypes = [np.empty(0, v) if isinstance(v, (type, np.dtype, str)) else v for v in arrays_and_dtypes]
    return common(dtypes)


@lowers("can_cast")
def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Return whether numpy would convert."""
    kind: Any = casting
    return bool(np.can_cast(_dtype_or_value(from_), to, kind))


@lowers("iscomplexobj")
def iscomplexobj(x: Any) -> bool:
    """Return False: there are no complex numbers."""
    return False


@lowers("isrealobj")
def isrealobj(x: Any) -> bool:
    """Return True everywhere: all numbers are real."""
    return True


@lowers("shares_memory", "may_share_memory")
def shares_memory(a: Any, b: Any, /, max_work: Any = None) -> bool:
    """Return whether both are views of one array; overlap of different parts counts."""
    return isinstance(a, TracedArray) and isinstance(b, TracedArray) and a._cell.root is b._cell.root
