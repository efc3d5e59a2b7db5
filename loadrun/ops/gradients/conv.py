"""Gradients of convolutions and of windows taken from images."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ...graph import Opr
from ...graph import params as P
from ...graph.dtypes import Array
from ..conv.layout import from_plain, to_plain
from ..conv.local import cell_geometry, conv_columns, conv_geometry, tap_positions
from ..conv.rules import Geometry, conv_plan
from ..conv.windows import window_taps
from ..numeric.taps import Taps
from ..registry import Call, Shape
from .common import add_at, gradient

__all__: list[str] = []


def _axis_taps(geo: Geometry) -> list[list[tuple[int, slice, slice]]]:
    sides = zip(geo.size, geo.out, geo.kernel, geo.stride, geo.pad, geo.dilate, strict=True)
    return [list(Taps(*side)) for side in sides]


def _at(last: tuple[Any, ...]) -> tuple[Any, ...]:
    """Index the last axes."""
    return (..., *last)


def _filter_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return 2 * prod(inputs[1]) * prod(inputs[2][-len(inputs[0]) + 1 :])


@gradient(
    "ConvolutionBackwardFilterV2", (2,), of="ConvolutionV2", by=(0, 2), results={1: 0}, flops=_filter_flops
)
@gradient(
    "Convolution3DBackwardFilter", (2,), of="Convolution3D", by=(0, 2), results={1: 0}, flops=_filter_flops
)
def convolution_backward_filter(c: Call, x: Array, diff: Array, w: Array) -> Array:
    """Sum, for every tap, the inputs that it saw times the gradients of what it made."""
    p: Any = c.opr.params[0]
    plan = conv_plan(p, (c.inputs[0], c.inputs[2]), x.shape, w.shape)
    geo = plan.geo
    n = plan.x.plain[0]
    seen = to_plain(x, plan.x).reshape(n, geo.groups, geo.icg, *geo.size)
    grad = to_plain(diff, plan.out).reshape(n, geo.groups, geo.ocg, *geo.out)
    out = np.zeros((geo.groups, geo.ocg, geo.icg, *geo.kernel), np.float32)
    for taps in product(*_axis_taps(geo)):
        tap, to, at = zip(*taps, strict=True)
        part = grad[_at(to)].reshape(n, geo.groups, geo.ocg, -1)
        taken = seen[_at(at)].reshape(n, geo.groups, geo.icg, -1)
        out[_at(tap)] = np.matmul(part, taken.swapaxes(2, 3)).sum(0)
    if plan.flip:
        out = np.flip(out, tuple(range(3, out.ndim)))
    return from_plain(out, plan.w)


def _add_columns(columns: Array, geo: Geometry, flip: bool) -> Array:
    """Add what every tap saw, [N, C, KH, KW, OH, OW], up on the images that it was taken from."""
    kh, kw = geo.kernel
    out = np.zeros((*columns.shape[:2], *geo.size), np.float32)
    rows, cols = _axis_taps(geo)
    for (ky, ty, fy), (kx, tx, fx) in product(rows, cols):
        at = (kh - 1 - ky, kw - 1 - kx) if flip else (ky, kx)
        out[:, :, fy, fx] += columns[:, :, at[0], at[1], ty, tx]
    return out


# Local, GroupLocal and LocalShare: a filter for every cell of the output, [G, cells, cells, depth, OC].


def _by_cell(y: Array, geo: Geometry, cells: tuple[int, int], depth: int) -> Array:
    """Turn [N, G * depth, OH, OW] into a matrix for every cell, [G, cells, cells, N * positions, depth]."""
    gh, gw = cells
    y = y.reshape(len(y), geo.groups, depth, gh, geo.out[0] // gh, gw, geo.out[1] // gw)
    return y.transpose(1, 3, 5, 0, 4, 6, 2).reshape(geo.groups, gh, gw, -1, depth)


@gradient("LocalBackwardDataV2", (2,), of="LocalV2", by=(2, 0), results={1: 0})
@gradient("GroupLocalBackwardDataV2", (2,), of="GroupLocalV2", by=(2, 0), results={1: 0})
@gradient("LocalShareBackwardDataV1", (2,), of="LocalShareForwardV1", by=(2, 0), results={1: 0})
def local_backward_data(c: Call, w: Array, diff: Array, x: Array) -> Array:
    """Spread every output's gradient by its cell's filter over the inputs that the output saw."""
    geo, (gh, gw), flip = cell_geometry(c.opr, x.shape, w.shape)
    depth, n = geo.icg * geo.taps, len(x)
    left = _by_cell(diff, geo, (gh, gw), geo.ocg)
    columns = np.matmul(left, w.reshape(geo.groups, gh, gw, depth, geo.ocg).swapaxes(3, 4))
    columns = columns.reshape(geo.groups, gh, gw, n, geo.out[0] // gh, geo.out[1] // gw, depth)
    columns = columns.transpose(3, 0, 6, 1, 4, 2, 5).reshape(n, -1, *geo.kernel, *geo.out)
    return _add_columns(columns, geo, flip)


@gradient("LocalBackwardFilterV2", (2,), of="LocalV2", by=(0, 2), results={1: 0})
@gradient("GroupLocalBackwardFilterV2", (2,), of="GroupLocalV2", by=(0, 2), results={1: 0})
@gradient("LocalShareBackwardFilterV1", (2,), of="LocalShareForwardV1", by=(0, 2), results={1: 0})
def local_backward_filter(c: Call, x: Array, diff: Array, w: Array) -> Array:
    """Sum, for every cell, the inputs that its outputs saw times their gradients."""
    geo, cells, flip = cell_geometry(c.opr, x.shape, w.shape)
    seen = _by_cell(conv_columns(x, geo, flip).reshape(len(x), -1, *geo.out), geo, cells, geo.icg * geo.taps)
    return np.matmul(seen.swapaxes(3, 4), _by_cell(diff, geo, cells, geo.ocg)).reshape(w.shape)


@gradient(
    "RegionRestrictedConvolutionBackwardFilter",
    (4,),
    of="RegionRestrictedConvolution",
    by=(0, 4, 2, 3),
    results={1: 0},
)
def region_backward_filter(c: Call, x: Array, diff: Array, rin: Array, rout: Array, w: Array) -> Array:
    """Sum, for every tap, the inputs of an output's own region times the output's gradient."""
    p = c.get(P.Convolution)
    geo = conv_geometry(p, x.shape, w.shape, c.opr.type)
    flip = p.mode == P.ConvMode.CONVOLUTION
    same = conv_columns(rin[:, None], geo, flip) == rout[:, None, None, None]
    seen = np.where(same, conv_columns(x, geo, flip), np.float32(0))
    seen = seen.reshape(len(x), geo.groups, geo.icg * geo.taps, geo.points)
    grad = diff.reshape(len(x), geo.groups, geo.ocg, geo.points)
    return np.matmul(grad, seen.swapaxes(2, 3)).sum(0).reshape(w.shape)


# Deformable convolution


class _Samples:
    """Gather what deformable taps see: four pixels around each of their positions [N, parts, taps, points].

    Attributes:
        seen: the samples [N, parts, C / parts, taps, points].
    """

    def __init__(self, c: Call, x: Array, w: Array, offset: Array, mask: Array) -> None:
        self.geo = geo = conv_geometry(c.get(P.Convolution), x.shape, w.shape, c.opr.type)
        self.parts = parts = mask.shape[1] // geo.taps
        self.shape = x.shape
        moves = offset.reshape(len(x), parts, geo.taps, 2, geo.points)
        ys, xs = tap_positions(geo)
        rows, cols = ys.T + moves[:, :, :, 0], xs.T + moves[:, :, :, 1]
        height, width = geo.size
        met = (rows > -1) & (cols > -1) & (rows < height) & (cols < width)
        rows, cols = np.where(met, rows, np.float32(-2)), np.where(met, cols, np.float32(-2))
        top, left = np.floor(rows), np.floor(cols)
        v, u = rows - top, cols - left
        flat = x.reshape(len(x) * parts, -1, height * width)
        one = np.float32(1)
        self.seen, self.by_row, self.by_col = (np.float32(0),) * 3
        self.corners = []
        for dy, dx, b, a in ((0, 0, one - v, one - u), (0, 1, one - v, u), (1, 0, v, one - u), (1, 1, v, u)):
            y, z = (top + dy).astype(np.int64), (left + dx).astype(np.int64)
            there = met & (y >= 0) & (y < height) & (z >= 0) & (z < width)
            at = np.where(there, y * width + z, 0)
            pixels = np.take_along_axis(flat, at.reshape(len(flat), 1, -1), 2).reshape(
                len(x), parts, -1, *at.shape[2:]
            )
            pixels *= there[:, :, None]
            self.corners.append((at, np.where(there, a * b, np.float32(0))))
            self.seen = self.seen + pixels * (a * b)[:, :, None]
            self.by_row = self.by_row + pixels * (a if dy else -a)[:, :, None]
            self.by_col = self.by_col + pixels * (b if dx else -b)[:, :, None]


@gradient(
    "DeformableConvBackwardDataV1", (0, 2, 3), of="DeformableConvForwardV1", by=(0, 1, 2, 3), results={4: 0}
)
def deformable_backward_data(
    c: Call, x: Array, w: Array, offset: Array, mask: Array, diff: Array
) -> tuple[Array, Array, Array]:
    """Give the gradients by images, displacements of the taps, and their factors."""
    s = _Samples(c, x, w, offset, mask)
    geo, n = s.geo, len(x)
    left = w.reshape(geo.groups, geo.ocg, geo.icg * geo.taps).swapaxes(1, 2)
    columns = np.matmul(left, diff.reshape(n, geo.groups, geo.ocg, geo.points))
    columns = columns.reshape(n, s.parts, -1, geo.taps, geo.points)
    factor = mask.reshape(n, s.parts, geo.taps, geo.points)
    by_mask = (columns * s.seen).sum(2)
    columns *= factor[:, :, None]
    moved = np.stack(((columns * s.by_row).sum(2), (columns * s.by_col).sum(2)), 3)
    by_image = np.zeros((n * x.shape[1], prod(geo.size)), np.float32)
    for at, weight in s.corners:
        where = np.repeat(at.reshape(n * s.parts, -1), x.shape[1] // s.parts, 0)
        by_image += add_at(where, (columns * weight[:, :, None]).reshape(len(where), -1), prod(geo.size))
    return by_image.reshape(x.shape), moved.reshape(offset.shape), by_mask.reshape(mask.shape)


@gradient(
    "DeformableConvBackwardFilterV1", (1,), of="DeformableConvForwardV1", by=(0, 1, 2, 3), results={4: 0}
)
def deformable_backward_filter(c: Call, x: Array, w: Array, offset: Array, mask: Array, diff: Array) -> Array:
    """Sum, for every tap, its samples times the gradients of what it made."""
    s = _Samples(c, x, w, offset, mask)
    geo, n = s.geo, len(x)
    seen = s.seen * mask.reshape(n, s.parts, 1, geo.taps, geo.points)
    seen = seen.reshape(n, geo.groups, geo.icg * geo.taps, geo.points)
    grad = diff.reshape(n, geo.groups, geo.ocg, geo.points)
    return np.matmul(grad, seen.swapaxes(2, 3)).sum(0).reshape(w.shape)


# Windows


@gradient("Images2NeibsBackward", (1,), of="Images2Neibs", by=(1,), results={0: 0})
def images2neibs_backward(c: Call, diff: Array, x: Array) -> Array:
    """Add windows [N, C, OH, OW, KH, KW] to where they were taken from [N, C, H, W]."""
    if x.ndim != 4:
        raise ValueError(f"gradients of windows are those of images [N, C, H, W], found {list(x.shape)}")
    out = np.zeros(x.shape, np.float32)
    rows, cols = window_taps(c.get(P.Images2Neibs), *x.shape[2:])
    for (ky, ty, fy), (kx, tx, fx) in product(rows, list(cols)):
        out[:, :, fy, fx] += diff[:, :, ty, tx, ky, kx]
    return out


@gradient("SlidingWindowTransposeBackward", (1,), of="SlidingWindowTranspose", by=(1,), results={0: 0})
def sliding_window_transpose_backward(c: Call, diff: Array, x: Array) -> Array:
    """Return all windows of the gradient [N, C, H, W], zero outside."""
    p = c.get(P.SlidingWindowTranspose)
    out = np.zeros(x.shape, np.float32)
    rows, cols = window_taps(p, p.out_h, p.out_w)
    for (ky, ty, fy), (kx, tx, fx) in product(rows, list(cols)):
        out[:, :, ty, tx, ky, kx] = diff[:, :, fy, fx]
    return out
