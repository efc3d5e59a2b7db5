"""Lowerings of counting, histograms and correlation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..build import emit as e
from ..build.emit import M, elem, number, summed
from ..build.exact_products import product
from ..graph import params as P
from ..tensors import Tensor
from ..tensors.access import dtype_of
from ..tensors.naming import refused
from .promotion import common, narrow, operand, stacked
from .reductions import element_count, extreme, mean_of
from .registry import lowers
from .selection import diag
from .sorting import counted_below

__all__: list[str] = []

_C = P.ElemwiseMultiTypeMode


def _counts(places: Tensor, bins: int, weights: Tensor | None) -> Tensor:
    """Return how often each number below `bins` occurs in an int32 vector, or the sum of weights."""
    one = number(1, places) if weights is None else weights
    start = e.full(number(0, one), (bins,))
    return e.scatter(start, e.broadcast(one, places.shape), [(0, places)], add=True)


@lowers("bincount")
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Tensor:
    """Return how often each number occurs, of uint8 arrays and with ``minlength=256``, so that the length is known."""
    values = operand(x)
    if dtype_of(values).name != "Uint8" or int(minlength) < 256:
        raise refused(
            "np.bincount of a traced array",
            "the number of results depends on the data",
            "give uint8 numbers and minlength=256, or sum a comparison with a known range",
        )
    w = None if weights is None else e.flat(operand(weights, np.float32))
    return _counts(e.cast(e.flat(values), "int32"), int(minlength), w)


def _edges(x: Tensor, bins: Any, bounds: Any) -> Tensor:
    if isinstance(bins, str):
        raise refused("np.histogram is traced for a number of bins, or their edges")
    if np.ndim(bins):
        return operand(bins, np.float32)
    if bounds is not None:
        low, high = (float(v) for v in bounds)
        if low == high:
            low, high = low - 0.5, high + 0.5
        return operand(np.linspace(low, high, int(bins) + 1), np.float32)
    low_, high_ = extreme(x, False, [0]), extreme(x, True, [0])
    same = e.compare(_C.EQ, low_, high_)
    half = e.where(same, number(0.5, x), number(0, x))
    low_, high_ = elem(M.SUB, low_, half), elem(M.ADD, high_, half)
    shares = operand(np.linspace(0, 1, int(bins) + 1), np.float32)
    inside = elem(M.ADD, elem(M.MUL, shares, elem(M.SUB, high_, low_)), low_)
    # The last edge is exactly the largest value.
    return e.concat([e.subtensor(inside, [(0, None, -1, None, None)]), e.reshape(high_, (1,))], 0)


@lowers("histogram")
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Tensor, Tensor]:
    """Return how many values are between edges; numbers next to an edge are judged in float32."""
    x = e.flat(e.real(operand(a)))
    edges = _edges(x, bins, range)
    n = e.sizes(edges)[0] - 1
    below = counted_below(edges, x, "right")
    last = e.subtensor(edges, [(0, None, None, None, -1)])
    place = elem(M.SUB, below, number(1, below))
    place = e.where(e.compare(_C.EQ, x, last), number(n - 1, place), place)
    outside = elem(
        M.OR, e.compare(_C.LT, place, number(0, place)), e.compare(_C.LT, number(n - 1, place), place)
    )
    place = e.where(outside, number(n, place), place)
    w = None if weights is None else e.flat(operand(weights, np.float32))
    result = e.subtensor(_counts(place, n + 1, w), [(0, None, n, None, None)])
    if density:
        wide = e.real(result)
        width = elem(
            M.SUB,
            e.subtensor(edges, [(0, 1, None, None, None)]),
            e.subtensor(edges, [(0, None, -1, None, None)]),
        )
        result = elem(M.TRUE_DIV, elem(M.TRUE_DIV, wide, width), summed(wide, [0]))
    return result, edges


@lowers("isin", "in1d", arrays=True)
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Tensor:
    """Return which elements occur in another array; compares every pair."""
    dtype = narrow(common([element, test_elements]))
    x, values = operand(element, dtype), e.flat(operand(test_elements, dtype))
    wide = e.add_axes(x, [len(e.sizes(x))])
    same = e.logical_not(elem(M.XOR, wide, values)) if e.is_bool(x) else e.compare(_C.EQ, wide, values)
    any_ = e.reduce(e.cast(same, "int32"), P.ReduceMode.MAX, [len(e.sizes(same)) - 1])
    result = e.cast(any_, "bool")
    return e.logical_not(result) if invert else result


def _rows(m: Any, y: Any, rowvar: bool) -> Tensor:
    x = operand(stacked(m), np.float32)
    x = e.reshape(x, (1, -1)) if len(e.sizes(x)) == 1 else x if rowvar else e.permute(x, [1, 0])
    return x if y is None else e.concat([x, _rows(y, None, rowvar)], 0)


@lowers("cov", arrays=True)
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Tensor:
    """Return covariances of the rows."""
    if fweights is not None or aweights is not None:
        raise refused("np.cov is traced without weights")
    x = _rows(m, y, rowvar)
    x = elem(M.SUB, x, mean_of(x, [1], True))
    less = (0 if bias else 1) if ddof is None else int(ddof)
    count = element_count(x, [1])
    result = elem(M.TRUE_DIV, product(x, e.permute(x, [1, 0])), e.like(count - less, x))
    return e.reshape(result, ()) if e.sizes(result) == (1, 1) else result


@lowers("corrcoef")
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Tensor:
    """Return correlations of the rows."""
    c = cov(x, y, rowvar)
    if not e.sizes(c):
        return elem(M.TRUE_DIV, c, c)
    width = elem(M.SQRT, operand(diag(c)))
    result = elem(M.TRUE_DIV, elem(M.TRUE_DIV, c, e.add_axes(width, [1])), width)
    return elem(M.MAX, elem(M.MIN, result, number(1, result)), number(-1, result))


@lowers("polyval")
def polyval(p: Any, x: Any) -> Tensor:
    """Return a polynomial with the highest power first, by Horner's rule."""
    kind = narrow(common([p, x]))
    y = operand(x, kind)
    parts = operand(p, kind)
    result = elem(M.MUL, y, number(0, y))
    for i in range(e.sizes(parts)[0]):
        result = elem(M.ADD, elem(M.MUL, result, y), e.subtensor(parts, [(0, None, None, None, i)]))
    return result
