"""Conversions under the name of ``megengine.core.tensor.utils``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...imperative import Tensor

__all__ = ["astensor1d", "isscalar", "make_shape_tuple"]


def make_shape_tuple(shape: Any) -> tuple[int, ...]:
    """Return sizes as a flat tuple of numbers.

    Args:
        shape: a number, or sizes, arrays and tensors of them, nested.

    >>> make_shape_tuple((2, (3, Tensor([4, 5]))))
    (2, 3, 4, 5)
    """
    if isinstance(shape, Tensor):
        shape = shape.numpy()
    if isinstance(shape, np.ndarray):
        return tuple(int(n) for n in shape.reshape(-1))
    if isinstance(shape, Iterable):
        return tuple(n for part in shape for n in make_shape_tuple(part))
    return (int(shape),)


def astensor1d(x: Any, *reference: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Return numbers, or tensors of them, as one tensor with one axis.

    Args:
        x: a tensor, an array or a sequence.
        reference: accepted for MegEngine's sake.
        dtype: the dtype of the result.
        device: accepted for MegEngine's sake.

    >>> astensor1d([1, Tensor(2)], dtype="int32").tolist()
    [1, 2]
    """
    found = Tensor(x, dtype=dtype)
    return found.reshape((-1,))


def isscalar(x: Any) -> bool:
    """Tell whether a value has no axes.

    >>> isscalar(Tensor(1)), isscalar([1])
    (True, False)
    """
    return x.shape == () if isinstance(x, (Tensor, np.ndarray)) else bool(np.isscalar(x))
