"""Non-maximum suppression."""

from collections.abc import Sequence

import numpy as np

from ...graph import Opr
from ...graph.dtypes import Array, DType, plain
from ...graph.params import NMSKeep
from ..registry import Call, Shape, kernel

_BLOCK = 64
"""Boxes that are compared with each other at once."""


def keep(boxes: Array, threshold: float, limit: int | None = None) -> Array:
    """Return the indices of the boxes that stay, in order; boxes come sorted by score, best first.

    A box goes when its intersection with a kept earlier box is greater than `threshold` times their union,
    all in float32 (MegEngine standalone CPU NMS). NaN coordinates never suppress.

    Args:
        boxes: [n, 4] float32 as x0, y0, x1, y1.
        limit: stop after that many.

    >>> boxes = np.array([[0, 0, 2, 2], [0, 0, 2, 1.5], [3, 3, 4, 4]], "f4")
    >>> keep(boxes, 0.5).tolist(), keep(boxes, 0.75).tolist()
    ([0, 2], [0, 1, 2])
    """
    columns = np.ascontiguousarray(boxes.T, np.float32)
    alive = np.arange(len(boxes))
    kept: list[Array] = []
    count = 0
    while alive.size and (limit is None or count < limit):
        block = columns[:, alive[:_BLOCK]]
        inner = _overlaps(block, block, threshold)
        stays = np.ones(block.shape[1], bool)
        for i, row in enumerate(inner[:-1]):
            if stays[i]:
                stays[i + 1 :] &= ~row[i + 1 :]
        best, alive = alive[:_BLOCK][stays], alive[_BLOCK:]
        kept.append(best)
        count += len(best)
        if alive.size:
            gone = _overlaps(block[:, stays], columns[:, alive], threshold).any(axis=0)
            alive = alive[~gone]
    return np.concatenate(kept)[:limit] if kept else np.zeros(0, np.int64)


def _overlaps(kept: Array, later: Array, threshold: float) -> Array:
    """Return whether box i of `kept` suppresses box j of `later`; both [4, n]."""
    b, a = kept[:, :, None], later[:, None, :]
    # Compare as std::max and std::min do, which treat NaN unlike numpy.
    width = np.where(b[2] < a[2], b[2], a[2]) - np.where(a[0] < b[0], b[0], a[0])
    height = np.where(b[3] < a[3], b[3], a[3]) - np.where(a[1] < b[1], b[1], a[1])
    width[width < 0] = 0
    height[height < 0] = 0
    shared = width * height
    area_a, area_b = (a[2] - a[0]) * (a[3] - a[1]), (b[2] - b[0]) * (b[3] - b[1])
    return np.asarray(shared > (area_a + area_b - shared) * np.float32(threshold))


def _check(p: NMSKeep, shape: Shape) -> Sequence[Shape]:
    if len(shape) != 3 or shape[2] != 4:
        raise ValueError(f"boxes must be [B, n, 4], found {list(shape)}")
    return (shape[0], p.max_output), (shape[0],)


def _dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[0].name != "Float32":
        raise ValueError(f"boxes must be Float32, found {inputs[0].name}")
    return (plain("Int32"), plain("Int32"))


def _flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Count the comparison of every box with all others."""
    batch, count = inputs[0][:2]
    return 16 * batch * count * count


@kernel("NMSKeepMGB", dtype=_dtype, shape=lambda s: _check(s.get(NMSKeep), s.shape(0)), flops=_flops)
def nms_keep(c: Call, boxes: Array) -> tuple[Array, Array]:
    """Return kept indices [B, max_output] and their number [B], both int32.

    Rows with fewer kept boxes end with the last kept index again, as MegEngine fills them; without boxes all
    indices are 0. With `max_output` 0 only the number is given, of all boxes that stay.
    """
    p = c.get(NMSKeep)
    shape, count = _check(p, boxes.shape)
    indices, sizes = np.zeros(shape, np.int32), np.zeros(count, np.int32)
    for i, batch in enumerate(boxes):
        kept = keep(batch, p.iou_thresh, p.max_output or None)
        sizes[i] = len(kept)
        if kept.size and p.max_output:
            indices[i, : len(kept)] = kept
            indices[i, len(kept) :] = kept[-1]
    return indices, sizes
