"""Turning what callers pass (arrays, numbers, sizes) into tensors of one dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import params as P
from ..dtypes import Array
from .dtypes import graph_dtype, narrowed
from .sizes import Dim, Shape, shape_tensor

if TYPE_CHECKING:
    from .value import Tensor

__all__ = ["as_tensor", "const", "convert", "elemwise"]


def const(array: Array | Any, dtype: Any = None) -> Tensor:
    """A constant of the graph, whatever a trace does with captured values."""
    from .value import Tensor

    value, kind = narrowed(np.asarray(array))
    if dtype is not None:
        kind = graph_dtype(dtype)
        with np.errstate(all="ignore"):
            value = value.astype(kind.np)
    scalar = value.ndim == 0
    return Tensor._of(value.reshape(1) if scalar else np.array(value, order="C"), kind, scalar, const=True)


def as_tensor(value: Any, dtype: Any = None, like: Tensor | None = None) -> Tensor:
    """A tensor of whatever a caller passes.

    Args:
        value: a Tensor (returned as it is unless `dtype` differs), ndarray, number, nested list, or size.
        dtype: the wanted dtype.
        like: take this tensor's dtype.
    """
    from .value import Tensor

    if like is not None:
        dtype = like._dtype
    if isinstance(value, Tensor):
        found = value
    elif isinstance(value, Shape):
        found = shape_tensor(value)
    elif isinstance(value, Dim):
        inner = value._tensor()
        found = const(int(value)) if inner is None else inner
    elif isinstance(value, (list, tuple)):
        found = Tensor(value)
        found._const = True
    else:
        return const(value, dtype)
    return found if dtype is None or graph_dtype(dtype) == found._dtype else found.astype(dtype)


def convert(*values: Any) -> list[Tensor]:
    """Tensors of the dtype to which MegEngine promotes these values together."""
    from .promotion import promoted

    return promoted(values)


def elemwise(mode: P.ElemwiseMode, *values: Any) -> Tensor:
    """Apply an elementwise mode to tensors, arrays and numbers, promoted as MegEngine does."""
    from .promotion import elemwise

    return elemwise(mode, *values)
