"""Pooling over regions of interest: rows (image, x0, y0, x1, y1) over a feature map [N, C, H, W]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np

from ...graph import Opr
from ...graph.dtypes import Array, DType, plain
from ...graph.params import DeformablePSROIPooling, Format, ROIAlign, ROIAlignMode, ROIPooling, ROIPoolingMode
from ..registry import Call, Shape, ShapeCall, kernel

_LOWEST = np.finfo(np.float32).min
_CHUNK = 1 << 20
"""Elements of one block of samples."""
_SAMPLES = 1 << 16
"""Most samples of one bin; more is a damaged file, not a model."""


def _check(x: Shape, rois: Shape) -> None:
    if len(x) != 4:
        raise ValueError(f"the feature map must be [N, C, H, W], found {list(x)}")
    if len(rois) != 2 or rois[1] != 5:
        raise ValueError(f"regions must be [M, 5], found {list(rois)}")


def _images_of(rois: Array, count: int) -> Array:
    """Return the image number of every region."""
    number = rois[:, 0]
    if not ((number > -1) & (number < count)).all():
        raise ValueError(f"a region names an image outside 0..{count - 1}")
    return number.astype(np.int64)


def _samples(height: int, width: int) -> None:
    if height * width > _SAMPLES:
        raise ValueError(f"{height}x{width} samples per bin are more than {_SAMPLES}")


def _pixel_rows(x: Array) -> Array:
    """Turn [N, C, H, W] into pixels [N * H * W + 1, C]; the last one is zero and stands for all outside."""
    n, c, h, w = x.shape
    rows = np.zeros((n * h * w + 1, c), np.float32)
    rows[:-1].reshape(n, h * w, c)[...] = x.reshape(n, c, h * w).transpose(0, 2, 1)
    return rows


def _blocks(count: int, each: int) -> Iterator[slice]:
    step = max(1, _CHUNK // max(1, each))
    for at in range(0, count, step):
        yield slice(at, min(at + step, count))


def _dtypes(second: str) -> Callable[[Opr, tuple[DType, ...]], Sequence[DType]]:
    def rule(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
        if inputs[0].name != "Float32" or inputs[1].name != "Float32":
            raise ValueError(
                f"feature map and regions must be Float32, found {inputs[0].name} and {inputs[1].name}"
            )
        return (plain("Float32"), plain(second))

    return rule


# ROIAlign


def _align_size(p: ROIAlign, x: Shape, rois: Shape) -> Shape:
    _check(x, rois)
    if p.format != Format.NCHW:
        raise ValueError(f"ROIAlign takes format NCHW only, found {Format(p.format).name}")
    _samples(p.sample_height, p.sample_width)
    if p.pooled_height < 1 or p.pooled_width < 1:
        raise ValueError(f"ROIAlign cannot pool to {p.pooled_height}x{p.pooled_width}")
    return (rois[0], x[1], p.pooled_height, p.pooled_width)


def _align_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (_align_size(s.get(ROIAlign), s.shape(0), s.shape(1)),) * 2


def _align_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    p = opr.get(ROIAlign)
    return 10 * prod(outputs[0]) * p.sample_height * p.sample_width


def _centres(start: Array, end: Array, pooled: int, samples: int) -> Array:
    """Sample positions [M, pooled, samples] along one axis, in float32 as MegEngine computes them."""
    one = np.float32(1)
    bins = np.maximum(end - start, np.float32(0)) / np.float32(pooled)
    rate = one / np.float32(samples) if samples else one
    at = np.arange(pooled, dtype=np.float32)[:, None] + rate * (
        np.arange(samples, dtype=np.float32) + np.float32(0.5)
    )
    return start[:, None, None] + bins[:, None, None] * at


def _align_centres(p: ROIAlign, rois: Array) -> tuple[Array, Array]:
    """Return the rows and the columns of the samples in every bin, each [M, pooled, samples]."""
    scaled = rois[:, 1:] * np.float32(p.spatial_scale) - np.float32(p.offset)
    return (
        _centres(scaled[:, 1], scaled[:, 3], p.pooled_height, p.sample_height),
        _centres(scaled[:, 0], scaled[:, 2], p.pooled_width, p.sample_width),
    )


def _lerp_sample(pixels: Array, base: Array, h: Array, w: Array, size: tuple[int, int]) -> Array:
    """Sample bilinearly, neighbours outside being 0: along the row first, then between the rows.

    Args:
        pixels: from `_pixel_rows`.
        base: index of the image's first pixel, broadcast against h and w.
    """
    top, left = np.floor(h), np.floor(w)
    y0 = np.nan_to_num(np.clip(top, -2, size[0])).astype(np.int64)
    x0 = np.nan_to_num(np.clip(left, -2, size[1])).astype(np.int64)
    dy, dx = (h - top)[..., None], (w - left)[..., None]

    def corner(y: Array, x: Array) -> Array:
        inside = (y >= 0) & (y < size[0]) & (x >= 0) & (x < size[1])
        return pixels[np.where(inside, base + y * size[1] + x, len(pixels) - 1)]

    def between(y: Array) -> Array:
        first, second = corner(y, x0), corner(y, x0 + 1)
        second -= first
        second *= dx
        second += first
        return second

    upper, lower = between(y0), between(y0 + 1)
    lower -= upper
    lower *= dy
    lower += upper
    return lower


@kernel("ROIAlignV1", dtype=_dtypes("Int32"), shape=_align_shape, flops=_align_flops)
def roi_align(c: Call, x: Array, rois: Array) -> tuple[Array, Array]:
    """Average bilinear samples on a regular grid in every bin, or take their maximum.

    Semantics of MegEngine's dnn naive ROIAlign. The second output is the number of the sample that was the
    maximum (-1 for none); with AVERAGE, where MegEngine leaves it unset, it is 0.
    """
    p = c.get(ROIAlign)
    m, channels, ph, pw = shape = _align_size(p, x.shape, rois.shape)
    size = (x.shape[2], x.shape[3])
    images = _images_of(rois, x.shape[0])
    hs, ws = _align_centres(p, rois)
    pixels = _pixel_rows(x)
    out = np.zeros(shape, np.float32)
    index = np.zeros(shape, np.int32)
    largest = p.mode == ROIAlignMode.MAX
    total = p.sample_height * p.sample_width
    for here in _blocks(m, channels * ph * pw):
        base = (images[here] * (size[0] * size[1]))[:, None, None]
        block = np.full(
            (here.stop - here.start, ph, pw, channels), _LOWEST if largest and total else 0, np.float32
        )
        best = np.full(block.shape, -1 if largest else 0, np.int32)
        for k in range(total):
            h = hs[here, :, None, k // p.sample_width]
            w = ws[here, None, :, k % p.sample_width]
            value = _lerp_sample(pixels, base, h, w, size)
            if largest:
                more = value > block
                np.copyto(block, value, where=more)
                np.copyto(best, np.int32(k), where=more)
            else:
                block += value
        if not largest and total:
            block /= np.float32(total)
        out[here] = block.transpose(0, 3, 1, 2)
        index[here] = best.transpose(0, 3, 1, 2)
    return out, index


# ROIPooling


def _pooling_size(x: Shape, rois: Shape, want: Sequence[int]) -> Shape:
    _check(x, rois)
    if len(want) != 2 or min(want) < 1:
        raise ValueError(f"the output size of ROIPooling is two positive numbers, found {list(want)}")
    return (rois[0], x[1], want[0], want[1])


def _pooling_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (_pooling_size(s.shape(0), s.shape(1), s.ints(2)),) * 2


def _round_away(x: Array) -> Array:
    """Round halves away from zero, to int64 within the range of int32."""
    wide = np.nan_to_num(x.astype(np.float64))
    return np.clip(np.copysign(np.floor(np.abs(wide) + 0.5), wide), -(2**31), 2**31 - 1).astype(np.int64)


def _bins(start: Array, end: Array, pooled: int, size: int) -> tuple[Array, Array]:
    """Return the first and past-the-last element of every bin, [M, pooled], cut to the feature map."""
    length = np.maximum(end - start + 1, 1).astype(np.float32)
    width = (length / np.float32(pooled))[:, None]
    at = np.arange(pooled + 1, dtype=np.float32)
    lo = np.floor(at[:-1] * width).astype(np.int64) + start[:, None]
    hi = np.ceil(at[1:] * width).astype(np.int64) + start[:, None]
    return np.clip(lo, 0, size), np.clip(hi, 0, size)


@kernel("ROIPooling", dtype=_dtypes("Int32"), shape=_pooling_shape)
def roi_pooling(c: Call, x: Array, rois: Array, out_shape: Array) -> tuple[Array, Array]:
    """Take the maximum or average over the whole pixels of every bin, 0 for an empty bin.

    Semantics of MegEngine's dnn naive ROIPooling. The second output is the position of the maximum in its
    channel (the first one, -1 for none); with AVERAGE, where MegEngine leaves it unset, it is 0.
    """
    p = c.get(ROIPooling)
    m, _, ph, pw = shape = _pooling_size(x.shape, rois.shape, [int(v) for v in out_shape.reshape(-1)])
    # The left, top, right and bottom pixel of every region, [M, 4]; the last two belong to it.
    corners = _round_away(rois[:, 1:] * np.float32(p.scale))
    # The first row or column of every bin and the one past its last, each [M, pooled].
    tops, bottoms = _bins(corners[:, 1], corners[:, 3], ph, x.shape[2])
    lefts, rights = _bins(corners[:, 0], corners[:, 2], pw, x.shape[3])
    images = _images_of(rois, x.shape[0])
    largest = p.mode == ROIPoolingMode.MAX
    out = np.zeros(shape, np.float32)
    index = np.full(shape, -1 if largest else 0, np.int32)
    if largest and np.isnan(x).any():
        x = np.where(np.isnan(x), np.float32(-np.inf), x)
    one = _largest_of_bins if largest else _average_of_bins
    for i in range(m if out.size else 0):
        rows, cols = _filled(tops[i], bottoms[i]), _filled(lefts[i], rights[i])
        if rows and cols:
            one(x[images[i]], rows, cols, out[i], index[i])
    return out, index


Bins = list[tuple[int, int, int]]
"""Number, begin and end of bins."""


def _filled(los: Array, his: Array) -> Bins:
    """Return number, begin and end of every bin that holds anything."""
    return [(k, int(lo), int(hi)) for k, (lo, hi) in enumerate(zip(los, his, strict=True)) if lo < hi]


def _largest_of_bins(x: Array, rows: Bins, cols: Bins, out: Array, index: Array) -> None:
    first, last = rows[0][1], rows[-1][2]
    part = x[:, first:last]
    at = np.zeros((x.shape[0], last - first, len(cols)), np.int64)
    for j, (_, lo, hi) in enumerate(cols):
        at[:, :, j] = part[:, :, lo:hi].argmax(axis=2) + lo
    high = np.take_along_axis(part, at, axis=2)
    columns = [k for k, _, _ in cols]
    for k, lo, hi in rows:
        row = high[:, lo - first : hi - first].argmax(axis=1)[:, None] + (lo - first)
        value = np.take_along_axis(high, row, axis=1)[:, 0]
        place = np.take_along_axis(at, row, axis=1)[:, 0] + (row[:, 0] + first) * x.shape[2]
        more = value > _LOWEST
        out[:, k, columns] = np.where(more, value, _LOWEST)
        index[:, k, columns] = np.where(more, place, -1)


def _average_of_bins(x: Array, rows: Bins, cols: Bins, out: Array, index: Array) -> None:
    first, last = rows[0][1], rows[-1][2]
    sums = np.stack([x[:, first:last, lo:hi].sum(axis=2) for _, lo, hi in cols], axis=2)
    widths = np.array([hi - lo for _, lo, hi in cols])
    columns = [k for k, _, _ in cols]
    for k, lo, hi in rows:
        count = (widths * (hi - lo)).astype(np.float32)
        out[:, k, columns] = sums[:, lo - first : hi - first].sum(axis=1) / count


# DeformablePSROIPooling


def _deformable_size(p: DeformablePSROIPooling, x: Shape, rois: Shape, trans: Shape) -> Shape:
    _check(x, rois)
    if p.pooled_h < 1 or p.pooled_w < 1:
        raise ValueError(f"DeformablePSROIPooling cannot pool to {p.pooled_h}x{p.pooled_w}")
    _samples(p.sample_per_part, p.sample_per_part)
    if len(trans) != 4:
        raise ValueError(f"trans must have 4 axes, found {list(trans)}")
    if not p.no_trans:
        if trans[1:] != (2, p.pooled_h, p.pooled_w):
            raise ValueError(f"trans must be [M, 2, {p.pooled_h}, {p.pooled_w}], found {list(trans)}")
        if rois[0] * 2 * p.part_size**2 > prod(trans):
            raise ValueError(f"trans {list(trans)} is too small for {rois[0]} regions of {p.part_size} parts")
    return (rois[0], x[1], p.pooled_h, p.pooled_w)


def _deformable_shape(s: ShapeCall) -> Sequence[Shape | None]:
    size = _deformable_size(s.get(DeformablePSROIPooling), s.shape(0), s.shape(1), s.shape(2))
    return (size, size)


def _deformable_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return 9 * prod(outputs[0]) * opr.get(DeformablePSROIPooling).sample_per_part ** 2


def _shifts(p: DeformablePSROIPooling, trans: Array, m: int) -> tuple[Array, Array]:
    """Return the horizontal and vertical displacement of every bin, [M, PH, PW], in units of the region's size."""
    if p.no_trans:
        zero = np.zeros((m, p.pooled_h, p.pooled_w), np.float32)
        return zero, zero
    part = np.float32(p.part_size)
    rows, cols = (
        np.floor(np.arange(n, dtype=np.float32) / np.float32(n) * part).astype(np.int64)
        for n in (p.pooled_h, p.pooled_w)
    )
    grid = trans.reshape(-1)[: m * 2 * p.part_size**2].reshape(m, 2, p.part_size, p.part_size)
    taken = grid[:, :, rows[:, None], cols] * np.float32(p.trans_std)
    return taken[:, 0], taken[:, 1]


