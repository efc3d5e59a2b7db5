"""Gradients of regions of interest, correlation, resizing, warping and remapping."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ...graph.params import InterpolationMode
from ..registry import Call
from .images import correlation_places, nearest_pixels, region_samples, warped_points
from .sampling import cubic, linear, pixels_of, slopes, spread

__all__ = [
    "correlation",
    "perspective_data",
    "perspective_mat",
    "psroi_pooling",
    "remap_data",
    "remap_map",
    "resize",
    "roi_align",
    "roi_pooling",
]


# ---- Regions of interest


def _known(rois: Array, count: int) -> bool:
    return bool(((rois[:, 0] > -1) & (rois[:, 0] < count)).all())


def roi_pooling(c: Call, diff: Array, x: Array, rois: Array, index: Array) -> Array | None:
    """Give the gradient of a bin to its largest pixel, which `index` names, or in equal parts to all."""
    p = c.get(P.ROIPooling)
    if not _known(rois, len(x)):
        return None
    out = np.zeros((*x.shape[:2], x.shape[2] * x.shape[3]))
    image = out.reshape(x.shape)
    for roi, grad, places in zip(rois, diff, index, strict=True):
        n = int(roi[0])
        ends = [
            float(np.copysign(np.floor(abs(v) + 0.5), v)) for v in np.float32(roi[1:]) * np.float32(p.scale)
        ]
        if ends[2] < ends[0] or ends[3] < ends[1]:
            continue  # the operator itself takes one pixel there
        if p.mode == P.ROIPoolingMode.MAX:
            channels = np.arange(len(grad))[:, None, None]
            np.add.at(out[n], (channels, np.maximum(places, 0)), np.where(places < 0, 0, grad))
            continue
        for i, (top, bottom) in enumerate(_bins(roi[2], roi[4], grad.shape[1], x.shape[2], p.scale)):
            for j, (left, right) in enumerate(_bins(roi[1], roi[3], grad.shape[2], x.shape[3], p.scale)):
                part = image[n, :, top:bottom, left:right]
                part += grad[:, i, j, None, None] / max(1, (bottom - top) * (right - left))
    return image


def _bins(start: float, end: float, count: int, size: int, scale: float) -> list[tuple[int, int]]:
    """Return the first and past-the-last pixel of bins; where they begin is defined in float32."""
    first, last = (
        int(np.copysign(np.floor(abs(v) + 0.5), v))
        for v in (np.float32(a) * np.float32(scale) for a in (start, end))
    )
    width = np.float32(max(last - first + 1, 1)) / np.float32(count)
    ends = [
        (int(np.floor(np.float32(k) * width)), int(np.ceil(np.float32(k + 1) * width))) for k in range(count)
    ]
    return [(min(max(a + first, 0), size), min(max(b + first, 0), size)) for a, b in ends]


def roi_align(c: Call, diff: Array, x: Array, rois: Array, index: Array) -> Array | None:
    """Give the gradient of a bin to the pixels around its samples, or around the one that `index` names."""
    p = c.get(P.ROIAlign)
    count = p.sample_height * p.sample_width
    if not count or not x.size or not _known(rois, len(x)):
        return None
    out = np.zeros(x.shape)
    for roi, grad, places, ys, xs in zip(rois, diff, index, *region_samples(p, rois), strict=True):
        n = int(roi[0])
        rows, cols = np.broadcast_arrays(ys[:, None, :, None], xs[None, :, None, :])
        for k, (row, col) in enumerate(
            zip(*(np.moveaxis(a.reshape(*a.shape[:2], -1), -1, 0) for a in (rows, cols)), strict=True)
        ):
            part = np.where(places == k, grad, 0) if p.mode == P.ROIAlignMode.MAX else grad / count
            out[n] += spread(part, row, col, x.shape[2:])
    return out


def psroi_pooling(
    c: Call, x: Array, rois: Array, trans: Array, diff: Array, count: Array
) -> tuple[Array, Array] | None:
    """Give the gradients by feature map and by the displacements of bins."""
    p = c.get(P.DeformablePSROIPooling)
    if not diff.size or not x.size or not _known(rois, len(x)):
        return None
    by_x, by_trans = np.zeros(x.shape), np.zeros(trans.size)
    share = diff * (count > 0) / np.maximum(count, 1)
    for m, i, j, at, rows, cols, lengths in _moved_bins(p, rois, trans):
        size = x.shape[2:]
        inside = (rows >= -0.5) & (rows <= size[0] - 0.5) & (cols >= -0.5) & (cols <= size[1] - 0.5)
        rows, cols = (np.clip(a[inside], 0, n - 1) for a, n in zip((rows, cols), size, strict=True))
        n, g = int(rois[m, 0]), share[m, :, i, j, None]
        by_x[n] += spread(np.broadcast_to(g, (len(g), len(rows))), rows, cols, size)
        if not p.no_trans:
            pixels = pixels_of(x[n], P.BorderMode.REPLICATE)
            # On whole rows and columns both neighbours of the sample are one pixel.
            down, right = slopes(pixels, rows, cols)
            steep = np.where(cols % 1 > 0, right, 0), np.where(rows % 1 > 0, down, 0)
            for place, slope, length in zip(at, steep, lengths, strict=True):
                by_trans[place] += (g * slope).sum() * length * float(np.float32(p.trans_std))
    return by_x, by_trans.reshape(trans.shape)


def _moved_bins(
    p: P.DeformablePSROIPooling, rois: Array, trans: Array
) -> Iterator[tuple[int, int, int, tuple[int, int], Array, Array, Array]]:
    """Yield region, bin, its numbers in `trans`, rows and columns of its samples, and the region's width and height."""
    flat, parts, k = trans.reshape(-1), p.part_size, p.sample_per_part
    for m, roi in enumerate(rois):
        corners = np.copysign(np.floor(np.abs(roi[1:]) + 0.5), roi[1:])
        start = corners[:2] * float(np.float32(p.spatial_scale)) - 0.5
        lengths = np.maximum((corners[2:] + 1) * float(np.float32(p.spatial_scale)) - 0.5 - start, 0.1)
        for i in range(p.pooled_h):
            for j in range(p.pooled_w):
                row, col = i * parts // p.pooled_h, j * parts // p.pooled_w
                at = ((m * 2 * parts + row) * parts + col, ((m * 2 + 1) * parts + row) * parts + col)
                moved = np.zeros(2) if p.no_trans else flat[list(at)] * float(np.float32(p.trans_std))
                bins = lengths / (p.pooled_w, p.pooled_h)
                left, top = start + np.array((j, i)) * bins + moved * lengths
                rows, cols = np.mgrid[:k, :k].reshape(2, -1)
                yield m, i, j, at, top + rows * bins[1] / k, left + cols * bins[0] / k, lengths


