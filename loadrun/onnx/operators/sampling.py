"""Images sampled at computed positions (grids, affine grids, regions), and non-maximum suppression."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import product
from math import prod

from ...arrays.names import np
from ...graph.composite import Known
from ...graph.dtypes import Array
from ...ops.image.nms import keep
from . import operator
from .common import integers, one_of, refuse_unless, refuse_where, unknown_shape

_BLOCK = 64
"""Regions that are sampled at once."""
_FARTHEST = 2.0**60

Tap = tuple[Array, Array]
"""Whole positions along one axis, and their shares."""


def _grid_shape(theta: Array, size: Known, *, align_corners: int = 0) -> tuple[int, ...]:
    n, _, *space = integers(size)
    return (n, *space, len(space))


@operator("AffineGrid", since=20, shape=_grid_shape)
def affine_grid(theta: Array, size: Known, *, align_corners: int = 0) -> Array:
    """Compute positions of an image's cells, from -1 to 1, moved by matrices (N, n, n + 1)."""
    _, _, *space = integers(size)
    refuse_unless(
        not align_corners or min(space, default=2) > 1,
        f"align_corners with {' x '.join(map(str, space))} cells: the position of one cell alone is 0 to PyTorch, "
        "1 to ONNX Runtime",
    )
    axes = [np.linspace(-1, 1, n) if align_corners else (2 * np.arange(n) + 1) / n - 1 for n in space]
    # x comes first, which is the last axis.
    points = [g.reshape(-1) for g in np.meshgrid(*axes, indexing="ij")][::-1]
    columns = np.stack([*points, np.ones(prod(space))], 1).astype(theta.dtype)
    return np.matmul(columns, theta.transpose(0, 2, 1)).reshape(_grid_shape(theta, size))


# Grids


