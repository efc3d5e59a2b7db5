"""Images sampled at the positions of a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import product as combinations
from math import prod

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ...ops.registry import pay
from ...tensors import Tensor, const
from ...tensors.access import dtype_of
from .. import emit as e
from ..emit import M
from ..products import product


def affine_grid(theta: Tensor, count: int, space: Sequence[int], *, align: bool) -> Tensor:
    """Return the positions (N, ..., n) of an image's cells, from -1 to 1, moved by matrices.

    Args:
        theta: (N, n, n + 1), float32 or float64.
        count: N.
        space: the image's n sizes.
        align: put the first and the last cells at -1 and 1, instead of their outer edges.

    >>> affine_grid(Tensor([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]]), 1, [1, 2], align=False).tolist()
    [[[[0.0, 0.0], [1.0, 0.0]]]]
    """
    pay(16 * len(space) * prod(map(int, space)))
    axes = []
    for size in space:
        if align:
            axes.append(np.linspace(-1, 1, size) if size > 1 else np.zeros(1))
        else:
            axes.append((2 * np.arange(size) + 1) / size - 1)
    grid = np.meshgrid(*axes, indexing="ij")
    # x comes first, which is the last axis.
    points = np.stack([*(g.reshape(-1) for g in grid[::-1]), np.ones(int(np.prod(space)))], 0)
    turned = e.permute(product(theta, const(points, dtype_of(theta))), (0, 2, 1))
    return e.reshape(turned, (count, *space, len(space)))


def grid_sampled(x: Tensor, grid: Tensor, mode: str, padding: str, *, align: bool) -> Tensor:
    """Return elements at the positions of a grid.

    Args:
        x: (N, C, ...) with n axes of space, floats, as the grid; every step rounds to their dtype.
        grid: (N, ..., n), from -1 to 1, the last axis of space first.
        mode: "linear", "nearest" or "cubic".
        padding: what stands outside: "zeros", "border" or "reflection".
        align: -1 and 1 are the middles of the outermost elements, instead of their edges.

    >>> x, grid = Tensor([[[[1.0, 2.0]]]]), Tensor([[[[0.0, 0.0], [0.5, 0.0]]]])
    >>> grid_sampled(x, grid, "linear", "border", align=False).tolist()
    [[[[1.5, 2.0]]]]
    """
    n = x.ndim - 2
    points = []
    for i in range(n):
        g = e.subtensor(grid, [(grid.ndim - 1, None, None, None, n - 1 - i)])
        points.append(_denormalized(g, x.shape[2 + i], align))
    rule = partial(_placed, padding=padding, align=align)
    if mode == "cubic":
        return _cubic(x, points, padding, rule)
    places = [rule(p, x.shape[2 + i]) for i, p in enumerate(points)]
    if mode == "nearest":
        return _cell(x, [e.rint(p) for p in places], None, padding == "zeros")
    return _linear(x, places)


def matrix_of(places: Array, shares: Array, size: int) -> Array:
    """Return the shares (out, T) that elements at places have as a matrix (out, size).

    >>> matrix_of(np.array([[0, 1]]), np.array([[0.25, 0.75]]), 3).tolist()
    [[0.25, 0.75, 0.0]]
    """
    pay(8 * len(places) * size + 64 * places.size)
    result = np.zeros((len(places), size))
    np.add.at(result, (np.arange(len(places))[:, None], places), shares)
    return result


def _denormalized(g: Tensor, size: int, align: bool) -> Tensor:
    up = e.elem(M.ADD, g, e.number(1.0, g))
    half = e.number(0.5, g)
    if align:
        return e.elem(M.MUL, e.elem(M.MUL, up, half), e.like(size - 1, g))
    wide = e.elem(M.SUB, e.elem(M.MUL, up, e.like(size, g)), e.number(1.0, g))
    return e.elem(M.MUL, wide, half)


def clipped(x: Tensor, low: float, high: Tensor) -> Tensor:
    """Return positions between two bounds."""
    return e.elem(M.MIN, high, e.elem(M.MAX, e.number(low, x), x))


def _placed(p: Tensor, size: int, padding: str, align: bool) -> Tensor:
    """Return positions as the padding has them: outside stays outside for zeros, but not so far that integers end."""
    last = e.like(size - 1, p)
    if padding == "zeros":
        return clipped(p, -2.0, e.elem(M.ADD, last, e.number(2.0, p)))
    if padding == "reflection":
        p = _reflected(p, size, align)
    return clipped(e.where(e.is_nan(p), e.number(0.0, p), p), 0.0, last)


def _reflected(p: Tensor, size: int, align: bool) -> Tensor:
    """Return positions mirrored at the edges, which lie half a cell out unless corners are aligned."""
    low = 0.0 if align else -0.5
    span = e.like(size - 1 if align else size, p)
    safe = e.elem(M.MAX, e.number(1e-6, span), span)
    away = e.elem(M.ABS, e.elem(M.SUB, p, e.number(low, p)))
    double = e.elem(M.ADD, safe, safe)
    turns = e.elem(M.FLOOR, e.elem(M.TRUE_DIV, away, double))
    rest = e.elem(M.SUB, away, e.elem(M.MUL, turns, double))
    back = e.elem(M.MIN, rest, e.elem(M.SUB, double, rest))
    return e.elem(M.ADD, back, e.number(low, back))


def _linear(x: Tensor, places: list[Tensor]) -> Tensor:
    """Return the weighted sum of the 2**n cells around positions of shape (N, ...)."""
    taps = []
    for p in places:
        base, one = e.elem(M.FLOOR, p), e.number(1.0, p)
        t = e.elem(M.SUB, p, base)
        taps.append([(base, e.elem(M.SUB, one, t)), (e.elem(M.ADD, base, one), t)])
    parts = []
    for chosen in combinations(*taps):
        # The last axis first, as torch multiplies.
        weight = reduce(partial(e.elem, M.MUL), [share for _, share in reversed(chosen)])
        # Cells beyond the last are 0 with any padding: infinity times 0 would be NaN.
        parts.append(_cell(x, [at for at, _ in chosen], weight, True))
    return reduce(partial(e.elem, M.ADD), parts)


def _cubic(x: Tensor, points: list[Tensor], padding: str, rule: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Return the weighted sums of four cells along the last axis, weighted along the first."""
    taps = []
    for i, p in enumerate(points):
        base = e.elem(M.FLOOR, p)
        shares = _cubic_shares(e.elem(M.SUB, p, base))
        at = [rule(e.elem(M.ADD, base, e.number(float(k), base)), x.shape[2 + i]) for k, _ in shares]
        taps.append([*zip(at, (share for _, share in shares), strict=True)])
    add, rows = partial(e.elem, M.ADD), []
    for row, share in taps[0]:
        cells = [_cell(x, [row, column], weight, padding == "zeros") for column, weight in taps[1]]
        rows.append(e.elem(M.MUL, reduce(add, cells), e.add_axes(share, [1])))
    return reduce(add, rows)