def _region(p: DeformablePSROIPooling, rois: Array) -> tuple[Array, Array]:
    """Return the left top corner and the size of every region, (x, y) each."""
    whole = _round_away(rois[:, 1:])
    scale, half = np.float32(p.spatial_scale), np.float32(0.5)
    start = whole[:, :2].astype(np.float32) * scale - half
    return start, np.maximum((whole[:, 2:] + 1).astype(np.float32) * scale - half - start, np.float32(0.1))


def _pooled_samples(
    p: DeformablePSROIPooling, rois: Array, trans: Array, size: Shape, here: slice = slice(None)
) -> Iterator[tuple[Array, Array, Array]]:
    """Yield rows, columns and whether they are inside for each sample of a bin, [M, PH, PW], of the regions `here`."""
    (start, length), (height, width) = _region(p, rois[here]), size
    shift_x, shift_y = (shift[here] for shift in _shifts(p, trans, len(rois)))
    step_x, step_y = length[:, 0] / np.float32(p.pooled_w), length[:, 1] / np.float32(p.pooled_h)
    count = np.float32(p.sample_per_part)
    left = np.arange(p.pooled_w, dtype=np.float32) * step_x[:, None] + start[:, :1]
    top = np.arange(p.pooled_h, dtype=np.float32) * step_y[:, None] + start[:, 1:]
    left = left[:, None, :] + shift_x * length[:, :1, None]
    top = top[:, :, None] + shift_y * length[:, 1:, None]
    for k in range(p.sample_per_part**2):
        row, col = divmod(k, p.sample_per_part)
        w = left + np.float32(col) * (step_x / count)[:, None, None]
        h = top + np.float32(row) * (step_y / count)[:, None, None]
        inside = (w >= -0.5) & (w <= width - 0.5) & (h >= -0.5) & (h <= height - 0.5)
        w = np.clip(np.where(inside, w, np.float32(0)), 0, np.float32(width - 1))
        h = np.clip(np.where(inside, h, np.float32(0)), 0, np.float32(height - 1))
        yield h, w, inside


