"""Resizing, warping, regions of interest and correlation of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import ceil

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ..image.planes import as_planes, from_planes
from ..registry import Call, Shape

Pixels = Callable[[Array, Array], Array]
"""Gives [C, ...] for integer rows and columns [...]."""
Weights = list[tuple[Array, Array]]
"""For each neighbour of every position: which pixel of the axis it is, and what it weighs."""


def pixels_of(image: Array, mode: P.BorderMode = P.BorderMode.CONSTANT, fill: float = 0.0) -> Pixels:
    """Give the pixels of an image [C, H, W] by row and column, and what stands for those outside.

    >>> pixels = pixels_of(np.array([[[1.0, 2.0]]]), P.BorderMode.REFLECT)
    >>> pixels(np.array([0, 0]), np.array([2, -1]))
    array([[2., 1.]])
    """

    def pixels(rows: Array, cols: Array) -> Array:
        y, x = _inside(rows, image.shape[1], mode), _inside(cols, image.shape[2], mode)
        taken = image[:, y, x]
        if mode != P.BorderMode.CONSTANT:
            return taken
        return np.where((y == rows) & (x == cols), taken, fill)

    return pixels


def _inside(at: Array, size: int, mode: P.BorderMode) -> Array:
    # NaN positions may read any pixel: their weights are NaN.
    return inside(np.clip(np.nan_to_num(at), -(2.0**31), 2.0**31).astype(np.int64), size, mode)


def inside(at: Array, size: int, mode: P.BorderMode) -> Array:
    """Return the pixel that stands for a position outside; the nearest one for a border of one value."""
    if mode == P.BorderMode.WRAP:
        return at % size
    if mode == P.BorderMode.REFLECT:
        at = at % (2 * size)
        return np.where(at < size, at, 2 * size - 1 - at)
    if mode == P.BorderMode.REFLECT_101:
        period = max(1, 2 * size - 2)
        at = at % period
        return np.where(at < size, at, period - at)
    return np.clip(at, 0, size - 1)


def bilinear(pixels: Pixels, rows: Array, cols: Array) -> Array:
    """Weigh the four pixels around positions by the areas opposite them."""
    top, left = np.floor(rows), np.floor(cols)
    v, u = rows - top, cols - left
    above = pixels(top, left) * (1 - u) + pixels(top, left + 1) * u
    below = pixels(top + 1, left) * (1 - u) + pixels(top + 1, left + 1) * u
    return above * (1 - v) + below * v


def linear(positions: Array, size: int) -> Weights:
    """Give the neighbours of positions on an axis and their weights, constant beyond its ends.

    >>> linear(np.array([-0.5, 0.25, 1.0]), 2)
    [(array([0, 0, 1]), array([1.  , 0.75, 1.  ])), (array([1, 1, 1]), array([0.  , 0.25, 0.  ]))]
    """
    at = np.clip(positions, 0, size - 1)
    left = np.floor(at).astype(np.int64)
    return [(left, 1 - (at - left)), (np.minimum(left + 1, size - 1), at - left)]


def cubic(positions: Array, size: int) -> Weights:
    """Give the four neighbours of positions on an axis and their weights in cubic convolution with A = -0.75.

    >>> [w.item() for _, w in cubic(np.array([1.5]), 4)]
    [-0.09375, 0.59375, 0.59375, -0.09375]
    """
    left = np.floor(positions).astype(np.int64)
    weights = []
    for at in (left - 1, left, left + 1, left + 2):
        d = np.abs(positions - at)
        near, far = (1.25 * d - 2.25) * d * d + 1, -0.75 * (((d - 5) * d + 8) * d - 4)
        weights.append((np.clip(at, 0, size - 1), np.where(d <= 1, near, far)))
    return weights


def blended(x: Array, weights: Weights, axis: int) -> Array:
    """Add up an axis's pixels by their weights.

    >>> blended(np.array([2.0, 6.0]), linear(np.array([0.25]), 2), 0)
    array([3.])
    """
    x = np.moveaxis(x, axis, -1)
    return np.moveaxis(np.sum([x[..., at] * w for at, w in weights], 0), -1, axis)


_NHWC_CHANNELS = (1, 3)
"""Channels of NHWC images that MegEngine resizes as OpenCV does."""


def _centres(size: int, out: int) -> Array:
    """Return the positions of output pixels' centres between input pixels' centres."""
    return (np.arange(out) + 0.5) * size / out - 0.5


def resize(c: Call, x: Array, out_shape: Array) -> Array | None:
    """Resample to another size by the nearest pixel, linearly or by cubic convolution."""
    p = c.get(P.Resize)
    planes = as_planes(x, p.format)
    opencv = p.format == P.Format.NHWC and planes.shape[4] in _NHWC_CHANNELS
    if not x.size or (opencv and p.imode in (P.InterpolationMode.AREA, P.InterpolationMode.LANCZOS4)):
        return None
    for axis, out in zip((2, 3), out_shape.reshape(-1).tolist(), strict=True):
        size = planes.shape[axis]
        if p.imode == P.InterpolationMode.NEAREST:
            # The pixel is chosen in the kernels' precision, which is part of the operator's definition.
            kind = np.float64 if opencv else np.float32
            at = np.arange(out, dtype=kind) / (kind(out) / kind(size))
            planes = planes.take(np.minimum(at.astype(np.int64), size - 1), axis)
            continue
        smooth = p.imode == P.InterpolationMode.CUBIC and (opencv or p.format == P.Format.NCHW)
        planes = blended(planes, (cubic if smooth else linear)(_centres(size, out), size), axis)
    return from_planes(planes, p.format)


def resize_volume(c: Call, x: Array, out_shape: Array) -> Array | None:
    """Resample a volume linearly."""
    if not x.size:
        return None
    corners = c.get(P.Resize3D).align_corners
    for axis, out in zip((2, 3, 4), out_shape.reshape(-1).tolist(), strict=True):
        size = x.shape[axis]
        at = np.arange(out) * (size - 1) / max(1, out - 1) if corners else _centres(size, out)
        x = blended(x, linear(at, size), axis)
    return x


def _warped(
    planes: Array, rows: Array, cols: Array, mode: P.BorderMode, fill: float, finite: bool = True
) -> Array:
    """Sample one image [G, H, W, K] at positions [OH, OW]."""
    g, h, w, k = planes.shape
    fill = float(np.float32(fill))
    image = planes.transpose(0, 3, 1, 2).reshape(g * k, h, w)
    y = bilinear(pixels_of(image, mode, fill), rows, cols)
    if finite and mode == P.BorderMode.CONSTANT:
        y = np.where(np.isfinite(y), y, fill)
    return y.reshape(g, k, *rows.shape).transpose(0, 2, 3, 1)


def _opencv(planes: Array, layout: P.Format) -> bool:
    """Return whether MegEngine samples at positions rounded to 1/32 pixel, as OpenCV does."""
    return layout == P.Format.NHWC and planes.shape[4] in (1, 2, 3)


def warped_points(size: Array | tuple[int, ...]) -> Array:
    """Give the output's pixels as columns (x, y, 1) of shape [3, OH, OW]."""
    oh, ow = (int(n) for n in np.reshape(size, -1))
    y, x = np.mgrid[:oh, :ow].astype(np.float64)
    return np.stack((x, y, np.ones_like(x)))


