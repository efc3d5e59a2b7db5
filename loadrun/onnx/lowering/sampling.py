"""Pictures sampled at computed positions: grids, affine grids, regions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations
from math import prod

import numpy as np

from ...arrays.arithmetic import rint
from ...build import emit as e
from ...build.vision import roi_pooling
from ...graph import params as P
from ...graph.dtypes import Array
from ...ops.budget import pay
from ...tensors import Tensor, const
from ..call import NodeCall, lower
from ..values import UnsupportedNodeError
from .linalg import matmul
from .parts import M, cast, const_like

__all__: list[str] = []

_EQ = P.ElemwiseMultiTypeMode.EQ


@lower("AffineGrid")
def _affine_grid(c: NodeCall) -> Tensor:
    """Positions of a picture's cells, from -1 to 1, turned by a matrix (N, 2, 3) or (N, 3, 4)."""
    theta = c.t(0)
    n, _, *space = c.integers(1, "size")
    axes = []
    pay(16 * len(space) * prod(space))
    for size in space:
        if c.number("align_corners"):
            axes.append(np.linspace(-1, 1, size) if size > 1 else np.zeros(1))
        else:
            axes.append((2 * np.arange(size) + 1) / size - 1)
    grid = np.meshgrid(*axes, indexing="ij")
    # x comes first, which is the last axis.
    points = np.stack([*(g.reshape(-1) for g in grid[::-1]), np.ones(int(np.prod(space)))], 0)
    y = matmul(cast(theta, "float32"), const(points.astype(np.float32)))
    turned = e.permute(y, (0, 2, 1))
    return cast(e.reshape(turned, (n, *space, len(space))), theta._dtype)


# GridSample


@lower("GridSample")
def _grid_sample(c: NodeCall) -> Tensor:
    x, grid = cast(c.t(0), "float32"), cast(c.t(1), "float32")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(c.text("mode", "linear"), c.text("mode", "linear"))
    padding = c.text("padding_mode", "zeros")
    align = bool(c.number("align_corners"))
    if mode not in ("linear", "nearest", "cubic") or padding not in ("zeros", "border", "reflection"):
        raise UnsupportedNodeError(f"its mode {mode!r} or padding_mode {padding!r} is unknown")
    n = x.ndim - 2
    places = []
    for i in range(n):
        # The last axis of space comes first in the grid.
        g = e.subtensor(grid, [(grid.ndim - 1, None, None, None, n - 1 - i)])
        places.append(_denormalized(g, x.shape[2 + i], align))
    if mode != "cubic":
        places = [_placed(p, x.shape[2 + i], padding, align) for i, p in enumerate(places)]
    return cast(_sampled(x, places, mode, padding, align), c.t(0)._dtype)


def _denormalized(g: Tensor, size: int, align: bool) -> Tensor:
    up = e.elem(M.ADD, g, const_like(1.0, g))
    half = const_like(0.5, g)
    if align:
        return e.elem(M.MUL, e.elem(M.MUL, up, half), e.like(size - 1, g))
    wide = e.elem(M.SUB, e.elem(M.MUL, up, e.like(size, g)), const_like(1.0, g))
    return e.elem(M.MUL, wide, half)


def _clipped(x: Tensor, low: float, high: Tensor) -> Tensor:
    return e.elem(M.MIN, high, e.elem(M.MAX, const_like(low, x), x))


def _placed(p: Tensor, size: int, padding: str, align: bool) -> Tensor:
    """Positions as the padding has them: outside stays outside for zeros, but not so far that integers end."""
    last = e.like(size - 1, p)
    if padding == "zeros":
        return _clipped(p, -2.0, e.elem(M.ADD, last, const_like(2.0, p)))
    if padding == "border":
        return _clipped(p, 0.0, last)
    return _clipped(_reflected(p, size, align), 0.0, last)


def _reflected(p: Tensor, size: int, align: bool) -> Tensor:
    """Positions mirrored at the edges, which lie half a cell out unless corners are aligned."""
    low = 0.0 if align else -0.5
    span = e.like(size - 1 if align else size, p)
    safe = e.elem(M.MAX, const_like(1e-6, span), span)
    away = e.elem(M.ABS, e.elem(M.SUB, p, const_like(low, p)))
    double = e.elem(M.ADD, safe, safe)
    rest = e.elem(M.SUB, away, e.elem(M.MUL, e.elem(M.FLOOR, e.elem(M.TRUE_DIV, away, double)), double))
    back = e.elem(M.SUB, safe, e.elem(M.ABS, e.elem(M.SUB, rest, safe)))
    return e.elem(M.ADD, back, const_like(low, back))


