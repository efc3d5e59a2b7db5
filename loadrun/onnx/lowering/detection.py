"""Non-maximum suppression and boxes."""

from __future__ import annotations

import numpy as np

from ...build import emit as e
from ...graph import params as P
from ...tensors import Tensor, apply, const
from ...tensors.access import static_shape
from ..call import NodeCall, lower
from ..values import INT64, UnsupportedNodeError, Value
from . import M, cast, const_like, of_length
from .indexing import ordered

__all__: list[str] = []

_MOST = 512
_KEPT = 1 << 14


@lower("NonMaxSuppression", foldable=False)
def _non_max_suppression(c: NodeCall) -> Value:
    """Select the best boxes that do not overlap per image and class: rows of image, class, box."""
    boxes, scores = cast(c.t(0), "float32"), cast(c.t(1), "float32")
    # As in ONNX Runtime, a threshold without elements is left out.
    thresholds = [i for i in (2, 3, 4) if c.has(i) and 0 not in static_shape(c.t(i))]
    most = int(c.constant(2, "number of boxes").reshape(-1)[0]) if 2 in thresholds else 0
    overlap = float(c.constant(3, "IoU threshold").reshape(-1)[0]) if 3 in thresholds else 0.0
    if not 0 <= overlap <= 1:
        raise UnsupportedNodeError(f"its IoU threshold is {overlap:g}, expected 0 to 1")
    boxes, scores = of_length(boxes, 0), of_length(of_length(scores, 0), 1)
    batch, classes, count = static_shape(scores)
    if batch * classes > _MOST:
        raise UnsupportedNodeError(f"{batch} images of {classes} classes; at most {_MOST} are unrolled")
    if most <= 0 or not (count or e.fluid(scores)):
        return Value(INT64, array=np.zeros((0, 3), np.int64))
    if most > count:
        # Of more boxes more may be kept, as long as the table of those that are stays small.
        most = min(most, max(count, _KEPT))
    boxes = _corners(boxes, c.flag("center_point_box"))
    bound = e.reshape(cast(c.t(4), "float32"), (1,)) if 4 in thresholds else None
    rows = []
    for b in range(batch):
        own = e.subtensor(boxes, [(0, None, None, None, b)])
        for k in range(classes):
            score = e.subtensor(scores, [(0, None, None, None, b), (1, None, None, None, k)])
            kept = _suppressed(own, score, overlap, most)
            if bound is not None:
                good = e.compare(P.ElemwiseMultiTypeMode.LT, bound, e.gather(score, [(0, kept)]))
                kept = e.gather(kept, [(0, e.cond_take(good, good)[1])])
            rows.append(_labelled(kept, b, k))
    return Value(INT64, e.concat(rows, 0))


def _suppressed(boxes: Tensor, score: Tensor, overlap: float, most: int) -> Tensor:
    """Select boxes that overlap no better one, best first; ties go to the first."""
    order = ordered(score, 0, True)
    param = P.NMSKeep(iou_thresh=overlap, max_output=most)
    lined = e.reshape(e.gather(boxes, [(0, order)]), (1, -1, 4))
    places, count = apply("NMSKeepMGB", param, inputs=[lined], n=2, scalar=False)
    first = e.subtensor(places, [(0, None, None, None, 0)])
    return e.gather(order, [(0, e.subtensor(first, [(0, None, count, None, None)]))])


def _labelled(kept: Tensor, b: int, k: int) -> Tensor:
    zero = e.elem(M.MUL, kept, const_like(0, kept))
    label = e.elem(M.ADD, e.add_axes(zero, [1]), const(np.array([[b, k]], np.int32)))
    return e.concat([label, e.add_axes(e.whole(kept), [1])], 1)


def _corners(boxes: Tensor, centered: bool) -> Tensor:
    """Convert to boxes (B, N, 4) with the lesser corner first."""
    a, b, d, f = (e.subtensor(boxes, [(2, i, i + 1, None, None)]) for i in range(4))
    if centered:
        half = const_like(0.5, a)
        w, h = e.elem(M.MUL, d, half), e.elem(M.MUL, f, half)
        parts = [e.elem(M.SUB, a, w), e.elem(M.SUB, b, h), e.elem(M.ADD, a, w), e.elem(M.ADD, b, h)]
    else:
        parts = [e.elem(M.MIN, a, d), e.elem(M.MIN, b, f), e.elem(M.MAX, a, d), e.elem(M.MAX, b, f)]
    return e.concat(parts, 2)
