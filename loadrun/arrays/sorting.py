"""Lowerings of sorting, quantiles and searching."""

from typing import Any

import numpy as np

from ..graph import params as P
from ..layers import emit as e
from ..layers.emit import M, elem
from ..tensors import Tensor, apply
from ..tensors.access import as_vector, dtype_of
from ..tensors.naming import refused
from .arithmetic import rint
from .axes import axes_of
from .manipulation import moved
from .promotion import common, narrow, operand
from .reductions import flat_or
from .registry import lowers

_LT, _LEQ = P.ElemwiseMultiTypeMode.LT, P.ElemwiseMultiTypeMode.LEQ


def _sorted_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return values and positions in ascending order along the last axis."""
    rows = e.reshape(x, (-1, x.shape[-1])) if len(e.sizes(x)) != 2 else x
    values, places = apply(
        "Argsort",
        P.Argsort(order=P.ArgsortOrder.ASCENDING),
        inputs=[e.as_float(rows) if e.is_float(x) else e.whole(rows)],
        n=2,
        scalar=False,
    )
    return e.reshape(e.cast(values, dtype_of(x)), x.shape), e.reshape(places, x.shape)


def _ordered(a: Any, axis: Any, which: int) -> Tensor:
    x, at = flat_or(a, axis, strict=which == 0)
    order = moved(len(e.sizes(x)), [at], [len(e.sizes(x)) - 1])
    result = _sorted_rows(e.permute(x, order))[which]
    return e.permute(result, [int(i) for i in np.argsort(order)])


@lowers("sort")
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Tensor:
    """Sort in ascending order."""
    return _ordered(a, axis, 0)


@lowers("argsort")
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Tensor:
    """Return the positions that sort; equal elements keep their order."""
    return _ordered(a, axis, 1)


@lowers("partition")
def partition(a: Any, kth: Any, axis: Any = -1, kind: Any = None, order: Any = None) -> Tensor:
    """Sort, which is also a partition."""
    return _ordered(a, axis, 0)


@lowers("argpartition")
def argpartition(a: Any, kth: Any, axis: Any = -1, kind: Any = None, order: Any = None) -> Tensor:
    """Return the positions that sort, which partition, too."""
    return _ordered(a, axis, 1)


# Quantiles


def rows_of(a: Any, axis: Any) -> tuple[Tensor, list[int]]:
    """Sort floats with the reduced axes joined as the last one; give the axes, too."""
    x = operand(a)
    x = x if e.is_float(x) else e.as_float(x)
    x = as_vector(x)
    ndim = len(e.sizes(x))
    axes = axes_of(axis, ndim)
    rest = [i for i in range(ndim) if i not in axes]
    y = e.permute(x, [*rest, *axes])
    if len(axes) != 1:
        y = e.reshape(y, (*(x.shape[i] for i in rest), -1))
    return _sorted_rows(y)[0], axes


def _back(result: Tensor, axes: list[int], keepdims: Any, lead: int = 0) -> Tensor:
    return e.add_axes(result, [i + lead for i in axes]) if keepdims else result


@lowers("median")
def median(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False
) -> Tensor:
    """Return the middle value, or the mean of both."""
    if isinstance(a, (list, tuple)):
        a = operand(a)
    y, axes = rows_of(a, axis)
    n, last = y.shape[-1], len(e.sizes(y)) - 1
    low = e.subtensor(y, [(last, None, None, None, (n - 1) // 2)])
    high = e.subtensor(y, [(last, None, None, None, n // 2)])
    # Half of each, not half of the sum: the sum may overflow.
    half = e.number(0.5, y)
    middle = elem(M.ADD, elem(M.MUL, low, half), elem(M.MUL, high, half))
    return _back(middle, axes, keepdims)


_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


@lowers("quantile")
def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = False,
    *,
    weights: Any = None,
    interpolation: Any = None,
) -> Tensor:
    """Return values below which lies a share of the elements."""
    method = interpolation or method
    if method not in _METHODS or weights is not None:
        raise refused(
            f"np.quantile has no lowering for {'weights' if weights is not None else f'method {method!r}'}",
            way_out=f"use method {', '.join(_METHODS)}",
        )
    y, axes = rows_of(a, axis)
    share = operand(q, np.float32)
    last = len(e.sizes(y)) - 1
    end = e.like(y.shape[-1] - 1, share)
    place = elem(M.MUL, share, end)
    # A number that is whole up to rounding counts as whole.
    whole = elem(M.ROUND, place)
    near = e.compare(
        _LEQ,
        elem(M.ABS, elem(M.SUB, place, whole)),
        elem(M.MUL, e.number(4e-7, place), elem(M.MAX, place, e.number(1, place))),
    )
    place = e.where(near, whole, place)
    low = elem(M.FLOOR, place)
    high = elem(M.CEIL, place)
    part = elem(M.SUB, place, low)
    if method == "midpoint":
        part = elem(M.MUL, e.number(0.5, part), elem(M.LT, e.number(0, part), part))
    elif method == "nearest":
        low = high = rint(place)
    elif method in ("lower", "higher"):
        low = high = low if method == "lower" else high
    first = e.gather(y, [(last, low)])
    result = first
    if method in ("linear", "midpoint"):
        second = e.gather(y, [(last, high)])
        result = elem(M.ADD, first, elem(M.MUL, elem(M.SUB, second, first), e.cast(part, dtype_of(y))))
    lead = len(e.sizes(share))
    if lead:
        result = e.permute(result, [*range(last, last + lead), *range(last)])
    return _back(result, axes, keepdims, lead)


@lowers("percentile")
def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = False,
    *,
    weights: Any = None,
    interpolation: Any = None,
) -> Tensor:
    """Do `quantile` with hundredths."""
    if isinstance(q, Tensor):
        q = elem(M.TRUE_DIV, e.as_float(q), e.number(100, e.as_float(q)))
    else:
        q = np.true_divide(q, 100)
    return quantile(a, q, axis, None, False, method, keepdims, weights=weights, interpolation=interpolation)


# Searching


@lowers("searchsorted")
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Tensor:
    """Tell where values belong in a sorted vector, by counting; compares every pair."""
    kind = narrow(common([a, v]))
    x, y = operand(a, kind), operand(v, kind)
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got '{side}')")
    if sorter is not None:
        x = e.gather(x, [(0, operand(sorter))])
    # How many elements lie below each value or, from the right, are not above it.
    below = e.compare(_LT if side == "left" else _LEQ, x, e.add_axes(y, [len(e.sizes(y))]))
    return e.reduce(e.cast(below, "int32"), P.ReduceMode.SUM, [len(e.sizes(below)) - 1])


@lowers("digitize")
def digitize(x: Any, bins: Any, right: bool = False) -> Tensor:
    """Return the bin of each value; the bins are known when tracing."""
    if isinstance(bins, Tensor):
        raise refused("np.digitize is traced for bins that are known", way_out="use np.searchsorted")
    edges = np.asarray(bins)
    side = "left" if right else "right"
    if (np.diff(edges) >= 0).all():
        return searchsorted(edges, x, side)
    if not (np.diff(edges) <= 0).all():
        raise ValueError("bins must be monotonically increasing or decreasing")
    result = searchsorted(edges[::-1], x, side)
    return elem(M.SUB, e.number(len(edges), result), result)
