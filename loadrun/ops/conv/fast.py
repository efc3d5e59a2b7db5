"""Fast convolution on plain NCHW arrays: matrix products over im2col blocks, or shifted sums.

The output is computed in blocks whose columns stay in the cache; then bias and activation are applied to pieces of it
that do. Both run on the thread pool.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ...dtypes import Array
from ..numeric.parallel import matmul, scratch, splits
from .columns import filler
from .depthwise import depthwise
from .finish import Finish, Run, finisher, run_parts
from .geometry import Geometry

__all__ = ["Convolve", "conv_fast", "planned"]

_PLANS = 4096
"""Sizes of convolutions that are remembered."""

_BLOCK = 1 << 18
"""im2col elements of one block: the second-level cache holds them."""
_LARGE = 1 << 20
"""What deep filters may make of that, so that products stay long."""
_COLUMNS = (384, 768)
"""Positions that a block has at least, since every block reads the whole filter: of any filter, and within `_LARGE`."""

Multiply = Callable[[Array, Array, Array], None]


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
    return planned(x.shape[0], geo)(x, w, finish)


Convolve = Callable[[Array, Array, "Finish | None"], Array]


@lru_cache(maxsize=_PLANS)
def planned(batch: int, geo: Geometry) -> Convolve:
    """`conv_fast` for data of known sizes, which nothing but its kernels' calls is left of."""
    shape = (batch, geo.channels, *geo.out)
    if 0 in shape:
        return _nothing(shape)
    if geo.icg == 1 and geo.groups > 1:
        run = depthwise(batch, geo)
    else:
        run = _finished(_grouped(batch, geo) if geo.groups > 1 else _dense(batch, geo), shape)

    def convolve(x: Array, w: Array, finish: Finish | None = None) -> Array:
        out = np.empty(shape, x.dtype)
        run(x if x.flags.c_contiguous else np.ascontiguousarray(x), w, out, finish)
        return out

    return convolve


def _nothing(shape: tuple[int, ...]) -> Convolve:
    def convolve(x: Array, w: Array, finish: Finish | None = None) -> Array:
        return np.empty(shape, x.dtype)

    return convolve


def _finished(multiply: Multiply, shape: tuple[int, ...]) -> Run:
    """The products, and then what follows: on whole channels, since numpy copies parts of rows into its buffers."""
    ends = finisher(shape)

    def run(x: Array, w: Array, out: Array, finish: Finish | None) -> None:
        multiply(x, w, out)
        if finish is not None:
            ends(out, finish)

    return run


def _dense(batch: int, geo: Geometry) -> Multiply:
    """The products of a single group: blocks of whole output rows and all channels."""
    ocg, icg, points, depth = geo.ocg, geo.icg, geo.points, geo.icg * geo.taps
    if geo.pointwise:

        def pointwise(x: Array, w: Array, out: Array) -> None:
            matrix, sums = w.reshape(ocg, icg), out.reshape(batch, ocg, points)
            for n, columns in enumerate(x.reshape(batch, icg, points)):
                matmul(matrix, columns, sums[n])

        return pointwise
    height, width = geo.out
    # Blocks of equal size are products of equal length.
    blocks = -(-height // min(height, _block_rows(depth, width)))
    rows = -(-height // blocks)
    spans = [(first, min(height, first + rows)) for first in range(0, height, rows)]
    fills = [
        (filler(geo, first, last), (icg, geo.taps, last - first, width), slice(first * width, last * width))
        for first, last in spans
    ]

    def gathered(x: Array, w: Array, out: Array) -> None:
        matrix, sums = w.reshape(ocg, depth), out.reshape(batch, ocg, points)
        for n in range(batch):
            for fill, shape, span in fills:
                columns = scratch("columns", shape, x.dtype)
                fill(x[n], columns)
                matmul(matrix, columns.reshape(depth, -1), sums[n, :, span])

    return gathered


def _grouped(batch: int, geo: Geometry) -> Multiply:
    """The products of many groups, which are short: blocks of whole output rows and of groups, for the pool."""
    groups, ocg, icg, points, depth = geo.groups, geo.ocg, geo.icg, geo.points, geo.icg * geo.taps
    height, width = geo.out
    work = batch * geo.channels * points * depth

    def multiply(x: Array, w: Array, out: Array) -> None:
        parts = splits(work)
        rows = height if geo.pointwise else min(height, _block_rows(depth, width))
        blocks = max(-(-height // rows), min(parts, height))
        rows = -(-height // blocks)
        per = max(1, min(_BLOCK // (depth * rows * width), groups // parts))
        group_blocks = -(-groups // per)
        matrix, sums = w.reshape(groups, ocg, depth), out.reshape(batch, groups, ocg, points)
        grouped = x.reshape(batch, groups, icg, *geo.size)

        def block(i: int) -> None:
            i, b = divmod(i, blocks)
            n, g = divmod(i, group_blocks)
            part, first, last = slice(g * per, (g + 1) * per), b * rows, min(height, (b + 1) * rows)
            if first < last:
                columns = _im2col(grouped[n, part], geo, first, last)
                np.matmul(matrix[part], columns, sums[n, part, :, first * width : last * width])

        run_parts(block, batch * group_blocks * blocks, parts)

    return multiply


def _im2col(x: Array, geo: Geometry, first: int, last: int) -> Array:
    """The input of output rows ``first:last`` as matrices (groups, icg * taps, positions).

    Args:
        x: (groups, icg, H, W), contiguous.
    """
    groups, width = x.shape[0], geo.out[1]
    if geo.pointwise:
        return x.reshape(groups, geo.icg, -1)[:, :, first * width : last * width]
    columns = scratch("columns", (groups * geo.icg, geo.taps, last - first, width), x.dtype)
    filler(geo, first, last)(x.reshape(-1, *geo.size), columns)
    return columns.reshape(groups, geo.icg * geo.taps, -1)


def _block_rows(depth: int, width: int) -> int:
    """Output rows of one im2col block."""
    least, enough = _COLUMNS
    return max(_BLOCK // (depth * width), -(-max(least, min(enough, _LARGE // depth)) // width))
