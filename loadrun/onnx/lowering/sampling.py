"""Images sampled at computed positions: grids, affine grids, regions."""

from __future__ import annotations

from itertools import product as combinations

import numpy as np

from ...build import emit as e
from ...build.layers import sampling as build
from ...build.vision import roi_pooling
from ...graph import params as P
from ...graph.dtypes import Array
from ...ops.registry import pay
from ...tensors import Tensor, const
from ...tensors.access import dtype_of
from ..call import NodeCall, lower
from ..values import UnsupportedNodeError
from . import M, cast, const_like

__all__: list[str] = []

_MOST_REGIONS = 512
_FARTHEST = 2.0**60
"""Positions from here on, and NaN, are beyond what int64 can count."""


@lower("AffineGrid")
def _affine_grid(c: NodeCall) -> Tensor:
    """Compute positions of an image's cells, from -1 to 1, mapped by a matrix (N, 2, 3) or (N, 3, 4)."""
    theta = c.t(0)
    n, _, *space = c.integers(1, "size")
    align = c.flag("align_corners")
    if align and min(space, default=2) < 2:
        raise UnsupportedNodeError(
            f"align_corners with {' x '.join(map(str, space))} cells: the position of one cell alone is 0 to PyTorch, "
            "1 to ONNX Runtime"
        )
    y = build.affine_grid(e.real(theta), n, space, align=align)
    return cast(y, dtype_of(theta))


@lower("GridSample")
def _grid_sample(c: NodeCall) -> Tensor:
    x, grid = e.real(c.t(0)), e.real(c.t(1))
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(c.text("mode", "linear"), c.text("mode", "linear"))
    padding = c.text("padding_mode", "zeros")
    align = c.flag("align_corners")
    if mode not in ("linear", "nearest", "cubic") or padding not in ("zeros", "border", "reflection"):
        raise UnsupportedNodeError(f"its mode {mode!r} or padding_mode {padding!r} is unknown")
    # What is no position in an image counts as its edge, as in ONNX Runtime.
    near = e.compare(P.ElemwiseMultiTypeMode.LT, e.elem(M.ABS, grid), const_like(_FARTHEST, grid))
    grid = e.where(near, grid, const_like(-1.0, grid))
    return cast(build.grid_sampled(x, grid, mode, padding, align=align), dtype_of(c.t(0)))


# Regions


@lower("MaxRoiPool")
def _max_roi_pool(c: NodeCall) -> Tensor:
    shape = c.ints("pooled_shape") or [1, 1]
    return roi_pooling(c.t(0), c.t(1), shape, "max", c.real("spatial_scale", 1.0))


def _half_pixel(c: NodeCall) -> bool:
    return c.choice("coordinate_transformation_mode", "half_pixel", "output_half_pixel") == "half_pixel"


@lower("RoiAlign")
def _roi_align(c: NodeCall) -> Tensor:
    """Points in every bin, each from the four cells around, averaged or the largest taken."""
    x, rois = e.real(c.t(0)), e.real(c.t(1))
    batch = e.whole(c.t(2))
    half = c.opset >= 16 and _half_pixel(c)
    out = c.number("output_height", 1), c.number("output_width", 1)
    scale = c.real("spatial_scale", 1.0)
    ratio = c.number("sampling_ratio")
    if min(out) < 1 or ratio < 0:
        raise UnsupportedNodeError(
            f"bins {out[0]}x{out[1]} with {ratio} points each; expected 1 and more, and 0 or more"
        )
    if ratio == 0:
        return cast(_adaptive(c, x, half, out, scale), dtype_of(c.t(0)))
    places = [_bins(rois, i, out[1 - i], scale, half, ratio) for i in (1, 0)]
    return cast(_pooled_points(c, x, batch, places, [ratio, ratio], out), dtype_of(c.t(0)))


