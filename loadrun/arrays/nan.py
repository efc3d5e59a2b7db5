"""Lowerings of the numpy functions that pass over NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..build import emit as e
from ..build.emit import M, elem, is_float, kept, number, summed
from ..graph import params as P
from ..tensors import Tensor
from ..tensors.access import dtype_of
from ..tensors.naming import refused
from .axes import axes_of
from .promotion import operand
from .reductions import argmax, argmin, cumprod, cumsum, extreme, max_, min_, prod, sum_
from .registry import lowers
from .selection import along
from .sorting import rows_of

__all__: list[str] = []


def _replaced(a: Any, value: float) -> Tensor:
    x = operand(a)
    return e.where(e.is_nan(x), number(value, x), x) if is_float(x) else x


def _as_float(a: Any, dtype: Any = None) -> Tensor:
    x = operand(a, dtype)
    return x if is_float(x) else e.real(x)


def _count_numbers(x: Tensor, axes: Sequence[int], keepdims: Any) -> Tensor:
    """Return how many values along axes are numbers."""
    return summed(e.real(e.logical_not(e.is_nan(x))), axes, keepdims)


@lowers("nansum")
def nansum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = True,
) -> Tensor:
    """Return the sum of what is a number."""
    return sum_(_replaced(a, 0), axis, dtype, None, keepdims, initial, where)


@lowers("nanprod")
def nanprod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = True,
) -> Tensor:
    """Return the product of what is a number."""
    return prod(_replaced(a, 1), axis, dtype, None, keepdims, initial, where)


@lowers("nancumsum")
def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Tensor:
    """Return the running sum of what is a number."""
    return cumsum(_replaced(a, 0), axis, dtype)


@lowers("nancumprod")
def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Tensor:
    """Return the running product of what is a number."""
    return cumprod(_replaced(a, 1), axis, dtype)


def _nan_extreme(a: Any, axis: Any, keepdims: Any, largest: bool) -> Tensor:
    x = operand(a)
    axes = axes_of(axis, len(e.sizes(x)))
    if not is_float(x):
        return extreme(x, largest, axes, keepdims)
    result = extreme(_replaced(x, -np.inf if largest else np.inf), largest, axes, keepdims)
    some = _count_numbers(x, axes, keepdims)
    none = e.compare(P.ElemwiseMultiTypeMode.EQ, some, number(0, some))
    return e.where(none, number(np.nan, result), result)


@lowers("nanmax")
def nanmax(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = True
) -> Tensor:
    """Return the largest number; NaN where there is none."""
    if initial is not None or where is not True:
        return max_(_replaced(a, -np.inf), axis, None, keepdims, initial, where)
    return _nan_extreme(a, axis, keepdims, True)


@lowers("nanmin")
def nanmin(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = True
) -> Tensor:
    """Return the smallest number; NaN where there is none."""
    if initial is not None or where is not True:
        return min_(_replaced(a, np.inf), axis, None, keepdims, initial, where)
    return _nan_extreme(a, axis, keepdims, False)


@lowers("nanargmax")
def nanargmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Tensor:
    """Return the position of the largest number; numpy's error where there is none is not raised."""
    return argmax(_replaced(a, -np.inf), axis, keepdims=keepdims)


@lowers("nanargmin")
def nanargmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Tensor:
    """Return the position of the smallest number; numpy's error where there is none is not raised."""
    return argmin(_replaced(a, np.inf), axis, keepdims=keepdims)


@lowers("nanmean")
def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True
) -> Tensor:
    """Return the mean of what is a number."""
    x = _as_float(a, dtype)
    if where is not True:
        x = e.where(operand(where, np.bool_), x, number(np.nan, x))
    wide = e.real(x)
    axes = axes_of(axis, len(e.sizes(x)))
    total = summed(_replaced(wide, 0), axes, keepdims)
    return e.cast(elem(M.TRUE_DIV, total, _count_numbers(wide, axes, keepdims)), dtype_of(x))


