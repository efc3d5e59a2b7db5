"""im2col in few long copies: planes of one stride phase each, then all taps of a phase at once through strides.

Their bounds are worked out once for the output rows that a convolution computes at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...graph.dtypes import Array
from ..numeric.parallel import scratch
from .rules import Geometry

__all__ = ["Block", "Fill", "filler", "phases", "row_blocks", "same_width"]

Fill = Callable[[Array, Array], None]
"""Copies what the taps read in (channels, H, W), contiguous, into (channels, taps, rows, width), contiguous."""

_KEPT = 64
"""Blocks whose copies are worked out in advance; those of large images take far longer than that."""


class Block(NamedTuple):
    """Whole output rows that a convolution computes at a time.

    Attributes:
        fill: copies their columns; None if the input itself is the matrix.
        rows: how many there are.
        span: their positions.
    """

    fill: Fill | None
    rows: int
    span: slice


def row_blocks(geo: Geometry, rows: int) -> tuple[int, Callable[[int], Block]]:
    """Return the number of blocks of so many output rows, and a function that gives a block by its number.

    >>> geo = Geometry((3, 3), (1, 1), (1, 1), (1, 1), (5, 4), (5, 4), 1, 1, 1)
    >>> count, block = row_blocks(geo, 2)
    >>> count, block(2).rows, block(2).span
    (3, 1, slice(16, 20, None))
    """
    height, width = geo.out

    def block(number: int) -> Block:
        first, last = number * rows, min(height, (number + 1) * rows)
        fill = None if geo.pointwise else filler(geo, first, last)
        return Block(fill, last - first, slice(first * width, last * width))

    count = -(-height // rows)
    return count, block if count > _KEPT else [block(b) for b in range(count)].__getitem__


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
    """Return the first plane index that is inside the input, and the input position there."""
    a = max(0, -(offset // stride))
    return a, a * stride + offset


def same_width(geo: Geometry) -> bool:
    """Return whether output rows are as long as the input's of one stride phase, so that every tap is a flat shift."""
    return geo.out[1] == -(-geo.size[1] // geo.stride[1])


def filler(geo: Geometry, first: int, last: int) -> Fill:
    """Return a function that copies the columns of output rows ``first:last``, for any number of channels.

    Args:
        geo: of two spatial axes.

    >>> geo = Geometry((1, 2), (0, 0), (1, 1), (1, 1), (1, 3), (1, 2), 1, 1, 1)
    >>> columns = np.empty((1, 2, 1, 2), "f4")
    >>> filler(geo, 0, 1)(np.array([[[1, 2, 3]]], "f4"), columns)
    >>> columns[0, :, 0].tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    (sy, sx), width = geo.stride, geo.out[1]
    padded = any(geo.pad)
    if geo.taps == 1 and not padded:
        rows = slice(first * sy, (last - 1) * sy + 1, sy)
        places = slice(0, (width - 1) * sx + 1, sx)

        def strided(x: Array, columns: Array) -> None:
            columns[:, 0] = x[:, rows, places]

        return strided
    if padded and same_width(geo):
        return _shifts(geo, first, last)
    return _phases(geo, first, last)


def _phases(geo: Geometry, first: int, last: int) -> Fill:
    """Copy columns from planes of the phases with their padding."""
    (ky, kx), (sy, sx), (dy, dx) = geo.kernel, geo.stride, geo.dilate
    rows, width = last - first, geo.out[1]
    plain = geo.stride == (1, 1) and not any(geo.pad)
    high = -(-((rows - 1) * sy + (ky - 1) * dy + 1) // sy)
    wide = -(-((width - 1) * sx + (kx - 1) * dx + 1) // sx)
    together = geo.stride == (1, 1) or geo.dilate == (1, 1)

    def fill(x: Array, columns: Array) -> None:
        count = x.shape[0]
        target = columns.reshape(count, ky, kx, rows, width)
        if plain:
            planes = x[:, None, None, first:]
        else:
            planes = scratch("planes", (count, sy, sx, high, wide), x.dtype)
            phases(x, planes, geo.pad[0] - first * sy, geo.pad[1])
        if not together:
            for y in range(ky):
                for z in range(kx):
                    (qy, ry), (qx, rx) = divmod(y * dy, sy), divmod(z * dx, sx)
                    target[:, y, z] = planes[:, ry, rx, qy : qy + rows, qx : qx + width]
            return
        channel, line, unit = planes.strides[0], planes.strides[3], planes.strides[4]
        strides = (channel, dy * line, dx * unit, line, unit)
        for ry in range(min(sy, ky)):
            for rx in range(min(sx, kx)):
                part = target[:, ry::sy, rx::sx]
                np.copyto(part, as_strided(planes[:, ry, rx], part.shape, strides, writeable=False))

    return fill


def _shifts(geo: Geometry, first: int, last: int) -> Fill:
    """Copy the columns of a convolution whose rows are as long as those of a stride phase ("same" padding).

    Each tap reads its phase at a fixed distance, so that all its rows are one copy; what comes from the neighbouring
    row then is overwritten with the zeros of the padding.
    """
    (ky, kx), (sy, sx), (dy, dx) = geo.kernel, geo.stride, geo.dilate
    rows, width = last - first, geo.out[1]
    tops = [divmod(k * dy - geo.pad[0], sy) for k in range(ky)]
    lefts = [divmod(k * dx - geo.pad[1], sx) for k in range(kx)]
    # Extra rows on both sides, which shifts to the left or right reach.
    more = max(1, -(-max(abs(lefts[0][0]), abs(lefts[-1][0])) // width))
    low, high = tops[0][0] - more, tops[-1][0] + rows + more
    step_y, step_x = sy // gcd(sy, dy), sx // gcd(sx, dx)
    shift_y, shift_x = dy * step_y // sy * width, dx * step_x // sx
    every = slice(None)
    moves = []
    for a in range(min(step_y, ky)):
        for b in range(min(step_x, kx)):
            (qy, ry), (qx, rx) = tops[a], lefts[b]
            part = (every, slice(a, None, step_y), slice(b, None, step_x))
            taps = (-(-(ky - a) // step_y), -(-(kx - b) // step_x))
            moves.append((_phase(geo, ry, rx, first + low, high - low), part, taps, (qy - low) * width + qx))
    edges = []
    for k, (q, _) in enumerate(lefts):
        if q:
            edges.append((every, every, k, every, slice(0, -q) if q < 0 else slice(max(0, width - q), None)))
    lines, span = high - low, rows * width

    def fill(x: Array, columns: Array) -> None:
        count, item = x.shape[0], x.itemsize
        plane = scratch("planes", (count, lines, width), x.dtype)
        strides = (lines * width * item, shift_y * item, shift_x * item, item)
        flat = columns.reshape(count, ky, kx, span)
        for phase, part, taps, start in moves:
            phase(x, plane)
            # as_strided would take as long as this copy.
            flat[part] = np.ndarray((count, *taps, span), plane.dtype, plane, start * item, strides)
        target = columns.reshape(count, ky, kx, rows, width)
        for edge in edges:
            target[edge] = 0

    return fill


def _phase(geo: Geometry, ry: int, rx: int, at: int, lines: int) -> Callable[[Array, Array], None]:
    """Return a function that copies `lines` rows of a stride phase, from row `at`, into a plane with zeros outside."""
    (sy, sx), width = geo.stride, geo.out[1]
    high, wide = len(range(ry, geo.size[0], sy)), len(range(rx, geo.size[1], sx))
    begin, end = max(0, -at), min(lines, high - at)
    if begin >= end:
        begin = end = lines
    every = slice(None)
    zeros = [(every, slice(0, begin))] if begin else []
    if end < lines:
        zeros.append((every, slice(end, None)))
    inside = (every, slice(begin, end), slice(0, wide))
    beside = (every, slice(begin, end), slice(wide, None)) if wide < width and begin < end else None
    source = (every, slice(ry + (at + begin) * sy, ry + (at + end) * sy, sy), slice(rx, None, sx))

    def copy(x: Array, plane: Array) -> None:
        for part in zeros:
            plane[part] = 0
        if begin < end:
            plane[inside] = x[source]
        if beside is not None:
            plane[beside] = 0

    return copy
