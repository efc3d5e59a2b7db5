"""Turning what callers pass (arrays, numbers, sizes) into tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from ..graph.dtypes import Array, DType
from .dtypes import graph_dtype, narrowed
from .sizes import Shape, shape_tensor
from .switches import keeps_wide
from .symbolic import TracedNumber
from .value import Tensor

__all__ = ["TensorLike", "as_tensor", "const"]

TensorLike: TypeAlias = "Tensor | Array | np.generic | float | Sequence[Any]"
"""What `as_tensor` takes: a tensor, an array, a number or a nested list; ints and bools count as floats here."""


def const(array: Array | Any, dtype: Any = None) -> Tensor:
    """Return a constant of the graph, whatever a trace does with captured values."""
    make = Tensor._of
    want = None if dtype is None else graph_dtype(dtype)
    if isinstance(array, (int, float)) and type(array) in (int, float, bool):
        value, kind = _stored_number(array, str(array), want, keeps_wide())
        return make(value, kind, True, const=True)
    value, kind = _converted(array, want)
    scalar = value.ndim == 0
    return make(value.reshape(1) if scalar else np.array(value, order="C"), kind, scalar, const=True)


def _converted(array: Array | Any, want: DType | None) -> tuple[Array, DType]:
    if want is not None and want.is_wide:
        with np.errstate(all="ignore"):
            return np.asarray(array).astype(want.np), want
    value, kind = narrowed(np.asarray(array))
    if want is None:
        return value, kind
    with np.errstate(all="ignore"):
        return value.astype(want.np), want


@lru_cache(maxsize=1024, typed=True)
def _stored_number(value: float, text: str, want: DType | None, wide: bool) -> tuple[Array, DType]:
    """Return a number in storage form, the same array each time, by which a later call of a trace knows it.

    Args:
        value: an int, float or bool.
        text: the number in letters, for 0.0 equals -0.0.
        want: the wanted dtype.
        wide: whether 64 bits are kept, on which the dtype depends where none is wanted.
    """
    result, kind = _converted(value, want)
    result = result.reshape(1)
    result.flags.writeable = False
    return result, kind


def as_tensor(value: Any, dtype: Any = None, like: Tensor | None = None) -> Tensor:
    """Return a tensor of whatever a caller passes.

    Args:
        value: a Tensor (returned as it is unless `dtype` differs), ndarray, number, nested list, or size.
        dtype: the wanted dtype.
        like: take this tensor's dtype.
    """
    if like is not None:
        dtype = like._dtype
    if isinstance(value, Tensor):
        result = value
    elif isinstance(value, Shape):
        result = shape_tensor(value)
    elif isinstance(value, TracedNumber):
        inner = value._tensor()
        result = const(value.numpy()) if inner is None else inner
    elif isinstance(value, (list, tuple)):
        result = Tensor(value)
        result._const = True
        result._place = None
    else:
        return const(value, dtype)
    return result if dtype is None or graph_dtype(dtype) == result._dtype else result.astype(dtype)
