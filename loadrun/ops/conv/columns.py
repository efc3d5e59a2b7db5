"""im2col in few long copies: padded planes, then all taps of a stride phase at once through strides."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...dtypes import Array
from ..numeric.parallel import scratch
from .geometry import Geometry

__all__ = ["fill_columns", "phases"]


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


def fill_columns(x: Array, columns: Array, geo: Geometry, first: int, last: int) -> None:
    """Copy what each tap reads for output rows ``first:last``.

    Args:
        x: (channels, H, W), contiguous.
        columns: (channels, taps, rows, width), written.
        geo: of two spatial axes.
    """
    (ky, kx), (sy, sx), (dy, dx) = geo.kernel, geo.stride, geo.dilate
    count, rows, width = x.shape[0], last - first, geo.out[1]
    target = columns.reshape(count, ky, kx, rows, width)
    if geo.stride == (1, 1) and not any(geo.pad):
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
