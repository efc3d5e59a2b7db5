"""im2col in few long copies: planes of one stride phase each, then all taps of a phase at once through strides."""

from __future__ import annotations

from math import gcd

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...dtypes import Array
from ..numeric.parallel import scratch
from .geometry import Geometry

__all__ = ["fill_columns", "phases", "same_width"]


def phases(x: Array, planes: Array, top: int, left: int) -> None:
    """Spread images with their padding over one plane per stride phase.

    Args:
        x: (channels, H, W).
        planes: (channels, stride y, stride x, rows, columns), written; plane row ``a`` of phase ``ry`` holds the
            input row ``a * stride + ry - top``, or zeros outside.
        top: padding above; negative starts inside the input.
        left: padding on the left.
    """
    sy, sx = planes.shape[1:3]
    planes[...] = 0
    for ry in range(sy):
        for rx in range(sx):
            a, y = _first(ry - top, sy)
            b, c = _first(rx - left, sx)
            part = x[:, y::sy, c::sx]
            to = planes[:, ry, rx, a : a + part.shape[1], b : b + part.shape[2]]
            to[...] = part[:, : to.shape[1], : to.shape[2]]


def _first(offset: int, stride: int) -> tuple[int, int]:
    """First plane index that lies inside the input, and the input position there."""
    a = max(0, -(offset // stride))
    return a, a * stride + offset


def same_width(geo: Geometry) -> bool:
    """Whether output rows are as long as the input's of one stride phase, so that every tap is a flat shift."""
    return geo.out[1] == -(-geo.size[1] // geo.stride[1])


def fill_columns(x: Array, columns: Array, geo: Geometry, first: int, last: int) -> None:
    """Copy what each tap reads for output rows ``first:last``.

    Args:
        x: (channels, H, W), contiguous.
        columns: (channels, taps, rows, width), contiguous, written.
        geo: of two spatial axes.
    """
    (ky, kx), (sy, sx), (dy, dx) = geo.kernel, geo.stride, geo.dilate
    count, rows, width = x.shape[0], last - first, geo.out[1]
    padded = any(geo.pad)
    if geo.taps == 1 and not padded:
        columns[:, 0] = x[:, first * sy : (last - 1) * sy + 1 : sy, : (width - 1) * sx + 1 : sx]
        return
    target = columns.reshape(count, ky, kx, rows, width)
    if padded and same_width(geo):
        _shift(x, target, geo, first)
        return
    if geo.stride == (1, 1) and not padded:
        planes = x[:, None, None, first:]
    else:
        high = -(-((rows - 1) * sy + (ky - 1) * dy + 1) // sy)
        wide = -(-((width - 1) * sx + (kx - 1) * dx + 1) // sx)
        planes = scratch("planes", (count, sy, sx, high, wide), x.dtype)
        phases(x, planes, geo.pad[0] - first * sy, geo.pad[1])
    channel, line, unit = planes.strides[0], planes.strides[3], planes.strides[4]
    if geo.stride == (1, 1) or geo.dilate == (1, 1):
        for ry in range(min(sy, ky)):
            for rx in range(min(sx, kx)):
                part = target[:, ry::sy, rx::sx]
                strides = (channel, dy * line, dx * unit, line, unit)
                np.copyto(part, as_strided(planes[:, ry, rx], part.shape, strides, writeable=False))
        return
    for y in range(ky):
        for z in range(kx):
            (qy, ry), (qx, rx) = divmod(y * dy, sy), divmod(z * dx, sx)
            target[:, y, z] = planes[:, ry, rx, qy : qy + rows, qx : qx + width]


def _shift(x: Array, target: Array, geo: Geometry, first: int) -> None:
    """Columns of a convolution whose rows are as long as those of a stride phase ("same" padding).

    Each tap reads its phase at a fixed distance, so that all its rows are one copy; what comes from the neighbouring
    row then is overwritten with the zeros of the padding.

    Args:
        x: (channels, H, W).
        target: (channels, KH, KW, rows, width), written.
    """
    (ky, kx), (sy, sx), (dy, dx) = geo.kernel, geo.stride, geo.dilate
    count, _, _, rows, width = target.shape
    tops = [divmod(k * dy - geo.pad[0], sy) for k in range(ky)]
    lefts = [divmod(k * dx - geo.pad[1], sx) for k in range(kx)]
    # Rows more on both sides for what a shift to the left or right reaches.
    more = max(1, -(-max(abs(lefts[0][0]), abs(lefts[-1][0])) // width))
    low, high = tops[0][0] - more, tops[-1][0] + rows + more
    plane = scratch("planes", (count, high - low, width), x.dtype)
    step_y, step_x = sy // gcd(sy, dy), sx // gcd(sx, dx)
    item = x.itemsize
    strides = (
        plane.strides[0],
        dy * step_y // sy * width * item,
        dx * step_x // sx * item,
        item,
    )
    flat = target.reshape(count, ky, kx, rows * width)
    for a in range(min(step_y, ky)):
        for b in range(min(step_x, kx)):
            (qy, ry), (qx, rx) = tops[a], lefts[b]
            _phase(x[:, ry::sy, rx::sx], plane, first + low)
            part = flat[:, a::step_y, b::step_x]
            # as_strided takes as long as such a copy.
            start = ((qy - low) * width + qx) * item
            np.copyto(part, np.ndarray(part.shape, plane.dtype, plane, start, strides))
    for k, (q, _) in enumerate(lefts):
        if q < 0:
            target[:, :, k, :, :-q] = 0
        elif q > 0:
            target[:, :, k, :, max(0, width - q) :] = 0


def _phase(x: Array, plane: Array, at: int) -> None:
    """Copy rows of an image from row `at` on, zeros outside of it."""
    rows = plane.shape[1]
    begin, end = max(0, -at), min(rows, x.shape[1] - at)
    if begin >= end:
        plane[...] = 0
        return
    plane[:, :begin] = 0
    plane[:, end:] = 0
    plane[:, begin:end, : x.shape[2]] = x[:, at + begin : at + end]
    plane[:, begin:end, x.shape[2] :] = 0