def _sorted_rows(a: Any, axis: Any) -> tuple[Tensor, Tensor, list[int]]:
    """Sort rows with infinity for NaN; give how many numbers each has, and the reduced axes, too."""
    x = _as_float(a)
    # MegEngine's sort puts NaN anywhere.
    y, axes = rows_of(_replaced(x, np.inf), axis)
    count = _count_numbers(e.real(x), axes, False)
    return y, e.add_axes(count, [len(e.sizes(y)) - 1]), axes


def _at_share(y: Tensor, count: Tensor, share: Tensor) -> Tensor:
    """Return the quantile of the numbers of each row, NaN where there are none."""
    last = len(e.sizes(y)) - 1
    zero = number(0, count)
    place = elem(M.MUL, share, elem(M.MAX, elem(M.SUB, count, number(1, count)), zero))
    low = elem(M.FLOOR, place)
    part = e.cast(elem(M.SUB, place, low), dtype_of(y))
    first = along(y, e.cast(low, "int32"), last)
    second = along(y, e.cast(elem(M.CEIL, place), "int32"), last)
    result = elem(M.ADD, first, elem(M.MUL, elem(M.SUB, second, first), part))
    # Where both are the same infinity there is no distance.
    result = e.where(e.compare(P.ElemwiseMultiTypeMode.EQ, first, second), first, result)
    none = e.compare(P.ElemwiseMultiTypeMode.EQ, count, zero)
    return e.drop_axes(e.where(none, number(np.nan, result), result), [last])


@lowers("nanmedian")
def nanmedian(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False
) -> Tensor:
    """Return the middle number; NaN where there is none."""
    y, count, axes = _sorted_rows(a, axis)
    return kept(_at_share(y, count, number(0.5, count)), axes, keepdims)


@lowers("nanquantile")
def nanquantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = False,
) -> Tensor:
    """Return values below which lies a share of the numbers, linearly interpolated."""
    if method != "linear":
        raise refused(f"np.nanquantile has no lowering for method {method!r}", way_out="use method linear")
    y, count, axes = _sorted_rows(a, axis)
    shares = np.asarray(q, np.float32)
    parts = [
        kept(_at_share(y, count, number(float(share), count)), axes, keepdims) for share in shares.reshape(-1)
    ]
    if not shares.ndim:
        return parts[0]
    whole = e.concat([e.add_axes(p, [0]) for p in parts], 0)
    return e.reshape(whole, (*shares.shape, *whole.shape[1:]))


@lowers("nanpercentile")
def nanpercentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = False,
) -> Tensor:
    """Do `nanquantile` with hundredths."""
    return nanquantile(a, np.true_divide(q, 100), axis, None, False, method, keepdims)


def _nan_variance(a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any) -> tuple[Tensor, Tensor]:
    """Return the variance in float32, and a tensor of the dtype that it shall have."""
    x = _as_float(a, dtype)
    wide = e.real(x)
    axes = axes_of(axis, len(e.sizes(x)))
    middle = elem(M.TRUE_DIV, summed(_replaced(wide, 0), axes, True), _count_numbers(wide, axes, True))
    squares = elem(M.SQUARE, elem(M.SUB, wide, middle))
    squares = e.where(e.is_nan(wide), number(0, wide), squares)
    count = _count_numbers(wide, axes, keepdims)
    count = elem(M.SUB, count, number(ddof, count)) if ddof else count
    result = elem(M.TRUE_DIV, summed(squares, axes, keepdims), count)
    few = e.compare(P.ElemwiseMultiTypeMode.LEQ, count, number(0, count))
    return e.where(few, number(np.nan, result), result), x


@lowers("nanvar")
def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False
) -> Tensor:
    """Return the variance of what is a number."""
    result, x = _nan_variance(a, axis, dtype, ddof, keepdims)
    return e.cast(result, dtype_of(x))


@lowers("nanstd")
def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False
) -> Tensor:
    """Return the standard deviation of what is a number."""
    result, x = _nan_variance(a, axis, dtype, ddof, keepdims)
    return e.cast(elem(M.SQRT, result), dtype_of(x))
