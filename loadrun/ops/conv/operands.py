"""Operands of convolutions as plain arrays of numbers that hold them exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array, DType
from ..numeric.special import round_half
from ..registry import Call
from . import rules
from .layout import Packing, to_plain


def plain_filters(c: Call, w: Array, plan: rules.Plan, index: int, wide: bool = False) -> Array:
    """Return the filter as a plain contiguous array, float64 where float32 sums of integers could be inexact.

    Args:
        index: which input the filter is; the other of the first two is the data.
        wide: whether sums go over the output channels (transposed convolution).
    """
    cached = c.memo.get("filters")
    if cached is not None:
        return cached
    plain = to_plain(w, plan.w)
    if plan.flip:
        plain = np.flip(plain, tuple(range(3, plain.ndim)))
    dtype = c.inputs[index]
    kind: type = np.float32
    if not dtype.is_float:
        number = plain.astype(np.float64) - dtype.zero_point
        axes = (1, *range(3, plain.ndim)) if wide else tuple(range(2, plain.ndim))
        largest = np.abs(number).sum(axis=axes).max(initial=0)
        if largest * largest_value(c.inputs[1 - index]) >= 2**24:
            kind = np.float64
        plain = number
    filters = np.require(plain, kind, ["C", "A"])
    if filters is w or filters.base is not None:
        filters = filters.view()
    if len(c.const) > index and c.const[index]:
        c.memo["filters"] = filters
    return filters


def largest_value(dtype: DType) -> int:
    """Return the largest absolute value that an element of the data can have."""
    if dtype.name == "Int8":
        return 128
    low, high = dtype.range
    return max(abs(low - dtype.zero_point), abs(high - dtype.zero_point))


def plain_numbers(x: Array, plan_axes: Packing, dtype: DType, kind: np.dtype[Any]) -> Array:
    """Return the data as plain floating-point numbers without zero point."""
    plain = to_plain(x, plan_axes)
    if plain.dtype != kind:
        plain = plain.astype(kind)
        if dtype.zero_point:
            plain -= kind.type(dtype.zero_point)
    elif dtype.zero_point:
        plain = plain - kind.type(dtype.zero_point)
    return plain


def whole_numbers(x: Array, kind: np.dtype[Any]) -> Array:
    """Convert exact sums to integers of that dtype, wrapping round as in MegEngine."""
    return x.astype(np.int32 if x.dtype == np.float32 else np.int64).astype(kind, copy=False)


def is_stepwise(p: rules.ConvParam, dtype: DType) -> bool:
    """Return whether the sum is rounded to the narrow type after each product."""
    if dtype.name == "Float32":
        return False
    if isinstance(p, P.Convolution3D):
        return bool(p.data_type.name == "FLOAT")
    return bool(p.compute_mode.name == "DEFAULT")


def takes_columns(p: rules.ConvParam, plan: rules.Plan) -> bool:
    """Return whether MegEngine computes this float16 convolution as a matrix product, which has its own order."""
    return bool(p.format.name == "NCHW") and plan.geo.dilate == (1, 1)


def narrowed(x: Array, dtype: DType) -> Array:
    """Round float32 sums to float16 where that is the result's type."""
    return round_half(x) if dtype.name == "Float16" else x
