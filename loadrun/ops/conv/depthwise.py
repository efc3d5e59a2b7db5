"""Depthwise convolution: per channel a vector times the matrix of its taps, over blocks of channels.

Where images are narrow for their taps, channels are moved innermost, and each tap adds products of long rows. Few long
calls matter here: every numpy call takes the interpreter lock once, and threads queue for it.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...graph.dtypes import Array
from ..numeric.parallel import scratch
from ..registry import Finish
from .gemm import Run, finisher, phases, row_blocks, run_parts, same_width
from .rules import Geometry

_BLOCK = 1 << 20
"""Elements of the tap matrices of one block."""


def depthwise(batch: int, geo: Geometry, parts: int) -> Run:
    """Return a function that convolves every channel with its own filters (one input channel per group), for
    known sizes.

    Args:
        geo: of filters, as `turned` gives them, on data (batch, groups, H, W).
        parts: into how many parts the work is best cut for the pool.
    """
    return (_innermost if _is_narrow(geo) else _same if same_width(geo) else _padded)(batch, geo, parts)


def takes_phases(geo: Geometry) -> bool:
    """Return whether data may have their stride phases one after the other (`Geometry.apart`)."""
    even = not any(n % s for n, s in zip(geo.size, geo.stride, strict=True))
    return even and geo.icg == 1 and any(geo.pad) and same_width(geo) and not _is_narrow(geo)


def turned(geo: Geometry, w: Array) -> Array:
    """Return filters (groups, ocg, 1, KH, KW) as `depthwise` takes them."""
    if not _is_narrow(geo):
        return w
    return np.ascontiguousarray(w.reshape(geo.channels, *geo.kernel).transpose(1, 2, 0))


def _is_narrow(geo: Geometry) -> bool:
    few, many = 7, 28
    return geo.out[1] <= few or (geo.taps > 2 * few and geo.size[1] <= many)


def _innermost(batch: int, geo: Geometry, parts: int) -> Run:
    """Sum over the taps of padded images whose channels lie innermost."""
    (ky, kx), (sy, sx), (dy, dx), (oh, ow) = geo.kernel, geo.stride, geo.dilate, geo.out
    padded = (oh - 1) * sy + (ky - 1) * dy + 1, (ow - 1) * sx + (kx - 1) * dx + 1, geo.channels
    ends = finisher((batch, geo.channels, oh, ow))
    per = -(-oh // parts)

    def run(x: Array, w: Array, out: Array, finish: Finish | None) -> None:
        plane, sums = scratch("planes", padded, x.dtype), scratch("sums", (oh, ow, geo.channels), x.dtype)
        row, pixel, number = plane.strides
        strides = (sy * row, sx * pixel, dy * row, dx * pixel, number)
        windows = np.ndarray((oh, ow, ky, kx, geo.channels), x.dtype, plane, 0, strides)

        def rows(i: int) -> None:
            part = slice(i * per, (i + 1) * per)
            np.einsum("yxijc,ijc->yxc", windows[part], w, out=sums[part])

        for n in range(batch):
            image = x[n] if geo.ocg == 1 else x[n].repeat(geo.ocg, 0)
            phases(image, plane.transpose(2, 0, 1)[:, None, None], *geo.pad)
            run_parts(rows, -(-oh // per), parts)
            out[n] = sums.transpose(2, 0, 1)
        if finish is not None:
            ends(out, finish)

    return run


def _padded(batch: int, geo: Geometry, parts: int) -> Run:
    """Convolve channels with padded rows, so that a flat shift moves to any tap; products have columns to cut off."""
    (ky, kx), (sy, sx), (dy, dx) = geo.kernel, geo.stride, geo.dilate
    groups, ocg, (oh, ow) = geo.groups, geo.ocg, geo.out
    # Rows are as wide as the taps reach. The last one is there for what the shifts read beyond the end, which lands in
    # columns that are cut off.
    wide = -(-max(geo.size[1] + 2 * geo.pad[1], (kx - 1) * dx + 1 + (ow - 1) * sx) // sx)
    high = -(-max(geo.size[0] + 2 * geo.pad[0], (ky - 1) * dy + 1 + (oh - 1) * sy) // sy) + 1
    rows = max(1, min(oh, _BLOCK // (geo.taps * wide)))
    per = max(1, min(-(-groups // parts), _BLOCK // (geo.taps * rows * wide)))
    blocks = -(-groups // per)
    per = -(-groups // blocks)

    def run(x: Array, w: Array, out: Array, finish: Finish | None) -> None:
        taps = w.reshape(groups, ocg, geo.taps)
        result = out.reshape(batch, groups, ocg, oh, ow)

        def block(i: int) -> None:
            n, b = divmod(i, blocks)
            part = slice(b * per, min(groups, (b + 1) * per))
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
                product = scratch("product", (count, ocg, span), x.dtype)
                np.matmul(taps[part], columns, out=product)
                target = result[n, part, :, first:last]
                target[...] = product.reshape(count, ocg, last - first, wide)[..., :ow]
                if finish is not None:
                    start = part.start * ocg
                    flat = out[n, start : start + count * ocg].reshape(count * ocg, -1)
                    region = slice(first * ow, last * ow)
                    finish(flat[:, region], n, start, region)

        run_parts(block, batch * blocks, parts)

    return run


def _same(batch: int, geo: Geometry, parts: int) -> Run:
    """Convolve channels whose tap matrices have no columns to cut off: products go straight into the output."""
    groups, ocg, (oh, ow) = geo.groups, geo.ocg, geo.out
    rows = max(1, min(oh, _BLOCK // (geo.taps * ow)))
    per = max(1, min(-(-groups // parts), _BLOCK // (geo.taps * rows * ow)))
    spans, span_of = row_blocks(geo, rows)
    blocks = []
    for start in range(0, groups, per):
        part = slice(start, min(groups, start + per))
        channels = slice(part.start * ocg, part.stop * ocg)
        count = part.stop - part.start
        blocks.append((part, count, channels, finisher((1, count * ocg, oh, ow), channels.start)))

    def run(x: Array, w: Array, out: Array, finish: Finish | None) -> None:
        taps = w.reshape(groups, ocg, geo.taps)
        result = out.reshape(batch, groups, ocg, geo.points)

        def block(i: int) -> None:
            n, i = divmod(i, len(blocks))
            part, count, channels, ends = blocks[i]
            data, filters, sums = x[n, part], taps[part], result[n, part]
            for fill, height, places in map(span_of, range(spans)):
                if fill is None:
                    columns = data.reshape(count, 1, -1)[:, :, places]
                else:
                    columns = scratch("columns", (count, geo.taps, height, ow), x.dtype)
                    fill(data, columns)
                np.matmul(filters, columns.reshape(count, geo.taps, -1), out=sums[:, :, places])
            if finish is not None:
                ends(out[n, channels], finish, n)

        run_parts(block, batch * len(blocks), parts)

    return run


def _columns(planes: Array, columns: Array, geo: Geometry, start: int) -> None:
    """Copy what every tap reads, for flat positions from `start` on, into columns (channels, taps, positions)."""
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