def _sampled(x: Tensor, places: list[Tensor], mode: str, padding: str, align: bool) -> Tensor:
    """The weighted sum of the cells around positions of shape (N, ...)."""
    taps: list[list[tuple[Tensor, Tensor | None]]] = []
    for i, p in enumerate(places):
        size = x.shape[2 + i]
        if mode == "nearest":
            taps.append([(rint(p), None)])
            continue
        base = e.elem(M.FLOOR, p)
        t = e.elem(M.SUB, p, base)
        if mode == "linear":
            one = e.elem(M.SUB, const_like(1.0, t), t)
            taps.append([(base, one), (e.elem(M.ADD, base, const_like(1.0, t)), t)])
            continue
        row: list[tuple[Tensor, Tensor | None]] = []
        for k, w in zip((-1, 0, 1, 2), _cubic(t), strict=True):
            at = e.elem(M.ADD, base, const_like(float(k), base))
            row.append((_placed(at, size, padding, align), w))
        taps.append(row)
    total: Tensor | None = None
    for chosen in combinations(*taps):
        weight: Tensor | None = None
        for _, factor in chosen:
            if factor is not None:
                weight = factor if weight is None else e.elem(M.MUL, weight, factor)
        part = _cell(x, [at for at, _ in chosen], weight, padding)
        total = part if total is None else e.elem(M.ADD, total, part)
    assert total is not None
    return total


def _cubic(t: Tensor, a: float = -0.75) -> list[Tensor]:
    """The four weights of cubic convolution."""
    one = const_like(1.0, t)

    def poly(v: Tensor, numbers: Sequence[float]) -> Tensor:
        result = const_like(numbers[0], v)
        for n in numbers[1:]:
            result = e.elem(M.ADD, e.elem(M.MUL, result, v), const_like(n, v))
        return result

    near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    late = e.elem(M.SUB, one, t)
    return [
        poly(e.elem(M.ADD, t, one), far),
        poly(t, near),
        poly(late, near),
        poly(e.elem(M.ADD, late, one), far),
    ]


def _cell(x: Tensor, at: list[Tensor], weight: Tensor | None, padding: str) -> Tensor:
    """The cells at whole positions (N, ...), as (N, C, ...)."""
    rank = at[0].ndim
    batch = e.reshape(e.arange(x.shape[0]), (-1, *[1] * (rank - 1)))
    ids = [(0, batch)]
    inside: Tensor | None = None
    for i, p in enumerate(at):
        size = x.shape[2 + i]
        last = e.like(size - 1, p)
        bounded = _clipped(p, 0.0, last)
        if padding == "zeros":
            ok = cast(e.compare(_EQ, bounded, p), "float32")
            inside = ok if inside is None else e.elem(M.MUL, inside, ok)
        ids.append((2 + i, cast(bounded, "int32")))
    # (N, ..., C), for the indexed axes do not lie together.
    result = e.gather(x, ids)
    for factor in (weight, inside):
        if factor is not None:
            result = e.elem(M.MUL, result, e.add_axes(factor, [rank]))
    return e.permute(result, (0, rank, *range(1, rank)))


# Regions


@lower("MaxRoiPool")
def _max_roi_pool(c: NodeCall) -> Tensor:
    shape = c.ints("pooled_shape") or [1, 1]
    return roi_pooling(c.t(0), c.t(1), shape, "max", c.real("spatial_scale", 1.0))


