"""Construction of tensors: from arrays, numbers, nested lists, sizes."""

from typing import Any

import numpy as np

from ..base.errors import UsageRuntimeError
from ..graph.dtypes import odd, plain, round_bfloat16
from .convert import Shape
from .dtypes import graph_dtype, narrowed, numpy_dtype
from .shaping import stacked
from .symbolic import TracedNumber
from .value import Tensor

_BFLOAT16 = numpy_dtype(plain("BFloat16"))


def fill(x: Tensor, data: Any, dtype: Any) -> None:
    """Take on the value of what a tensor is made of, if it is no tensor itx."""
    if isinstance(data, (list, tuple)) and (isinstance(data, Shape) or _holds_tensors(data)):
        parts = [v if isinstance(v, Tensor) else Tensor(v) for v in data]
        whole = stacked(parts)
        x._copy_state(whole if dtype is None else whole.astype(dtype))
        return
    if isinstance(data, TracedNumber) and (scalar := data._tensor()) is not None:
        x._copy_state(scalar if dtype is None else scalar.astype(dtype))
        return
    array = np.asarray(data)
    if array.dtype.name == "bfloat16":
        array = array.astype(_BFLOAT16)
    if array.dtype.kind not in "fiubc":
        raise TypeError(
            f"a tensor holds numbers, found {type(data).__name__} {data!r:.60}; give an ndarray, a nested list "
            "of numbers of equal lengths, or a number"
        )
    if dtype is not None:
        want = graph_dtype(dtype)
        with np.errstate(all="ignore"):
            array = odd(array, want) if want.is_odd else array.astype(want.np)
    else:
        array, want = narrowed(array)
        if want.is_odd:
            array = odd(array, want)
    if want.name == "BFloat16":
        # An array of that dtype may hold more: numpy does not round to it.
        array = round_bfloat16(array)
    if array is data or array.base is not None:
        array = array.copy()
    x._scalar = array.ndim == 0
    x._value = array.reshape(1) if x._scalar else np.ascontiguousarray(array)
    x._dtype = want


def check_kept(data: Tensor, dtype: Any) -> None:
    """Refuse a dtype that the tensor given does not have.

    Raises:
        UsageError: it is another.
    """
    if dtype is not None and graph_dtype(dtype) != data._dtype:
        raise UsageRuntimeError(
            f"a tensor created from another keeps its dtype, found dtype={dtype!s:.60} for one of {data._dtype}; "
            "convert it with x.astype(dtype)"
        )


def _holds_tensors(data: Any) -> bool:
    return any(isinstance(v, Tensor) or (isinstance(v, (list, tuple)) and _holds_tensors(v)) for v in data)
