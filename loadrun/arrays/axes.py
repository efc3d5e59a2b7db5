"""Axes and shapes that numpy's functions take, checked, with numpy's own errors."""

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..layers import emit as e
from ..tensors import Tensor, TracedInt

AxisError: Any = getattr(np, "exceptions", np).AxisError


def axis_of(axis: Any, ndim: int) -> int:
    """Return one axis counted from 0.

    Raises:
        AxisError: there is no such axis.

    >>> axis_of(-1, 3)
    2
    """
    result = operator.index(axis)
    if not -ndim <= result < ndim:
        raise AxisError(result, ndim)
    return result % ndim


def axes_of(axis: Any, ndim: int) -> list[int]:
    """Return several axes counted from 0, in order; all of them for None.

    Raises:
        AxisError: there is no such axis.
        ValueError: an axis is named twice.

    >>> axes_of(None, 2), axes_of((-1, 0), 3)
    ([0, 1], [0, 2])
    """
    if axis is None:
        return [*range(ndim)]
    if not ndim and axis in (0, -1):
        # A scalar may be reduced along its only axis, which the scalar itself lacks.
        return []
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    result = sorted(axis_of(a, ndim) for a in axes)
    if len(set(result)) < len(result):
        raise ValueError("duplicate value in 'axis'")
    return result


def given_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape from one size or several: numbers, symbolic sizes, or arrays of them."""
    if isinstance(shape, (int, np.integer)):
        return (shape if isinstance(shape, TracedInt) else int(shape),)
    if isinstance(shape, Tensor) and not e.sizes(shape):
        return (operator.index(shape),)
    return tuple(n if isinstance(n, TracedInt) else operator.index(n) for n in shape)


def checked_shape(shape: Sequence[int], now: tuple[int, ...]) -> tuple[int, ...]:
    """Return the target as plain numbers.

    Raises:
        ValueError: it has another number of elements.
    """
    plain = tuple(map(int, shape))
    total, rest = prod(now), prod(n for n in plain if n != -1)
    holes = plain.count(-1)
    if holes > 1:
        raise ValueError("can only specify one unknown dimension")
    if (holes and (not rest or total % rest)) or (not holes and total != rest):
        raise ValueError(f"cannot reshape array of size {total} into shape {plain}")
    return tuple(total // rest if n == -1 else n for n in plain)