def warp_perspective(c: Call, *args: Array) -> Array | None:
    """Sample where 3x3 matrices take the output's pixels."""
    p = c.get(P.WarpPerspective)
    indexed = len(args) > 3 and args[-2].ndim != 3
    *images, mat = args[: -2 if indexed else -1]
    planes = as_planes(np.concatenate(images) if len(images) > 1 else images[0], p.format)
    which = args[-2] if indexed else np.arange(len(mat))
    opencv = len(images) == 1 and _opencv(planes, p.format)
    known = (which >= 0) & (which < len(planes))
    if p.imode != P.InterpolationMode.LINEAR or opencv or not planes.size or not len(mat) or not known.all():
        return None
    x, y, z = np.moveaxis(np.einsum("nij,jhw->nihw", mat, warped_points(args[-1])), 1, 0)
    out = [
        _warped(planes[i], b, a, p.bmode, p.border_val) for i, a, b in zip(which, x / z, y / z, strict=True)
    ]
    return from_planes(np.stack(out), p.format)


def warp_affine(c: Call, x: Array, mat: Array, out_shape: Array) -> Array | None:
    """Sample where 2x3 matrices take the output's pixels."""
    p = c.get(P.WarpAffine)
    planes = as_planes(x, p.format)
    if p.imode != P.InterpolationMode.LINEAR or _opencv(planes, p.format) or not planes.size:
        return None
    at = np.einsum("nij,jhw->nihw", mat, warped_points(out_shape))
    out = [
        _warped(image, b, a, p.border_mode, p.border_val) for image, (a, b) in zip(planes, at, strict=True)
    ]
    return from_planes(np.stack(out), p.format)


