"""Non-maximum suppression."""

from ...arrays.names import np
from ...graph.dtypes import Array
from ...ops.image.nms import keep
from . import operator
from .common import refuse_unless, unknown_shape


def _number(value: Array | None, default: float) -> float:
    """Return a threshold; one without elements counts as left out."""
    return default if value is None or not value.size else value.item()


@operator("NonMaxSuppression", since=10, out=("Int64",), shape=unknown_shape)
def non_max_suppression(
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    bound: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    """Select the best boxes that do not overlap, per image and class: rows of image, class, box."""
    count, share, least = _number(most, 0), _number(overlap, 0.0), _number(bound, -np.inf)
    refuse_unless(0 <= share <= 1, f"its IoU threshold is {share:g}, expected 0 to 1")
    rows = []
    for image, (per_image, classes) in enumerate(zip(corners(boxes, center_point_box), scores, strict=True)):
        for k, score in enumerate(classes if count > 0 else ()):
            above = np.flatnonzero(score > least)
            order = above[np.argsort(-score[above], kind="stable")]
            rows += [(image, k, i) for i in order[keep(per_image[order], share, int(count))].tolist()]
    return np.array(rows, np.int64).reshape(-1, 3)


def corners(boxes: Array, centered: int) -> Array:
    """Return boxes (B, N, 4) with the lesser corner first."""
    a, b = boxes[..., :2], boxes[..., 2:]
    low, high = (a - b / 2, a + b / 2) if centered else (np.minimum(a, b), np.maximum(a, b))
    return np.concatenate([low, high], -1)
