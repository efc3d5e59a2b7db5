"""Fast convolution on plain NCHW arrays: matrix products over im2col blocks, or shifted sums.

The output is computed in blocks whose columns stay in the cache; then bias and activation are applied to pieces of it
that do. Both run on the thread pool; how they are cut depends on sizes and the number of threads alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from ...base.registry import late
from ...graph.dtypes import Array
from ..numeric.parallel import replaced, scratch, shares, splits
from ..registry import Finish
from .gemm import Run, filler, finisher, row_blocks, run_parts
from .rules import Geometry

with late(__name__):
    from . import depthwise

_PLANS = 1024
"""Sizes of convolutions that are remembered."""

_BLOCK = 1 << 18
"""im2col elements of one block: the second-level cache holds them."""
_LARGE = 1 << 20
"""The same for deep filters, so that products stay long."""
_COLUMNS = (384, 768)
"""Positions that a block has at least, since every block reads the whole filter: of any filter, and within `_LARGE`."""

_SMALL = 256
"""Fewer positions are not cut for several threads."""
_MANY = 64
"""Channels from which on they are cut instead of positions, where no columns are copied."""
_COPIED = 1 << 14
"""Elements of columns that one thread copies sooner than another one wakes up."""


def conv_fast(
    x: Array, w: Array, geo: Geometry, finish: Finish | None = None, memo: dict[Any, Any] | None = None
) -> Array:
    """Convolve float32 (or float64) arrays of two spatial axes.

    Args:
        x: (batch, groups * icg, H, W).
        w: (groups, ocg, icg, KH, KW) of the same dtype, contiguous, not flipped.
        geo: from `geometry.geometry`.
        finish: changes each block of the output in place.
        memo: keeps what is derived from filters that are the same in every run.

    Returns:
        (batch, groups * ocg, OH, OW) of that dtype.
    """
    return planned(x.shape[0], geo)(x, w, finish, {} if memo is None else memo)


Convolve = Callable[[Array, Array, "Finish | None", "dict[Any, Any]"], Array]


Maker = Callable[[int, Geometry, int], Run]


def planned(batch: int, geo: Geometry) -> Convolve:
    """Return `conv_fast` for known sizes, with everything decided that follows from them and the number of threads."""
    return _planned(batch, geo, replaced("depthwise") or depthwise.depthwise)


@lru_cache(maxsize=_PLANS)
def _planned(batch: int, geo: Geometry, by_channel: Maker) -> Convolve:
    shape = (batch, geo.channels, *geo.out)
    if 0 in shape:
        return lambda x, w, finish, memo: np.empty(shape, x.dtype)
    work = batch * geo.channels * geo.points * geo.icg * geo.taps
    make: Maker = _dense if geo.groups == 1 else _grouped
    turned = None
    if geo.icg == 1 and geo.groups > 1:
        # Moving the taps costs about twice as much as the products.
        make, work = by_channel, 2 * work
        turned = depthwise.turned if by_channel is depthwise.depthwise else None
    by_parts = {1: make(batch, geo, 1)}

    def convolve(x: Array, w: Array, finish: Finish | None, memo: dict[Any, Any]) -> Array:
        parts = splits(work)
        run = by_parts.get(parts)
        if run is None:
            run = by_parts[parts] = make(batch, geo, parts)
        if turned is not None:
            w = memo[geo] if geo in memo else memo.setdefault(geo, turned(geo, w))
        out = np.empty(shape, x.dtype)
        run(x if x.flags.c_contiguous else np.ascontiguousarray(x), w, out, finish)
        return out

    return convolve


def _dense(batch: int, geo: Geometry, parts: int) -> Run:
    """Compute the products of a single group."""
    if parts == 1 and geo.pointwise:
        return _pointwise(batch, geo)
    # Where channels are divided among threads, passes over few positions or many channels are, too.
    if parts > 1 and (geo.points < _SMALL or (geo.pointwise and geo.ocg >= _MANY)):
        return _by_channels(batch, geo, parts)
    return _by_positions(batch, geo, parts)


def _pointwise(batch: int, geo: Geometry) -> Run:
    """Compute a whole sample at once; its data is the matrix itself."""
    ocg, icg, points = geo.ocg, geo.icg, geo.points
    ends = finisher((batch, ocg, *geo.out))

    def run(x: Array, w: Array, out: Array, finish: Finish | None) -> None:
        matrix, sums = w.reshape(ocg, icg), out.reshape(batch, ocg, points)
        for n, columns in enumerate(x.reshape(batch, icg, points)):
            np.matmul(matrix, columns, sums[n])
        if finish is not None:
            ends(out, finish)

    return run


def _by_positions(batch: int, geo: Geometry, parts: int) -> Run:
    """Compute blocks of whole output rows and all channels; then what follows.

    That is done for whole channels, since numpy is slow on parts of rows: it copies them into buffers of its own.
    """
    ocg, icg, points, depth = geo.ocg, geo.icg, geo.points, geo.icg * geo.taps
    height, width = geo.out
    rows = height if geo.pointwise else min(height, _block_rows(depth, width))
    # Blocks of equal size keep the threads in step.
    blocks = max(-(-height // rows), min(parts, height))
    rows = -(-height // blocks)
    blocks, block_of = row_blocks(geo, rows)
    lines = (batch, icg, prod(geo.size))
    ends = finisher((batch, ocg, *geo.out))

    def run(x: Array, w: Array, out: Array, finish: Finish | None) -> None:
        matrix, sums, flat = w.reshape(ocg, depth), out.reshape(batch, ocg, points), x.reshape(lines)

        def block(i: int) -> None:
            n, b = divmod(i, blocks)
            fill, height, span = block_of(b)
            if fill is None:
                np.matmul(matrix, flat[n, :, span], sums[n, :, span])
                return
            columns = scratch("columns", (icg, geo.taps, height, width), x.dtype)
            fill(x[n], columns)
            np.matmul(matrix, columns.reshape(depth, -1), sums[n, :, span])

        run_parts(block, batch * blocks, parts)
        if finish is not None:
            ends(out, finish)

    return run


def _by_channels(batch: int, geo: Geometry, parts: int) -> Run:
    """Compute all positions at once, in blocks of output channels with what follows."""
    ocg, icg, points, depth = geo.ocg, geo.icg, geo.points, geo.icg * geo.taps
    cuts = [s for s in shares(ocg, parts, ocg * points * depth) if s.stop > s.start]
    ends = [finisher((1, s.stop - s.start, *geo.out), s.start) for s in cuts]
    copies = parts if depth * points > _COPIED else 1
    step = -(-icg // copies)
    fill = None if geo.pointwise else filler(geo, 0, geo.out[0])
    lines = (batch, icg, prod(geo.size))

    def run(x: Array, w: Array, out: Array, finish: Finish | None) -> None:
        matrix, flat = w.reshape(ocg, depth), x.reshape(lines)
        columns = None if fill is None else scratch("columns", (icg, geo.taps, *geo.out), x.dtype)

        def copy(n: int, i: int) -> None:
            part = slice(i * step, (i + 1) * step)
            if fill is not None and columns is not None:
                fill(x[n, part], columns[part])

        def multiply(n: int, i: int) -> None:
            part = out[n, cuts[i]]
            data = flat[n] if columns is None else columns.reshape(depth, points)
            np.matmul(matrix[cuts[i]], data, part.reshape(-1, points))
            if finish is not None:
                ends[i](part, finish, n)

        for n in range(batch):
            if fill is not None:
                run_parts(partial(copy, n), -(-icg // step), copies)
            run_parts(partial(multiply, n), len(cuts), parts)

    return run


def _grouped(batch: int, geo: Geometry, parts: int) -> Run:
    """Compute the products of several groups: blocks of whole output rows and of groups."""
    groups, ocg, icg, points, depth = geo.groups, geo.ocg, geo.icg, geo.points, geo.icg * geo.taps
    height, width = geo.out
    rows = height if geo.pointwise else min(height, _block_rows(depth, width))
    blocks = max(-(-height // rows), min(parts, height))
    rows = -(-height // blocks)
    blocks, block_of = row_blocks(geo, rows)
    per = max(1, min(_BLOCK // (depth * rows * width), groups // parts))
    group_blocks = -(-groups // per)
    ends = finisher((batch, geo.channels, *geo.out))

    def run(x: Array, w: Array, out: Array, finish: Finish | None) -> None:
        matrix, sums = w.reshape(groups, ocg, depth), out.reshape(batch, groups, ocg, points)
        grouped, flat = (
            x.reshape(batch, groups, icg, *geo.size),
            x.reshape(batch, groups, icg, prod(geo.size)),
        )

        def block(i: int) -> None:
            i, b = divmod(i, blocks)
            n, g = divmod(i, group_blocks)
            part = slice(g * per, min(groups, (g + 1) * per))
            fill, height, span = block_of(b)
            target = sums[n, part, :, span]
            if fill is None:
                np.matmul(matrix[part], flat[n, part, :, span], target)
                return
            count = part.stop - part.start
            columns = scratch("columns", (count * icg, geo.taps, height, width), x.dtype)
            fill(grouped[n, part].reshape(count * icg, *geo.size), columns)
            np.matmul(matrix[part], columns.reshape(count, depth, -1), target)

        run_parts(block, batch * group_blocks * blocks, parts)
        if finish is not None:
            ends(out, finish)

    return run


def _block_rows(depth: int, width: int) -> int:
    """Choose the output rows of one im2col block."""
    least, enough = _COLUMNS
    return max(_BLOCK // (depth * width), -(-max(least, min(enough, _LARGE // depth)) // width))
