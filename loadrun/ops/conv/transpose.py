"""Fast transposed convolution (ConvolutionBackwardData): a matrix product, then overlapping sums."""

from __future__ import annotations

import numpy as np

from ...graph.dtypes import Array
from ..numeric.parallel import parallel, scratch
from ..numeric.taps import taps_of
from .fast import conv_fast
from .rules import Geometry, geometry

_BLOCK = 1 << 18


def deconv_fast(x: Array, w: Array, geo: Geometry) -> Array:
    """Compute the transpose of the convolution that `geo` describes.

    Args:
        x: (batch, groups * ocg, out...) float32 or float64.
        w: (groups, ocg, icg, kernel...) of the same dtype, not flipped.
        geo: of the convolution whose input is this operator's result.

    Returns:
        (batch, groups * icg, size...).

    >>> geo = geometry((1, 1, 3, 3), 1, 1, 1, (2, 2), (0, 0), (1, 1), (1, 1))
    >>> deconv_fast(np.ones((1, 1, 2, 2), "f4"), np.ones((1, 1, 1, 2, 2), "f4"), geo)[0, 0].tolist()
    [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]
    """
    reach = [(k - 1) * d for k, d in zip(geo.kernel, geo.dilate, strict=True)]
    if len(geo.kernel) == 2 and geo.stride == (1, 1) and all(map(int.__le__, geo.pad, reach)):
        # With stride 1 it is a convolution with the flipped filter.
        pad = [r - p for r, p in zip(reach, geo.pad, strict=True)]
        turned = np.ascontiguousarray(w.swapaxes(1, 2)[..., ::-1, ::-1])
        forward = geometry(x.shape, geo.groups, geo.ocg, geo.icg, geo.kernel, pad, (1, 1), geo.dilate)
        return conv_fast(x, turned, forward)
    batch = x.shape[0]
    result = np.zeros((batch, geo.groups, geo.icg, *geo.size), x.dtype)
    grouped = np.ascontiguousarray(x).reshape(batch, geo.groups, geo.ocg, geo.points)
    matrix = np.moveaxis(w.reshape(geo.groups, geo.ocg, geo.icg, geo.taps), 1, 3)
    per = max(1, _BLOCK // max(1, geo.taps * geo.points))
    blocks = -(-geo.icg // per)
    moves = list(taps_of(geo))

    def block(i: int) -> None:
        i, b = divmod(i, blocks)
        n, g = divmod(i, geo.groups)
        part = slice(b * per, min(geo.icg, (b + 1) * per))
        rows = np.ascontiguousarray(matrix[g, part]).reshape(-1, geo.ocg)
        columns = scratch("columns", (rows.shape[0], geo.points), x.dtype)
        np.matmul(rows, grouped[n, g], out=columns)
        taps = columns.reshape(-1, geo.taps, *geo.out)
        target = result[n, g, part]
        for t, source, to in moves:
            target[to] += taps[:, t][source]

    parallel(block, batch * geo.groups * blocks)
    return result.reshape(batch, geo.groups * geo.icg, *geo.size)
