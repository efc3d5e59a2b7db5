"""Fast convolution on plain NCHW arrays: matrix products over im2col blocks, or shifted sums.

The output is computed in blocks whose columns stay in the cache; then bias and activation are applied to pieces of it
that do. Both run on the thread pool.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...dtypes import Array
from ..numeric.parallel import parallel, scratch, splits
from .columns import fill_columns
from .depthwise import depthwise
from .finish import PIECE, Finish, finish_rows
from .geometry import Geometry

__all__ = ["conv_fast"]

_BLOCK = 1 << 18
"""im2col elements of one block: the second-level cache holds them."""
_LARGE = 1 << 20
"""What deep filters may make of that, so that products stay long."""
_COLUMNS = (384, 768)
"""Positions that a block has at least, since every block reads the whole filter: of any filter, and within `_LARGE`."""

_FEW = 1 << 20
"""Elements that one thread finishes sooner than others wake up for it."""


def conv_fast(x: Array, w: Array, geo: Geometry, finish: Finish | None = None) -> Array:
    """Convolve float32 (or float64) arrays of two spatial axes.

    Args:
        x: (batch, groups * icg, H, W).
        w: (groups, ocg, icg, KH, KW) of the same dtype, contiguous, not flipped.
        geo: from `geometry.geometry`.
        finish: changes each block of the output in place.

    Returns:
        (batch, groups * ocg, OH, OW) of that dtype.
    """
    out = np.empty((x.shape[0], geo.channels, *geo.out), x.dtype)
    if not out.size:
        return out
    x = np.ascontiguousarray(x)
    if geo.icg == 1 and geo.groups > 1:
        depthwise(x, w, geo, out, finish)
        return out
    matrix = w.reshape(geo.groups, geo.ocg, geo.icg * geo.taps)
    if geo.points < 256 and geo.groups == 1 and _parts(x, geo) > 1:
        _by_rows(x, matrix, geo, out, finish)
    else:
        _by_positions(x, matrix, geo, out, finish)
    return out


def _parts(x: Array, geo: Geometry) -> int:
    """Into how many parts the work is best cut."""
    return splits(x.shape[0] * geo.channels * geo.points * geo.taps * geo.icg)


def _by_positions(x: Array, matrix: Array, geo: Geometry, out: Array, finish: Finish | None) -> None:
    """Blocks of whole output rows, all channels of some groups; then what follows, on whole channels.

    numpy is slow on parts of rows: it copies them into buffers of its own.
    """
    depth = matrix.shape[2]
    height, width = geo.out
    parts = _parts(x, geo)
    rows = height if geo.pointwise else min(height, _block_rows(depth, width))
    if parts > 1:
        rows = min(rows, -(-height // parts))
    # Blocks of equal size keep the threads in step.
    blocks = -(-height // rows)
    rows = -(-height // blocks)
    batch = x.shape[0]
    grouped = out.reshape(batch, geo.groups, geo.ocg, geo.points)
    flat = x.reshape(batch, geo.groups, geo.icg, *geo.size)
    per = max(1, _BLOCK // (depth * rows * width)) if geo.groups > 1 else 1
    if parts > 1:
        per = min(per, max(1, geo.groups // parts))
    group_blocks = -(-geo.groups // per)

    def block(i: int) -> None:
        i, b = divmod(i, blocks)
        n, g = divmod(i, group_blocks)
        groups = slice(g * per, min(geo.groups, (g + 1) * per))
        first, last = b * rows, min(height, (b + 1) * rows)
        if first >= last:
            return
        span = slice(first * width, last * width)
        np.matmul(matrix[groups], im2col(flat[n, groups], geo, first, last), out=grouped[n, groups, :, span])

    _run(block, batch * group_blocks * blocks, parts)
    if finish is not None:
        finish_whole(out, finish, parts)


def _block_rows(depth: int, width: int) -> int:
    """Output rows of one im2col block."""
    least, enough = _COLUMNS
    return max(_BLOCK // (depth * width), -(-max(least, min(enough, _LARGE // depth)) // width))


def _run(func: Callable[[int], None], count: int, parts: int) -> None:
    if parts > 1:
        parallel(func, count)
    else:
        for i in range(count):
            func(i)


def finish_whole(out: Array, finish: Finish, parts: int) -> None:
    """Apply what follows a convolution to its whole output, in contiguous pieces that stay in the cache.

    Args:
        out: (batch, channels, OH, OW), contiguous.
        parts: above 1 the pieces go to several threads.
    """
    flat = out.reshape(*out.shape[:2], -1)
    if out.size < _FEW:
        parts = 1
    batch, channels, points = flat.shape
    per = max(1, PIECE // points) if parts > 1 else channels
    blocks = -(-channels // per)

    def piece(i: int) -> None:
        n, c = divmod(i, blocks)
        finish_rows(flat[n, c * per : (c + 1) * per], finish, n, c * per)

    _run(piece, batch * blocks, parts)


def _by_rows(x: Array, matrix: Array, geo: Geometry, out: Array, finish: Finish | None) -> None:
    """Small maps: all positions at once, blocks of output channels."""
    height = geo.out[0]
    parts = _parts(x, geo)
    depth, points = matrix.shape[2], geo.points
    edges = [geo.ocg * i // parts // 16 * 16 for i in range(parts)] + [geo.ocg]
    for n in range(x.shape[0]):
        if geo.pointwise:
            columns = x[n].reshape(depth, points)
        else:
            columns = scratch("columns", (depth, points), x.dtype)
            by_channel = columns.reshape(geo.icg, geo.taps, *geo.out)
            pieces = parts if depth * points > 1 << 14 else 1
            step = -(-geo.icg // pieces)

            def copy(i: int, n: int = n, step: int = step, by_channel: Array = by_channel) -> None:
                part = slice(i * step, min(geo.icg, (i + 1) * step))
                fill_columns(x[n, part], by_channel[part], geo, 0, height)

            parallel(copy, pieces)
        target = out[n].reshape(geo.ocg, points)

        def multiply(i: int, n: int = n, columns: Array = columns, target: Array = target) -> None:
            rows = slice(edges[i], edges[i + 1])
            np.matmul(matrix[0, rows], columns, out=target[rows])
            if finish is not None:
                finish_rows(target[rows], finish, n, rows.start)

        parallel(multiply, parts)


def im2col(x: Array, geo: Geometry, first: int, last: int) -> Array:
    """The input of output rows ``first:last`` as matrices (groups, icg * taps, positions).

    Args:
        x: (groups, icg, H, W), contiguous.
    """
    groups = x.shape[0]
    if geo.pointwise:
        width = geo.out[1]
        return x.reshape(groups, geo.icg, -1)[:, :, first * width : last * width]
    columns = scratch("columns", (groups * geo.icg, geo.taps, last - first, geo.out[1]), x.dtype)
    fill_columns(x.reshape(-1, *geo.size), columns, geo, first, last)
    return columns.reshape(groups, geo.icg * geo.taps, -1)