def remap(c: Call, x: Array, where: Array) -> Array | None:
    """Sample at positions (column, row), bilinearly or at the nearest pixel."""
    p = c.get(P.Remap)
    if not x.size or not where.size:
        return None
    planes = as_planes(x, p.format)
    if p.imode == P.InterpolationMode.NEAREST:
        where = np.rint(where)
    out = [
        _warped(image, at[..., 1], at[..., 0], p.border_type, p.scalar, finite=False)
        for image, at in zip(planes, where, strict=True)
    ]
    return from_planes(np.stack(out), p.format)


def roi_align(c: Call, x: Array, rois: Array) -> tuple[Array, Array] | None:
    """Take the mean or the largest of bilinear samples in every bin, and the number of the largest."""
    p = c.get(P.ROIAlign)
    known = (rois[:, 0] > -1) & (rois[:, 0] < len(x))
    if not p.sample_height * p.sample_width or not x.size or not len(rois) or not known.all():
        return None
    ys, xs = region_samples(p, rois)
    bins = []
    for image, y, at in zip(rois[:, 0].astype(np.int64), ys, xs, strict=True):
        rows, cols = np.broadcast_arrays(y[:, None, :, None], at[None, :, None, :])
        samples = bilinear(pixels_of(x[image]), rows, cols)
        bins.append(samples.reshape(*samples.shape[:3], -1))
    samples = np.stack(bins)
    if p.mode == P.ROIAlignMode.MAX:
        return samples.max(-1), samples.argmax(-1).astype(np.int32)
    return samples.mean(-1), np.zeros(samples.shape[:-1], np.int32)


def region_samples(p: P.ROIAlign, rois: Array) -> tuple[Array, Array]:
    """Return the rows and the columns of the samples in every bin, each [regions, bins, samples]."""
    corners = rois[:, 1:] * float(np.float32(p.spatial_scale)) - float(np.float32(p.offset))
    ys, xs = (
        _samples(corners[:, i], corners[:, i + 2], bins, count)
        for i, bins, count in ((1, p.pooled_height, p.sample_height), (0, p.pooled_width, p.sample_width))
    )
    return ys, xs


def _samples(start: Array, end: Array, bins: int, count: int) -> Array:
    """Return positions [regions, bins, count], evenly spaced in every bin."""
    at = (np.arange(bins)[:, None] + (np.arange(count) + 0.5) / count).astype(start.dtype)
    return start[:, None, None] + np.maximum(end - start, 0)[:, None, None] / bins * at


def correlation(c: Call, a: Array, b: Array) -> Array:
    """Average products, or absolute differences, of windows of two images, one of them displaced."""
    p = c.get(P.Correlation)
    combine: Callable[[Array, Array], Array] = np.multiply if p.is_multiply else lambda x, y: np.abs(x - y)
    moves, sizes = _correlation_sizes(p, a.shape)
    out = np.zeros((len(a), len(moves) ** 2, *sizes))
    for at, rows, cols, dy, dx in _correlation_places(p, a.shape):
        out[:, at] += combine(_shifted(a, rows, cols), _shifted(b, rows + dy, cols + dx)).mean(1)
    return out / (2 * ((p.kernel_size - 1) // 2) + 1) ** 2


def _correlation_sizes(p: P.Correlation, shape: Shape) -> tuple[range, list[int]]:
    """Return the displacements along an axis, and height and width of the result."""
    radius, reach = (p.kernel_size - 1) // 2, p.max_displacement // p.stride2
    sizes = [ceil((n + 2 * p.pad_size - 2 * (p.max_displacement + radius)) / p.stride1) for n in shape[2:]]
    return range(-reach * p.stride2, reach * p.stride2 + 1, p.stride2), sizes


def _correlation_places(p: P.Correlation, shape: Shape) -> Iterator[tuple[int, Array, Array, int, int]]:
    """Yield channel, rows and columns [OH, OW] in the first image, and displacement, for every tap of the kernel."""
    moves, sizes = _correlation_sizes(p, shape)
    radius = (p.kernel_size - 1) // 2
    centres = [np.arange(n) * p.stride1 + p.max_displacement + radius - p.pad_size for n in sizes]
    kernel = range(-radius, radius + 1)
    for at, (dy, dx) in enumerate(product(moves, moves)):
        for ky, kx in product(kernel, kernel):
            rows, cols = np.meshgrid(centres[0] + ky, centres[1] + kx, indexing="ij")
            yield at, rows, cols, dy, dx


def _shifted(x: Array, rows: Array, cols: Array) -> Array:
    """Take pixels of [N, C, H, W] at rows and columns [OH, OW], 0 outside."""
    n, channels, *size = x.shape
    return pixels_of(x.reshape(n * channels, *size))(rows, cols).reshape(n, channels, *rows.shape)
