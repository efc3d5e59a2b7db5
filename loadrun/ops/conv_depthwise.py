"""Depthwise convolution by shifted multiply-add over blocks that stay in cache."""

from __future__ import annotations

import numpy as np

from ..dtypes import Array
from .conv_finish import Finish
from .conv_geometry import Geometry
from .parallel import parallel, scratch

__all__ = ["depthwise"]

_BLOCK = 1 << 15
"""Output elements of one block."""


def depthwise(x: Array, w: Array, geo: Geometry, out: Array, finish: Finish | None) -> None:
    """Convolve every channel with its own filters (one input channel per group).

    Args:
        x: (batch, groups, H, W) contiguous, float32 or float64.
        w: (groups, ocg, 1, KH, KW).
        out: (batch, groups * ocg, OH, OW), written.
        finish: see `conv_finish.Finish`.
    """
    ky, kx = geo.kernel
    (py, px), (sy, sx), (dy, dx) = geo.pad, geo.stride, geo.dilate
    oh, ow = geo.out
    # Rows of the padded input are as wide as the taps reach; a flat shift then moves to any tap.
    wide = -(-max(geo.size[1] + 2 * px, (kx - 1) * dx + 1 + (ow - 1) * sx) // sx) * sx
    high = -(-max(geo.size[0] + 2 * py, (ky - 1) * dy + 1 + (oh - 1) * sy) // sy) * sy + sy
    per = max(1, min(geo.groups, _BLOCK // max(1, wide // sx * oh)))
    blocks = -(-geo.groups // per)
    if blocks < 2 and geo.groups > 1:
        per, blocks = -(-geo.groups // 2), 2
    taps = w.reshape(geo.groups, geo.ocg, ky, kx)
    span = oh * (wide // sx)

    def block(i: int) -> None:
        n, b = divmod(i, blocks)
        part = slice(b * per, min(geo.groups, (b + 1) * per))
        count = part.stop - part.start
        if count <= 0:
            return
        # One plane per stride phase: (channel, phase y, phase x, rows, columns).
        planes = scratch("planes", (count, sy, sx, high // sy, wide // sx), x.dtype)
        _phases(x[n, part], planes, geo)
        flat = planes.reshape(count, sy, sx, -1)
        for o in range(geo.ocg):
            total = scratch("total", (count, span), x.dtype)
            term = scratch("term", (count, span), x.dtype)
            for k in range(ky * kx):
                y, xx = divmod(k, kx)
                (qy, ry), (qx, rx) = divmod(y * dy, sy), divmod(xx * dx, sx)
                start = qy * (wide // sx) + qx
                source = flat[:, ry, rx, start : start + span]
                weight = taps[part, o, y, xx, None]
                if k:
                    short = source.shape[1]
                    np.multiply(source, weight, out=term[:, :short])
                    total[:, :short] += term[:, :short]
                else:
                    np.multiply(source, weight, out=total)
            target = out[n].reshape(geo.groups, geo.ocg, oh, ow)[part, o]
            target[...] = total.reshape(count, oh, wide // sx)[:, :, :ow]
            if finish is not None and geo.ocg == 1:
                finish(target.reshape(count, oh * ow), n, part.start, slice(0, oh * ow))
        if finish is not None and geo.ocg > 1:
            whole = out[n, part.start * geo.ocg : part.stop * geo.ocg]
            finish(whole.reshape(-1, oh * ow), n, part.start * geo.ocg, slice(0, oh * ow))

    parallel(block, x.shape[0] * blocks)


def _phases(x: Array, planes: Array, geo: Geometry) -> None:
    """Spread (channels, H, W) over stride phases with its padding."""
    planes[...] = 0
    (py, px), (sy, sx) = geo.pad, geo.stride
    for ry in range(min(sy, planes.shape[1])):
        for rx in range(min(sx, planes.shape[2])):
            # Plane row a holds padded row a * sy + ry, that is input row a * sy + ry - py.
            a, y = _first(ry - py, sy)
            b, c = _first(rx - px, sx)
            part = x[:, y::sy, c::sx]
            to = planes[:, ry, rx, a : a + part.shape[1], b : b + part.shape[2]]
            to[...] = part[:, : to.shape[1], : to.shape[2]]


def _first(offset: int, stride: int) -> tuple[int, int]:
    """First plane index that lies inside the input, and the input position there."""
    a = max(0, -(offset // stride))
    return a, a * stride + offset