# ---- Correlation


def correlation(c: Call, diff: Array, a: Array, b: Array) -> Array:
    """Give the gradient by one of the images, over displacements and taps of the kernel."""
    p = c.get(P.Correlation)
    first = c.opr.type.endswith("1")
    out = np.zeros(a.shape)
    n, channels, height, width = a.shape
    for at, rows, cols, dy, dx in correlation_places(p, a.shape):
        left = pixels_of(a.reshape(-1, height, width))(rows, cols).reshape(n, channels, *rows.shape)
        right = pixels_of(b.reshape(-1, height, width))(rows + dy, cols + dx).reshape(left.shape)
        if p.is_multiply:
            slope = right if first else left
        else:
            slope = np.where(left >= right, 1, -1) * (1 if first else -1)
        y, x = (rows, cols) if first else (rows + dy, cols + dx)
        there = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        out[:, :, y[there], x[there]] += (diff[:, at, None] * slope)[:, :, there]
    return out / (channels * (2 * ((p.kernel_size - 1) // 2) + 1) ** 2)


# ---- Resizing, warping, remapping


def resize(c: Call, diff: Array, x: Array) -> Array | None:
    """Add every pixel's gradient to the pixels that it was made of."""
    p = c.get(P.Resize)
    if not x.size:
        return None
    for axis in (2, 3):
        size, out = x.shape[axis], diff.shape[axis]
        if p.imode == InterpolationMode.NEAREST:
            weights = [(nearest_pixels(size, out), np.ones(out))]
        else:
            positions = (np.arange(out) + 0.5) * size / out - 0.5
            weights = (cubic if p.imode == InterpolationMode.CUBIC else linear)(positions, size)
        grad = np.moveaxis(diff, axis, 0)
        total = np.zeros((size, *grad.shape[1:]))
        for at, weight in weights:
            np.add.at(total, at, grad * weight.reshape(-1, 1, 1, 1))
        diff = np.moveaxis(total, 0, axis)
    return diff


def perspective_data(c: Call, mat: Array, *rest: Array) -> Array:
    """Add every sample's gradient to the pixels around it."""
    *index, diff, x = rest
    out = np.zeros(x.shape)
    which = index[0] if index else np.arange(len(mat))
    for n, (rows, cols), grad in zip(which, _where(mat, diff.shape[2:]), diff, strict=True):
        out[n] += spread(grad, rows, cols, x.shape[2:], c.get(P.WarpPerspective).bmode)
    return out


def perspective_mat(c: Call, x: Array, mat: Array, *rest: Array) -> Array:
    """Differentiate the positions ``(m0 . p, m1 . p) / m2 . p`` of the samples for pixels p."""
    *index, diff = rest
    p = c.get(P.WarpPerspective)
    which = index[0] if index else np.arange(len(mat))
    points = warped_points(diff.shape[2:])
    out = []
    for m, n, grad, (rows, cols) in zip(mat, which, diff, _where(mat, diff.shape[2:]), strict=True):
        fill = float(np.float32(p.border_val))
        down, right = ((grad * s).sum(0) for s in slopes(pixels_of(x[n], p.bmode, fill), rows, cols))
        above = np.stack((right, down, -(right * cols + down * rows))) / np.einsum("j,jhw->hw", m[2], points)
        terms = above[:, None] * points
        out.append(np.where(np.isfinite(terms), terms, 0).sum((2, 3)))
    return np.stack(out) if out else np.zeros(mat.shape)


def _where(mat: Array, size: tuple[int, ...]) -> Iterator[tuple[Array, Array]]:
    """Yield the rows and columns where every matrix takes the output's pixels."""
    for m in mat:
        x, y, z = np.einsum("ij,jhw->ihw", m, warped_points(size))
        yield y / z, x / z


def remap_data(c: Call, where: Array, diff: Array, x: Array) -> Array:
    """Add every sample's gradient to the pixels around it, or to the nearest."""
    p = c.get(P.Remap)
    at = np.rint(where) if p.imode == InterpolationMode.NEAREST else where
    parts = [
        spread(g, q[..., 1], q[..., 0], x.shape[2:], p.border_type) for g, q in zip(diff, at, strict=True)
    ]
    return np.stack(parts).reshape(x.shape)


def remap_map(c: Call, x: Array, where: Array, diff: Array) -> Array:
    """Differentiate the samples by their positions."""
    p = c.get(P.Remap)
    out = np.zeros(where.shape)
    if p.imode != InterpolationMode.NEAREST:
        for n, (image, at, grad) in enumerate(zip(x, where, diff, strict=True)):
            pixels = pixels_of(image, p.border_type, float(np.float32(p.scalar)))
            down, right = slopes(pixels, at[..., 1], at[..., 0])
            out[n] = np.stack(((grad * right).sum(0), (grad * down).sum(0)), -1)
    return out
