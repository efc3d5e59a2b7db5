"""Gradients of pooling, over windows and over regions of interest, and of correlation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ..conv.correlation import correlation_plan
from ..image.roi import (
    align_centres,
    images_of,
    pooled_lengths,
    pooled_samples,
    pooling_bins,
    pooling_corners,
)
from ..pooling import Window, pool_windows
from ..registry import Call, Shape
from .common import add_at, gradient

__all__: list[str] = []

_CHUNK = 1 << 22
"""Elements that one block of regions may need."""


def _pooling(c: Call, x: Array, y: Array, diff: Array, *size: Array) -> Array:
    """Give the gradient to all elements of a window that are its maximum, or in equal parts."""
    p: Any = c.opr.params[0]
    (rows, cols), windows = pool_windows(p, x.shape, *size)
    x, y, diff = (np.moveaxis(a, (rows, cols), (0, 1)) for a in (x, y, diff))
    if p.mode == P.PoolingMode.AVERAGE:
        diff = diff / np.float32(prod(w.window for w in windows))
    elif p.mode == P.PoolingMode.AVERAGE_COUNT_EXCLUDE_PADDING:
        counts = np.multiply.outer(*(w.counts() for w in windows)).astype(np.float32)
        diff = diff / counts.reshape(*counts.shape, *[1] * (x.ndim - 2))
    out = np.zeros(x.shape, np.float32)
    for to, at in _window_taps(windows):
        part = diff[to]
        if p.mode == P.PoolingMode.MAX:
            part = np.where(x[at] == y[to], part, np.float32(0))
        out[at] += part
    return np.moveaxis(out, (0, 1), (rows, cols))


def _window_taps(
    windows: Sequence[Window],
) -> Iterator[tuple[tuple[slice, slice], tuple[slice, slice]]]:
    rows, cols = windows
    for (_, ty, fy), (_, tx, fx) in product(rows.taps(), list(cols.taps())):
        yield (ty, tx), (fy, fx)


@gradient("PoolingBackwardV1", (0,), of="PoolingV1", results={1: 0, 2: 0})
def pooling_backward(c: Call, x: Array, y: Array, diff: Array) -> Array:
    """Compute the gradient of a pooling by its input `x`, whose result was `y`."""
    return _pooling(c, x, y, diff)


@gradient("AdaptivePoolingBackwardV1", (0,), of="AdaptivePoolingV1", by=(0, 1), results={2: 0, 3: 0})
def adaptive_backward(c: Call, x: Array, size: Array, y: Array, diff: Array) -> Array:
    """Compute the gradient of a pooling to a size by its input `x`, whose result was `y`."""
    return _pooling(c, x, y, diff, size)


def _by_image(x: Shape, rois: Array, each: int) -> Iterator[tuple[int, Array]]:
    """Yield the regions of every image, in blocks that need so many elements a region."""
    images = images_of(rois, x[0])
    step = max(1, _CHUNK // max(1, each))
    for n in np.unique(images):
        regions = np.flatnonzero(images == n)
        for at in range(0, len(regions), step):
            yield int(n), regions[at : at + step]


def _outer(out: Array, diff: Array, rows: Array, cols: Array) -> None:
    """Add gradients [M, C, PH, PW] to an image [C, H, W] by weights [M, PH, H] and [M, PW, W]."""
    m, channels, ph, _ = diff.shape
    wide = np.matmul(diff, cols[:, None]).transpose(1, 0, 2, 3)
    out += np.matmul(rows.reshape(m * ph, -1).T, wide.reshape(channels, m * ph, -1))


@gradient("ROIPoolingBackward", (1,))
def roi_pooling_backward(c: Call, diff: Array, x: Array, rois: Array, index: Array) -> Array:
    """Give the gradient of every bin to its maximum, at `index` in the channel, or in equal parts to its pixels.

    A region whose end is before its start has a pixel in the operator itself, and none here.
    """
    _check_regions(diff.shape, x.shape, rois.shape, index.shape)
    p = c.get(P.ROIPooling)
    ph, pw = diff.shape[2:]
    left, top, right, bottom = pooling_corners(p, rois).T[..., None, None, None]
    if p.mode == P.ROIPoolingMode.MAX:
        row, col = np.divmod(index, x.shape[3])
        inside = (row >= top) & (row <= bottom) & (col >= left) & (col <= right)
        return _to_places(np.where(inside, diff, np.float32(0)), x.shape, rois, index, np.float32(1))
    diff = np.where((left <= right) & (top <= bottom), diff, np.float32(0))
    (tops, bottoms), (lefts, rights) = pooling_bins(p, rois, (ph, pw), x.shape[2:])
    out = np.zeros(x.shape, np.float32)
    for n, at in _by_image(x.shape, rois, x.shape[1] * (ph + pw) * x.shape[3]):
        sizes = (bottoms[at] - tops[at])[:, :, None] * (rights[at] - lefts[at])[:, None]
        part = diff[at] / np.maximum(sizes, 1).astype(np.float32)[:, None]
        _outer(out[n], part, *(_members(a[at], b[at], size) for a, b, size in (
            (tops, bottoms, x.shape[2]), (lefts, rights, x.shape[3]))))  # fmt: skip
    return out


def _members(first: Array, end: Array, size: int) -> Array:
    """Tell which pixels of an axis belong to every bin, [M, bins, size]."""
    at = np.arange(size)
    return ((at >= first[..., None]) & (at < end[..., None])).astype(np.float32)


def _check_regions(diff: Shape, x: Shape, rois: Shape, index: Shape) -> None:
    if len(x) != 4 or len(diff) != 4 or index != diff or rois != (diff[0], 5) or diff[1] != x[1]:
        raise ValueError(
            f"gradient {list(diff)} and index {list(index)} of regions {list(rois)} in images {list(x)}"
        )


def _to_places(diff: Array, x: Shape, rois: Array, at: Array, weight: Array | np.float32) -> Array:
    """Add gradients [M, C, PH, PW] to the pixels with numbers `at`; negative ones are outside."""
    channels, size = x[1], x[2] * x[3]
    if at.size and int(at.max()) >= size:
        raise ValueError(f"position {int(at.max())} is outside images of {size} pixels")
    values = np.where(at < 0, np.float32(0), diff * weight)
    planes = images_of(rois, x[0])[:, None] * channels + np.arange(channels)
    where = np.maximum(at, 0) + (planes * size)[:, :, None, None]
    return add_at(where.reshape(-1), values.reshape(1, -1), prod(x)).reshape(x)


@gradient("ROIAlignBackwardV1", (1,), of="ROIAlignV1", by=(1, 2), results={0: 0, 3: 1})
def roi_align_backward(c: Call, diff: Array, x: Array, rois: Array, index: Array) -> Array:
    """Give the gradient of every bin to the pixels around its samples, or around the largest, which `index` names.

    MegEngine's CPU kernel adds to memory that it does not clear first.
    """
    p = c.get(P.ROIAlign)
    height, width = x.shape[2:]
    ys, xs = align_centres(p, rois)
    if p.mode != P.ROIAlignMode.MAX:
        out = np.zeros(x.shape, np.float32)
        share = np.float32(max(1, p.sample_height * p.sample_width))
        rows, cols = _hats(ys, height), _hats(xs, width)
        for n, at in _by_image(x.shape, rois, x.shape[1] * p.pooled_height * (width + p.pooled_width)):
            _outer(out[n], diff[at] / share, rows[at], cols[at])
        return out
    out = np.zeros(x.shape, np.float32)
    if not p.sample_height * p.sample_width:
        return out
    bins = np.arange(p.pooled_height)[:, None], np.arange(p.pooled_width)
    regions = np.arange(len(rois))[:, None, None, None]
    known = np.maximum(index, 0)
    rows = ys[regions, bins[0], np.minimum(known // p.sample_width, p.sample_height - 1)]
    cols = xs[regions, bins[1], known % p.sample_width]
    top, left = np.floor(rows), np.floor(cols)
    one = np.float32(1)
    for dy, dx in product((0, 1), (0, 1)):
        y, z = top + dy, left + dx
        there = (index >= 0) & (y >= 0) & (y < height) & (z >= 0) & (z < width)
        at = np.where(there, np.where(there, y, 0) * width + np.where(there, z, 0), -1).astype(np.int64)
        weight = (one - np.abs(rows - y)) * (one - np.abs(cols - z))
        out += _to_places(diff, x.shape, rois, at, np.where(there, weight, np.float32(0)))
    return out


def _hats(positions: Array, size: int) -> Array:
    """Sum what pixels of an axis weigh in the linear samples of every bin, [M, bins, size]."""
    out = np.zeros((*positions.shape[:2], size), np.float32)
    for k in range(positions.shape[2]):
        near = np.abs(positions[:, :, k, None] - np.arange(size, dtype=np.float32))
        out += np.maximum(np.float32(1) - near, np.float32(0))
    return out


@gradient(
    "DeformablePSROIPoolingBackward",
    (0, 2),
    of="DeformablePSROIPoolingForward",
    by=(0, 1, 2),
    results={3: 0, 4: 1},
)
def psroi_backward(
    c: Call, x: Array, rois: Array, trans: Array, diff: Array, count: Array
) -> tuple[Array, Array]:
    """Give the gradients by feature map and by the bins' displacements."""
    p = c.get(P.DeformablePSROIPooling)
    m, channels, ph, pw = diff.shape
    height, width = x.shape[2:]
    by_x, by_bin = np.zeros(x.shape, np.float32), np.zeros((2, m, ph, pw), np.float32)
    if not diff.size or not x.size:
        return by_x, np.zeros(trans.shape, np.float32)
    share = np.where(count > 0, diff / np.where(count > 0, count, np.float32(1)), np.float32(0))
    flat = x.reshape(len(x), channels, -1)
    images = images_of(rois, len(x))
    one = np.float32(1)
    for rows, cols, inside in pooled_samples(p, rois, trans, (height, width)):
        y0, y1, x0, x1 = (v.astype(np.int64) for f in (rows, cols) for v in (np.floor(f), np.ceil(f)))
        v, u = rows - y0.astype(np.float32), cols - x0.astype(np.float32)
        part = np.where(inside[:, None], share, np.float32(0))
        for y, z, b, a, sy, sx in (
            (y0, x0, one - v, one - u, -1, -1),
            (y1, x0, v, one - u, 1, -1),
            (y0, x1, one - v, u, -1, 1),
            (y1, x1, v, u, 1, 1),
        ):
            at = np.broadcast_to((y * width + z)[:, None], diff.shape)
            by_x += _to_places(part, x.shape, rois, at, (a * b)[:, None])
            if not p.no_trans:
                pixels = flat[images[:, None, None], :, y * width + z].transpose(0, 3, 1, 2)
                total = (pixels * part).sum(1)
                by_bin += np.stack((sx * b * total, sy * a * total))
    return by_x, _by_trans(p, rois, trans.shape, by_bin)