def _adaptive(c: NodeCall, x: Tensor, half: bool, out: tuple[int, int], scale: float) -> Tensor:
    """Choose as many points in each bin as it has cells, which needs regions known in advance."""
    regions = c.constant(1, "regions").astype(np.float32)
    if len(regions) > _MOST_REGIONS:
        raise UnsupportedNodeError(
            f"{len(regions)} regions whose sampling points depend on their size; at most {_MOST_REGIONS} are unrolled"
        )
    if not np.isfinite(regions).all():
        raise UnsupportedNodeError("a region has a side that is not finite")
    which = c.constant(2, "batch indices").astype(np.int32)
    offset = np.float32(0.5 if half else 0.0)
    result = []
    for roi, b in zip(regions, which, strict=True):
        box = roi * np.float32(scale) - offset
        places, counts = [], []
        for i, n in ((1, out[0]), (0, out[1])):
            length = box[i + 2] - box[i]
            length = length if half else max(length, np.float32(1.0))
            count = max(int(np.ceil(length / n)), 1)
            pay(16 * n * count)
            steps = (np.arange(n)[:, None] + (np.arange(count)[None] + 0.5) / count) * (length / n)
            places.append(const((box[i] + steps).astype(np.float32)[None]))
            counts.append(count)
        result.append(_pooled_points(c, x, const(np.array([b], np.int32)), places, counts, out))
    return e.concat(result, 0)


def _bins(rois: Tensor, i: int, n: int, scale: float, half: bool, ratio: int) -> Tensor:
    """Return positions (K, n, ratio) along one axis."""
    start, end = (e.subtensor(rois, [(1, None, None, None, k)]) for k in (i, i + 2))
    factor, offset = const_like(scale, rois), const_like(0.5 if half else 0.0, rois)
    start, end = (e.elem(M.SUB, e.elem(M.MUL, v, factor), offset) for v in (start, end))
    length = e.elem(M.SUB, end, start)
    if not half:
        length = e.elem(M.MAX, const_like(1.0, length), length)
    pay(16 * n * ratio)
    steps: Array = (np.arange(n)[:, None] + (np.arange(ratio)[None] + 0.5) / ratio) / n
    moved = e.elem(M.MUL, e.add_axes(length, [1, 2]), const(steps.astype(np.float32)[None]))
    return e.elem(M.ADD, e.add_axes(start, [1, 2]), moved)


def _pooled_points(
    c: NodeCall, x: Tensor, batch: Tensor, places: list[Tensor], counts: list[int], out: tuple[int, int]
) -> Tensor:
    """Sample (K, C, OH, OW) at positions (K, OH, ny) and (K, OW, nx)."""
    corners = []
    for i, p in enumerate(places):
        size = x.shape[2 + i]
        last = e.like(size - 1, p)
        gone = e.elem(
            M.OR,
            e.compare(P.ElemwiseMultiTypeMode.LT, p, const_like(-1.0, p)),
            e.compare(P.ElemwiseMultiTypeMode.LT, e.like(size, p), p),
        )
        p = build.clipped(p, 0.0, last)
        low = e.elem(M.FLOOR, p)
        high = e.elem(M.MIN, last, e.elem(M.ADD, low, const_like(1.0, low)))
        t = e.elem(M.SUB, p, low)
        keep = e.real(e.logical_not(gone))
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
        cell = e.gather(x, [(0, which), (2, e.whole(y)), (3, e.whole(z))])
        weight = e.add_axes(e.elem(M.MUL, wy, wz), [5])
        parts.append(e.elem(M.MUL, cell, weight))
    largest = c.choice("mode", "avg", "max") == "max"
    total = parts[0]
    for p in parts[1:]:
        total = e.elem(M.MAX if largest else M.ADD, total, p)
    mode = P.ReduceMode.MAX if largest else P.ReduceMode.MEAN
    result = e.reduce(total, mode, [2, 4])
    return e.permute(result, (0, 3, 1, 2))
