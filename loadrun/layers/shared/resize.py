"""Resizing of axes: by a small matrix of weights where sizes are known, else by positions computed in the graph."""

from __future__ import annotations

from math import ceil

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array, plain
from ...ops.registry import pay
from ...tensors import Tensor, const
from ...tensors.access import dtype_of
from .. import emit as e
from ..emit import M
from ..exact_products import product

_BLOCK = 1 << 16
"""Shares that are computed at once."""


def _positions(i: Tensor, size: int, out: int, scale: float | None, corners: bool) -> Tensor:
    """Return where in the input the elements `i` of the output are; by a scale, or else by out / size."""
    one, half = e.number(1.0, i), e.number(0.5, i)
    if corners:
        steps = e.elem(M.SUB, e.like(out, i), one)
        flat = e.compare(P.ElemwiseMultiTypeMode.EQ, steps, e.number(0.0, steps))
        steps = e.where(flat, e.number(np.inf, steps), steps)
        return e.elem(M.TRUE_DIV, e.elem(M.MUL, i, e.elem(M.SUB, e.like(size, i), one)), steps)
    ratio = e.elem(M.TRUE_DIV, e.like(out, i), e.like(size, i)) if scale is None else e.number(scale, i)
    return e.elem(M.SUB, e.elem(M.TRUE_DIV, e.elem(M.ADD, i, half), ratio), half)


def resized(x: Tensor, axis: int, out: int, scale: float | None, *, corners: bool, cubic: bool) -> Tensor:
    """Return one axis resized.

    Args:
        x: the tensor, of floats.
        axis: the axis.
        out: its new size.
        scale: by which positions are computed; None for out / size.
        corners: whether the outermost elements stay where they are.
        cubic: whether four neighbours are mixed, by a cubic kernel, or two.
    """
    size = x.shape[axis]
    at = _positions(e.as_float(e.arange(out)), size, out, scale, corners)
    last = e.like(size - 1, at)

    def taken(places: Tensor) -> Tensor:
        bounded = e.elem(M.MIN, last, e.elem(M.MAX, e.number(0.0, places), places))
        return e.gather(x, [(axis, e.cast(bounded, "int32"))])

    low = e.elem(M.FLOOR, at)
    t = e.elem(M.SUB, at, low)
    shares = cubic_shares(t) if cubic else [(0, e.elem(M.SUB, e.number(1.0, t), t)), (1, t)]
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    total: Tensor | None = None
    for step, share in shares:
        part = taken(e.elem(M.ADD, low, e.number(float(step), low)))
        part = e.elem(M.MUL, part, e.reshape(share, shape) if x.ndim > 1 else share)
        total = part if total is None else e.elem(M.ADD, total, part)
    assert total is not None
    return total


def cubic_shares(t: Tensor) -> list[tuple[int, Tensor]]:
    """Return the four neighbours of a position and their shares in a cubic kernel, `t` behind the second one."""
    one, a = e.number(1.0, t), -0.75

    def near(d: Tensor) -> Tensor:
        inner = e.elem(M.SUB, e.elem(M.MUL, e.number(a + 2, d), d), e.number(a + 3, d))
        return e.elem(M.ADD, e.elem(M.MUL, e.elem(M.MUL, inner, d), d), one)

    def far(d: Tensor) -> Tensor:
        inner = e.elem(M.SUB, e.elem(M.MUL, e.number(a, d), d), e.number(5 * a, d))
        inner = e.elem(M.ADD, e.elem(M.MUL, inner, d), e.number(8 * a, d))
        return e.elem(M.SUB, e.elem(M.MUL, inner, d), e.number(4 * a, d))

    return [
        (-1, far(e.elem(M.ADD, t, one))),
        (0, near(t)),
        (1, near(e.elem(M.SUB, one, t))),
        (2, far(e.elem(M.SUB, e.number(2.0, t), t))),
    ]


def axis_weights(
    at: Array, size: int, a: float | None = None, stretch: float = 1.0, *, exclude: bool = False
) -> Array:
    """Return the share (out, size) that every element of an axis has in every new one.

    Args:
        at: where among the elements the new ones lie.
        size: how many elements there are.
        a: the coefficient of the cubic kernel, None for the linear one.
        stretch: by how much the kernel is wider than the distance of the elements, against aliasing.
        exclude: leave out what lies beyond the ends, which counts for the outermost elements else.

    >>> axis_weights(np.array([0.25, 1.5]), 2).tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """
    reach = (1 if a is None else 2) * stretch
    count = ceil(2 * reach) + 2
    pay(8 * len(at) * size + 64 * count, 100 * len(at))
    result = np.zeros((len(at), size))
    # What is far outside is the outermost element, wherever it lies.
    centers = np.clip(np.asarray(at, np.float64), -2 * reach - 2, size + 2 * reach + 2)[:, None]
    steps = np.arange(count)
    rows = max(_BLOCK // count, 1)
    for first in range(0, len(at), rows):
        center = centers[first : first + rows]
        taps = np.floor(center - reach).astype(np.int64) + steps
        shares = shares_at(np.abs(taps - center) / stretch, a)
        if exclude:
            shares = np.where((taps >= 0) & (taps < size), shares, 0.0)
        if stretch > 1 or exclude:
            total = shares.sum(1, keepdims=True)
            shares = np.divide(shares, total, out=shares, where=total != 0)
        np.add.at(result, (first + np.arange(len(center))[:, None], np.clip(taps, 0, size - 1)), shares)
    return result


def shares_at(x: Array, a: float | None) -> Array:
    """Return the kernel at distances, the linear one without `a`."""
    if a is None:
        return np.asarray(np.maximum(1 - x, 0))
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def weighted(x: Tensor, axis: int, weights: Array) -> Tensor:
    """Return an axis replaced by weighted sums of its elements; weights are (new size, old size).

    >>> weighted(Tensor([[1.0], [3.0]]), 0, np.array([[0.5, 0.5]])).tolist()
    [[2.0]]
    """
    order = [i for i in range(x.ndim) if i != axis] + [axis]
    turned = const(
        np.ascontiguousarray(weights.T), plain("Float64" if dtype_of(x).name == "Float64" else "Float32")
    )
    if axis == x.ndim - 1:
        return product(x, turned)
    return e.permute(product(e.permute(x, order), turned), [order.index(i) for i in range(x.ndim)])