def _corner_sample(pixels: Array, base: Array, h: Array, w: Array, width: int) -> Array:
    """Sample bilinearly between the floor and the ceiling of a position inside the feature map."""
    h1, h2, w1, w2 = (v.astype(np.int64) for v in (np.floor(h), np.ceil(h), np.floor(w), np.ceil(w)))
    dh, dw = (h - h1.astype(np.float32))[..., None], (w - w1.astype(np.float32))[..., None]
    one = np.float32(1)
    total = pixels[base + h1 * width + w1] * ((one - dw) * (one - dh))
    total += pixels[base + h2 * width + w1] * ((one - dw) * dh)
    total += pixels[base + h1 * width + w2] * (dw * (one - dh))
    total += pixels[base + h2 * width + w2] * (dw * dh)
    return total


@kernel(
    "DeformablePSROIPoolingForward",
    dtype=_dtypes("Float32"),
    shape=_deformable_shape,
    flops=_deformable_flops,
)
def deformable_ps_roi_pooling(c: Call, x: Array, rois: Array, trans: Array) -> tuple[Array, Array]:
    """Average bilinear samples in bins that `trans` moves; the second output counts the samples.

    Semantics of MegEngine's dnn naive DeformablePSROIPooling: all channels of a bin are pooled alike.
    """
    p = c.get(DeformablePSROIPooling)
    m, channels, ph, pw = shape = _deformable_size(p, x.shape, rois.shape, trans.shape)
    height, width = x.shape[2:]
    images = _images_of(rois, x.shape[0])
    out, number = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    if not out.size or not x.size:
        return out, number
    pixels = _pixel_rows(x)
    for here in _blocks(m, channels * ph * pw):
        total = np.zeros((here.stop - here.start, ph, pw, channels), np.float32)
        counts = np.zeros(total.shape[:3], np.float32)
        base = (images[here] * (height * width))[:, None, None]
        for h, w, inside in _pooled_samples(p, rois, trans, (height, width), here):
            total += np.where(inside[..., None], _corner_sample(pixels, base, h, w, width), np.float32(0))
            counts += inside
        total /= np.maximum(counts, 1)[..., None]
        out[here] = total.transpose(0, 3, 1, 2)
        number[here] = counts[:, None]
    return out, number