@lower("RoiAlign")
def _roi_align(c: NodeCall) -> Tensor:
    """Points in every bin, each from the four cells around, averaged or the largest taken."""
    x, rois = cast(c.t(0), "float32"), cast(c.t(1), "float32")
    batch = cast(c.t(2), "int32")
    half = c.opset >= 16 and c.text("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    out = c.number("output_height", 1), c.number("output_width", 1)
    scale = c.real("spatial_scale", 1.0)
    ratio = c.number("sampling_ratio")
    if ratio == 0:
        return cast(_adaptive(c, x, half, out, scale), c.t(0)._dtype)
    places = [_bins(rois, i, out[1 - i], scale, half, ratio) for i in (1, 0)]
    return cast(_pooled_points(c, x, batch, places, [ratio, ratio], out), c.t(0)._dtype)


def _adaptive(c: NodeCall, x: Tensor, half: bool, out: tuple[int, int], scale: float) -> Tensor:
    """As many points in each bin as it has cells, which only known regions tell."""
    held = c.constant(1, "regions").astype(np.float32)
    which = c.constant(2, "batch indices").astype(np.int32)
    offset = np.float32(0.5 if half else 0.0)
    result = []
    for roi, b in zip(held, which, strict=True):
        box = roi * np.float32(scale) - offset
        places, counts = [], []
        for i, n in ((1, out[0]), (0, out[1])):
            length = box[i + 2] - box[i]
            length = length if half else max(length, np.float32(1.0))
            count = max(int(np.ceil(length / n)), 1)
            steps = (np.arange(n)[:, None] + (np.arange(count)[None] + 0.5) / count) * (length / n)
            places.append(const((box[i] + steps).astype(np.float32)[None]))
            counts.append(count)
        result.append(_pooled_points(c, x, const(np.array([b], np.int32)), places, counts, out))
    return e.concat(result, 0)


def _bins(rois: Tensor, i: int, n: int, scale: float, half: bool, ratio: int) -> Tensor:
    """Positions (K, n, ratio) along one axis."""
    start, end = (e.subtensor(rois, [(1, None, None, None, k)]) for k in (i, i + 2))
    factor, offset = const_like(scale, rois), const_like(0.5 if half else 0.0, rois)
    start, end = (e.elem(M.SUB, e.elem(M.MUL, v, factor), offset) for v in (start, end))
    length = e.elem(M.SUB, end, start)
    if not half:
        length = e.elem(M.MAX, const_like(1.0, length), length)
    steps: Array = (np.arange(n)[:, None] + (np.arange(ratio)[None] + 0.5) / ratio) / n
    moved = e.elem(M.MUL, e.add_axes(length, [1, 2]), const(steps.astype(np.float32)[None]))
    return e.elem(M.ADD, e.add_axes(start, [1, 2]), moved)


def _pooled_points(
    c: NodeCall, x: Tensor, batch: Tensor, places: list[Tensor], counts: list[int], out: tuple[int, int]
) -> Tensor:
    """(K, C, OH, OW) of positions (K, OH, ny) and (K, OW, nx)."""
    corners = []
    for i, p in enumerate(places):
        size = x.shape[2 + i]
        last = e.like(size - 1, p)
        gone = e.elem(
            M.OR,
            e.compare(P.ElemwiseMultiTypeMode.LT, p, const_like(-1.0, p)),
            e.compare(P.ElemwiseMultiTypeMode.LT, e.like(size, p), p),
        )
        p = _clipped(p, 0.0, last)
        low = e.elem(M.FLOOR, p)
        high = e.elem(M.MIN, last, e.elem(M.ADD, low, const_like(1.0, low)))
        t = e.elem(M.SUB, p, low)
        keep = cast(e.logical_not(gone), "float32")
        one = e.elem(M.MUL, e.elem(M.SUB, const_like(1.0, t), t), keep)
        # (K, OH, ny, 1, 1) and (K, 1, 1, OW, nx)
        axes = [3, 4] if i == 0 else [1, 2]
        corners.append(
            [
                tuple(e.add_axes(v, axes) for v in pair)
                for pair in ((low, one), (high, e.elem(M.MUL, t, keep)))
            ]
        )
    which = e.reshape(batch, (-1, 1, 1, 1, 1))
    parts = []
    for (y, wy), (z, wz) in combinations(*corners):
        cell = e.gather(x, [(0, which), (2, cast(y, "int32")), (3, cast(z, "int32"))])
        weight = e.add_axes(e.elem(M.MUL, wy, wz), [5])
        parts.append(e.elem(M.MUL, cell, weight))
    largest = c.text("mode", "avg") == "max"
    total = parts[0]
    for p in parts[1:]:
        total = e.elem(M.MAX if largest else M.ADD, total, p)
    mode = P.ReduceMode.MAX if largest else P.ReduceMode.MEAN
    result = e.reduce(total, mode, [2, 4])
    return e.permute(result, (0, 3, 1, 2))