@operator("GridSample", since=16, shape=lambda x, grid, **_: (*x.shape[:2], *grid.shape[1:-1]))
def grid_sample(
    x: Array, grid: Array, *, mode: str = "linear", padding_mode: str = "zeros", align_corners: int = 0
) -> Array:
    """Sample (N, C, ...) at positions (N, ..., n) from -1 to 1, the last axis of space first."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    one_of("mode", mode, "linear", "nearest", "cubic")
    one_of("padding_mode", padding_mode, "zeros", "border", "reflection")
    # What is no position in an image counts as its edge.
    grid = np.where(np.abs(grid) < _FARTHEST, grid, -1.0).astype(grid.dtype)
    points: list[Array] = []
    for i, size in enumerate(x.shape[2:][::-1]):
        up = grid[..., i] + 1
        points.insert(0, up / 2 * (size - 1) if align_corners else (up * size - 1) / 2)
    place = partial(_placed, padding=padding_mode, align=bool(align_corners))
    if mode != "cubic":
        points = [place(p, n) for p, n in zip(points, x.shape[2:], strict=True)]
    taps = [_taps(p, mode) for p in points]
    if mode == "cubic":
        taps = [[(place(at, n), t) for at, t in axis] for axis, n in zip(taps, x.shape[2:], strict=True)]
    return _mixed(x, taps, padding_mode == "zeros")


def _placed(p: Array, size: int, padding: str, align: bool) -> Array:
    """Return positions as the padding has them; for zeros those outside stay, but not so far that integers end."""
    if padding == "zeros":
        return np.clip(p, -2, size + 1)
    if padding == "reflection":
        # The edges lie half a cell out unless corners are aligned.
        low, span = (0.0, size - 1) if align else (-0.5, size)
        rest = np.abs(p - low) % (2 * max(span, 1e-6))
        p = np.minimum(rest, 2 * max(span, 1e-6) - rest) + low
    return np.clip(p, 0, size - 1)


def _taps(p: Array, mode: str) -> list[Tap]:
    if mode == "nearest":
        return [(np.rint(p), np.ones_like(p))]
    low = np.floor(p)
    t = p - low
    if mode == "linear":
        return [(low, 1 - t), (low + 1, t)]
    near, far = _cubic_near, _cubic_far
    return [(low - 1, far(t + 1)), (low, near(t)), (low + 1, near(1 - t)), (low + 2, far(2 - t))]


def _cubic_near(d: Array) -> Array:
    return (1.25 * d - 2.25) * d * d + 1


def _cubic_far(d: Array) -> Array:
    return ((-0.75 * d + 3.75) * d - 6) * d + 3


def _pixels(x: Array) -> Array:
    """Return the cells of images (N, C, ...) one after another, the channels of each beside each other."""
    return np.moveaxis(x, 1, -1).reshape(-1, x.shape[1])


def _mixed(x: Array, taps: Sequence[Sequence[Tap]], bounded: bool) -> Array:
    """Sum the cells around positions by their shares; those outside are 0, or the outermost ones."""
    cells, shape = _pixels(x), taps[0][0][0].shape
    batch = np.arange(x.shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    parts = []
    for chosen in product(*taps):
        at, share = batch, np.ones((), x.dtype)
        for (place, weight), size in zip(chosen, x.shape[2:], strict=True):
            inner = np.clip(place, 0, size - 1)
            at = at * size + inner.astype(np.int64)
            share = share * (np.where(inner == place, weight, 0) if bounded else weight)
        parts.append(np.take(cells, at, 0) * share[..., None].astype(x.dtype))
    return np.moveaxis(reduce(np.add, parts), -1, 1)


# Regions


def _pooled_shape(x: Array, rois: Array, *, pooled_shape: Sequence[int], **other: object) -> tuple[int, ...]:
    refuse_unless(min(pooled_shape) > 0, f"its pooled_shape is {list(pooled_shape)}")
    return (len(rois), x.shape[1], *pooled_shape)


@operator("MaxRoiPool", shape=_pooled_shape)
def max_roi_pool(x: Array, rois: Array, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> Array:
    """Take the largest element of every bin of regions (K, 5), which begin with the image; 0 for an empty bin."""
    result = np.zeros(_pooled_shape(x, rois, pooled_shape=pooled_shape), x.dtype)
    corners = rois[:, 1:] * spatial_scale
    # Halves are rounded away from zero.
    corners = np.floor(np.abs(corners) + 0.5) * np.sign(corners)
    for k, (image, box) in enumerate(zip(rois[:, 0].tolist(), corners.tolist(), strict=True)):
        refuse_unless(0 <= image < len(x), f"region {k} lies in image {image:g} of {len(x)}")
        left, top, right, bottom = map(int, box)
        rows = _bins(top, bottom, pooled_shape[0], x.shape[2])
        columns = _bins(left, right, pooled_shape[1], x.shape[3])
        for i, j in product(range(len(rows)), range(len(columns))):
            part = x[int(image), :, rows[i], columns[j]]
            if part.size:
                result[k, :, i, j] = part.max((1, 2))
    return result


def _bins(start: int, end: int, count: int, size: int) -> list[slice]:
    """Return the elements of every bin, cut to the axis."""
    width = np.float32(max(end - start + 1, 1)) / np.float32(count)
    at = np.arange(count + 1, dtype=np.float32) * width
    low = (np.floor(at[:-1]) + start).clip(0, size).astype(int).tolist()
    high = (np.ceil(at[1:]) + start).clip(0, size).astype(int).tolist()
    return [slice(a, b) for a, b in zip(low, high, strict=True)]


def _aligned_shape(
    *, x: Array, rois: Array, output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0
) -> tuple[int, ...]:
    refuse_unless(
        min(output_height, output_width) > 0 and sampling_ratio >= 0,
        f"bins {output_height}x{output_width} with {sampling_ratio} points each; expected 1 and more, and 0 or more",
    )
    return (len(rois), x.shape[1], output_height, output_width)


@operator("RoiAlign", since=16, shape=_aligned_shape)
def roi_align(
    x: Array,
    rois: Array,
    batch: Array,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """Sample points in every bin of regions (K, 4), each from the four cells around, averaged or the largest taken."""
    one_of("mode", mode, "avg", "max")
    one_of(
        "coordinate_transformation_mode", coordinate_transformation_mode, "half_pixel", "output_half_pixel"
    )
    refuse_where(
        (batch < 0) | (batch >= x.shape[0]), f"regions are in images beyond the {x.shape[0]} that there are"
    )
    half = coordinate_transformation_mode == "half_pixel"
    boxes = rois * spatial_scale - (0.5 if half else 0.0)
    start, length = boxes[:, :2], boxes[:, 2:] - boxes[:, :2]
    length = length if half else np.maximum(length, 1)
    out = output_width, output_height
    run = partial(_pooled, _pixels(x), x.shape, largest=mode == "max", out=out)
    if sampling_ratio:
        blocks = [slice(i, i + _BLOCK) for i in range(0, len(rois), _BLOCK)]
        parts = [run(start[b], length[b], batch[b], counts=(sampling_ratio, sampling_ratio)) for b in blocks]
    else:
        # As many points in each bin as it has cells.
        counts = np.maximum(np.ceil(length / np.array(out, length.dtype)), 1).astype(int)
        parts = [
            run(start[i : i + 1], length[i : i + 1], batch[i : i + 1], counts=(a, b))
            for i, (a, b) in enumerate(counts.tolist())
        ]
    return np.concatenate(parts) if parts else np.zeros((0, x.shape[1], *out[::-1]), x.dtype)


def _pooled(
    cells: Array,
    shape: tuple[int, ...],
    start: Array,
    length: Array,
    batch: Array,
    *,
    counts: tuple[int, int],
    out: tuple[int, int],
    largest: bool,
) -> Array:
    """Sample (K, C, OH, OW), as many points a bin along x and y as `counts` has."""
    corners: list[list[Tap]] = []
    for i, (n, count) in enumerate(zip(out, counts, strict=True)):
        size = shape[3 - i]
        steps = ((np.arange(n)[:, None] + (np.arange(count) + 0.5) / count) / n).reshape(-1)
        p = start[:, i, None] + length[:, i, None] * steps.astype(cells.dtype)
        inside = (p >= -1) & (p <= size)
        p = np.clip(p, 0, size - 1)
        low = np.floor(p)
        taps = [(low, (1 - (p - low)) * inside), (np.minimum(low + 1, size - 1), (p - low) * inside)]
        corners.insert(0, [(at.astype(np.int64), share) for at, share in taps])
    combine: Callable[[Array, Array], Array] = np.maximum if largest else np.add
    parts = []
    for (y, wy), (z, wz) in product(*corners):
        at = (batch[:, None, None] * shape[2] + y[:, :, None]) * shape[3] + z[:, None, :]
        parts.append(np.take(cells, at, 0) * (wy[:, :, None] * wz[:, None, :])[..., None])
    points = reduce(combine, parts).reshape(len(batch), out[1], counts[1], out[0], counts[0], shape[1])
    return (points.max((2, 4)) if largest else points.mean((2, 4))).transpose(0, 3, 1, 2)


operator("RoiAlign", since=10, shape=_aligned_shape)(
    partial(roi_align, coordinate_transformation_mode="output_half_pixel")
)


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
