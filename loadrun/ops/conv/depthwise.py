"""Depthwise convolution: per channel a vector times the matrix of its taps, over blocks of channels.

Few long calls matter here: every numpy call takes the interpreter lock once, and threads queue for it.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...dtypes import Array
from ..numeric.parallel import parallel, scratch, splits
from .columns import fill_columns, phases, same_width
from .finish import Finish, finish_rows
from .geometry import Geometry

__all__ = ["depthwise"]

_BLOCK = 1 << 20
"""Elements of the tap matrices of one block."""
_SAME = 1 << 19
"""The same where products go where they belong."""


def depthwise(x: Array, w: Array, geo: Geometry, out: Array, finish: Finish | None) -> None:
    """Convolve every channel with its own filters (one input channel per group).

    Args:
        x: (batch, groups, H, W) contiguous, float32 or float64.
        w: (groups, ocg, 1, KH, KW).
        out: (batch, groups * ocg, OH, OW), written.
        finish: see `finish.Finish`.
    """
    if same_width(geo):
        _same(x, w, geo, out, finish)
        return
    (ky, kx), (sy, sx), (dy, dx) = geo.kernel, geo.stride, geo.dilate
    oh, ow = geo.out
    # Rows of a padded plane are as wide as the taps reach: a flat shift moves to any tap. The last row is
    # there for what the shifts read beyond the end, which lands in columns that are cut off.
    wide = -(-max(geo.size[1] + 2 * geo.pad[1], (kx - 1) * dx + 1 + (ow - 1) * sx) // sx)
    high = -(-max(geo.size[0] + 2 * geo.pad[0], (ky - 1) * dy + 1 + (oh - 1) * sy) // sy) + 1
    # Moving the taps costs about twice what the products do.
    parts = splits(2 * x.shape[0] * geo.channels * geo.points * geo.taps)
    rows = max(1, min(oh, _BLOCK // (geo.taps * wide)))
    per = max(1, min(-(-geo.groups // parts), _BLOCK // (geo.taps * rows * wide)))
    blocks = -(-geo.groups // per)
    per = -(-geo.groups // blocks)
    taps = w.reshape(geo.groups, geo.ocg, geo.taps)
    result = out.reshape(x.shape[0], geo.groups, geo.ocg, oh, ow)

    def block(i: int) -> None:
        n, b = divmod(i, blocks)
        part = slice(b * per, min(geo.groups, (b + 1) * per))
        count = part.stop - part.start
        if count <= 0:
            return
        planes = scratch("planes", (count, sy, sx, high, wide), x.dtype)
        phases(x[n, part], planes, *geo.pad)
        for first in range(0, oh, rows):
            last = min(oh, first + rows)
            span = (last - first) * wide
            columns = scratch("columns", (count, geo.taps, span), x.dtype)
            _columns(planes, columns, geo, first * wide)
            product = scratch("product", (count, geo.ocg, span), x.dtype)
            np.matmul(taps[part], columns, out=product)
            target = result[n, part, :, first:last]
            target[...] = product.reshape(count, geo.ocg, last - first, wide)[..., :ow]
            if finish is not None:
                start = part.start * geo.ocg
                flat = out[n, start : start + count * geo.ocg].reshape(count * geo.ocg, -1)
                region = slice(first * ow, last * ow)
                finish(flat[:, region], n, start, region)

    if parts > 1:
        parallel(block, x.shape[0] * blocks)
    else:
        for i in range(x.shape[0] * blocks):
            block(i)


def _same(x: Array, w: Array, geo: Geometry, out: Array, finish: Finish | None) -> None:
    """Channels whose tap matrices have no columns to cut off: products go where they belong."""
    batch, (oh, ow) = x.shape[0], geo.out
    parts = splits(2 * batch * geo.channels * geo.points * geo.taps)
    limit = min(_BLOCK, _SAME)
    rows = max(1, min(oh, limit // (geo.taps * ow)))
    per = max(1, min(-(-geo.groups // parts), limit // (geo.taps * rows * ow)))
    blocks = -(-geo.groups // per)
    taps = w.reshape(geo.groups, geo.ocg, geo.taps)
    result = out.reshape(batch, geo.groups, geo.ocg, geo.points)

    def block(i: int) -> None:
        n, b = divmod(i, blocks)
        part = slice(b * per, min(geo.groups, (b + 1) * per))
        count = part.stop - part.start
        for first in range(0, oh, rows):
            last = min(oh, first + rows)
            columns = scratch("columns", (count, geo.taps, last - first, ow), x.dtype)
            fill_columns(x[n, part], columns, geo, first, last)
            target = result[n, part, :, first * ow : last * ow]
            np.matmul(taps[part], columns.reshape(count, geo.taps, -1), out=target)
        if finish is not None:
            channels = slice(part.start * geo.ocg, part.stop * geo.ocg)
            finish_rows(out[n, channels].reshape(count * geo.ocg, -1), finish, n, channels.start)

    if parts > 1:
        parallel(block, batch * blocks)
    else:
        for i in range(batch * blocks):
            block(i)


def _columns(planes: Array, columns: Array, geo: Geometry, start: int) -> None:
    """What every tap reads, for flat positions from `start` on, into columns (channels, taps, positions)."""
    (ky, kx), (sy, sx), (dy, dx) = geo.kernel, geo.stride, geo.dilate
    count, _, span = columns.shape
    high, wide = planes.shape[3:]
    if sy == sx == 1:
        channel, unit = planes.strides[0], planes.itemsize
        strides = (channel, dy * wide * unit, dx * unit, unit)
        flat = planes.reshape(count, -1)[:, start:]
        source = as_strided(flat, (count, ky, kx, span), strides, writeable=False)
        np.copyto(columns.reshape(count, ky, kx, span), source)
        return
    phases = planes.reshape(count, sy, sx, high * wide)
    for t in range(geo.taps):
        y, x = divmod(t, kx)
        (qy, ry), (qx, rx) = divmod(y * dy, sy), divmod(x * dx, sx)
        at = start + qy * wide + qx
        columns[:, t] = phases[:, ry, rx, at : at + span]