def _cubic_shares(t: Tensor) -> list[tuple[int, Tensor]]:
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


def _cell(x: Tensor, at: list[Tensor], weight: Tensor | None, bounded: bool) -> Tensor:
    """Return the cells at whole positions (N, ...), as (N, C, ...); bounded, those outside are 0."""
    rank = at[0].ndim
    batch = e.reshape(e.arange(x.shape[0]), (-1, *[1] * (rank - 1)))
    ids = [(0, batch)]
    inside: list[Tensor] = []
    for i, p in enumerate(at):
        size = x.shape[2 + i]
        last = e.like(size - 1, p)
        nearest = clipped(p, 0.0, last)
        inside.append(e.compare(P.ElemwiseMultiTypeMode.EQ, nearest, p))
        index = e.cast(nearest, "int32")
        # NaN is no index; weights keep it.
        ids.append((2 + i, e.elem(M.MAX, index, e.number(0, index))))
    # (N, ..., C), for the indexed axes do not lie together.
    result = e.gather(x, ids)
    if bounded:
        mask = e.add_axes(reduce(partial(e.elem, M.AND), inside), [rank])
        result = e.where(mask, result, e.number(0, result))
    if weight is not None:
        result = e.elem(M.MUL, result, e.add_axes(weight, [rank]))
    return e.permute(result, (0, rank, *range(1, rank)))
