"""Axes of numpy's functions as numbers from 0, with numpy's own errors."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

__all__ = ["AxisError", "axes_of", "axis_of"]

AxisError: Any = getattr(np, "exceptions", np).AxisError


def axis_of(axis: Any, ndim: int) -> int:
    """One axis counted from 0.

    Raises:
        AxisError: there is no such axis.

    >>> axis_of(-1, 3)
    2
    """
    found = operator.index(axis)
    if not -ndim <= found < ndim:
        raise AxisError(found, ndim)
    return found % ndim


def axes_of(axis: Any, ndim: int) -> list[int]:
    """Several axes counted from 0, in order; all of them for None.

    Raises:
        AxisError: there is no such axis.
        ValueError: an axis is named twice.

    >>> axes_of(None, 2), axes_of((-1, 0), 3)
    ([0, 1], [0, 2])
    """
    if axis is None:
        return [*range(ndim)]
    if not ndim and axis in (0, -1):
        # A scalar may be reduced along its only axis, which it has not.
        return []
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    found = sorted(axis_of(a, ndim) for a in given)
    if len(set(found)) < len(found):
        raise ValueError("duplicate value in 'axis'")
    return found