def _by_trans(p: P.DeformablePSROIPooling, rois: Array, shape: Shape, by_bin: Array) -> Array:
    """Add the gradients of bins' positions [2, M, PH, PW] up by the parts that displaced them."""
    out = np.zeros(shape, np.float32)
    if p.no_trans:
        return out
    m, ph, pw = by_bin.shape[1:]
    size = p.part_size
    rows, cols = (
        np.floor(np.arange(n, dtype=np.float32) / np.float32(n) * np.float32(size)).astype(np.int64)
        for n in (ph, pw)
    )
    lengths = pooled_lengths(p, rois).T[..., None, None] * np.float32(p.trans_std)
    at = (np.arange(m * 2).reshape(m, 2, 1, 1) * size + rows[:, None]) * size + cols
    values = (by_bin * lengths).transpose(1, 0, 2, 3)
    flat = add_at(at.reshape(-1), values.reshape(1, -1), m * 2 * size * size)
    out.reshape(-1)[: flat.size] = flat.reshape(-1)
    return out


@gradient("CorrelationBackwardData1", (1,), of="CorrelationForward", by=(1, 2), results={0: 0})
@gradient("CorrelationBackwardData2", (2,), of="CorrelationForward", by=(1, 2), results={0: 0})
def correlation_backward(c: Call, diff: Array, a: Array, b: Array) -> Array:
    """Give the gradient by one of the two images: over displacements and the kernel's taps.

    MegEngine's CPU kernel takes rows for columns of the displacements in the first image's gradient; its CUDA kernel
    gives what stands here, and makes equal pixels part of where the first image is larger.
    """
    p = c.get(P.Correlation)
    plan = correlation_plan(p, a.shape, b.shape)
    first = c.opr.type.endswith("1")
    edge = p.pad_size + p.max_displacement + p.kernel_size
    _, channels, height, width = a.shape
    a, b = (np.pad(v, ((0, 0), (0, 0), (edge, edge), (edge, edge))) for v in (a, b))
    out = np.zeros(a.shape, np.float32)
    moves = range(-plan.grid * p.stride2, plan.grid * p.stride2 + 1, p.stride2)
    start = edge - p.pad_size + p.max_displacement
    share = diff / np.float32((2 * plan.radius + 1) ** 2 * channels)
    taps = range(2 * plan.radius + 1)
    size = plan.height, plan.width, p.stride1
    for at, (dy, dx) in enumerate(product(moves, moves)):
        for ky, kx in product(taps, taps):
            left = _strided(start + ky, start + kx, *size)
            right = _strided(start + ky + dy, start + kx + dx, *size)
            if p.is_multiply:
                slope = b[right] if first else a[left]
            else:
                slope = np.where((a[left] >= b[right]) == first, np.float32(1), np.float32(-1))
            out[left if first else right] += share[:, at, None] * slope
    return out[:, :, edge : edge + height, edge : edge + width]


def _strided(top: int, left: int, height: int, width: int, stride: int) -> tuple[Any, ...]:
    rows = slice(top, top + (height - 1) * stride + 1, stride)
    return slice(None), slice(None), rows, slice(left, left + (width - 1) * stride + 1, stride)
