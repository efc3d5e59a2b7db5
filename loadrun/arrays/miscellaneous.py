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


@lowers("min_scalar_type")
def min_scalar_type(a: Any, /) -> Any:
    """Return the dtype of the array."""
    return _dtype_or_value(a)


@lowers("common_type")
def common_type(*arrays: Any) -> Any:
    """Return the floating-point type that numpy would use."""
    return np.result_type(*(np.float16 if a.dtype == np.float16 else np.float32 for a in arrays)).type


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


@lowers("array_repr")
def array_repr(arr: Any, *args: Any, **kwargs: Any) -> str:
    """Return the value as text; reads it."""
    return np.array_repr(arr.numpy(), *args, **kwargs)


@lowers("array_str")
def array_str(a: Any, *args: Any, **kwargs: Any) -> str:
    """Return the value as text; reads it."""
    return np.array_str(a.numpy(), *args, **kwargs)


@lowers("array2string")
def array2string(a: Any, *args: Any, **kwargs: Any) -> str:
    """Return the value as text; reads it."""
    return np.array2string(a.numpy(), *args, **kwargs)
