"""A layered layout of a small graph: boxes in rows from top to bottom, edges between neighbouring rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]
_GAP_X, _GAP_Y, _ROW = 18.0, 30.0, 34.0
_SPAN = 8
"""Rows that an edge may pass over among the boxes; longer ones run beside them."""
_SWEEPS = 6
_BEND = 4.0
"""Width of the place that an edge takes in a row that it passes."""


@dataclass(frozen=True)
class GraphLayout:
    """Places of boxes and edges.

    Attributes:
        boxes: left and upper edge of every box.
        edges: the points that every edge passes, from box to box.
        width, height: of the whole.
    """

    boxes: list[Point]
    edges: list[list[Point]]
    width: float
    height: float


def layered(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> GraphLayout:
    """Lay out boxes of these widths; the time grows with boxes plus edges.

    Args:
        widths: widths of the boxes, in the order in which they are computed.
        edges: pairs of numbers of boxes.

    >>> found = layered([40, 40, 40], [(0, 1), (0, 2)])
    >>> [y for _, y in found.boxes]
    [0.0, 64.0, 64.0]
    """
    rows = _rows(len(widths), edges)
    chains = [_chain(a, b, rows) for a, b in edges]
    sizes = list(widths)
    row_of = list(rows)
    links: list[tuple[int, int]] = []
    paths: list[list[int]] = []
    for (a, b), passed in zip(edges, chains, strict=True):
        path = [a]
        for row in passed or ():
            row_of.append(row)
            sizes.append(_BEND)
            path.append(len(sizes) - 1)
        path.append(b)
        paths.append(path)
        if passed is not None:
            links += pairwise(path)
    order, before, after = _ordered(row_of, links)
    x = _placed(order, sizes, before, after)
    far = max((x[i] + sizes[i] for i in range(len(sizes))), default=0.0)
    points: list[list[Point]] = []
    beside = 0
    for path, passed in zip(paths, chains, strict=True):
        line = [(x[i] + sizes[i] / 2, row_of[i] * (_ROW + _GAP_Y)) for i in path]
        line = [(line[0][0], line[0][1] + _ROW), *((px, py + _ROW / 2) for px, py in line[1:-1]), line[-1]]
        if passed is None:
            beside += 1
            lane = far + _GAP_X + 6 * (beside % 12)
            (_, top), (_, bottom) = line[0], line[-1]
            line[1:1] = [(lane, top + _GAP_Y / 2), (lane, bottom - _GAP_Y / 2)]
        points.append(line)
    height = (max(rows, default=0) + 1) * (_ROW + _GAP_Y) - _GAP_Y
    boxes = [(x[i], rows[i] * (_ROW + _GAP_Y)) for i in range(len(widths))]
    return GraphLayout(boxes, points, far + (_GAP_X + 72 if beside else 0), height)


def _rows(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the row of every box: below all that it reads. An edge against the order counts the other way round."""
    rows = [0] * count
    below: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        if a != b:
            below[min(a, b)].append(max(a, b))
    for a in range(count):
        for b in below[a]:
            rows[b] = max(rows[b], rows[a] + 1)
    return rows


def _chain(a: int, b: int, rows: Sequence[int]) -> Sequence[int] | None:
    """Return the rows that an edge passes, None if it runs beside the boxes."""
    if not 0 < rows[b] - rows[a] <= _SPAN:
        return None
    return range(rows[a] + 1, rows[b])


def _ordered(
    row_of: Sequence[int], links: Sequence[tuple[int, int]]
) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """Order the boxes of every row by where their neighbours in the row before, then in the one after, stand."""
    order: list[list[int]] = [[] for _ in range(max(row_of, default=-1) + 1)]
    before: list[list[int]] = [[] for _ in row_of]
    after: list[list[int]] = [[] for _ in row_of]
    for i, row in enumerate(row_of):
        order[row].append(i)
    for a, b in links:
        before[b].append(a)
        after[a].append(b)
    place = [0.0] * len(row_of)
    for boxes in order:
        for k, i in enumerate(boxes):
            place[i] = k
    for sweep in range(_SWEEPS):
        near = before if sweep % 2 == 0 else after
        for boxes in order if sweep % 2 == 0 else order[::-1]:
            wish = {i: _mean([place[j] for j in near[i]], place[i]) for i in boxes}
            boxes.sort(key=wish.__getitem__)
            for k, i in enumerate(boxes):
                place[i] = k
    return order, before, after


def _placed(
    order: Sequence[Sequence[int]],
    sizes: Sequence[float],
    before: Sequence[Sequence[int]],
    after: Sequence[Sequence[int]],
) -> list[float]:
    """Return the left edge of every box: near the middle of its neighbours, without overlaps."""
    x = [0.0] * len(sizes)
    for row in order:
        left = 0.0
        for i in row:
            x[i] = left
            left += sizes[i] + _GAP_X
    for sweep in range(_SWEEPS):
        near = before if sweep % 2 == 0 else after
        for row in order if sweep % 2 == 0 else order[::-1]:
            wish = [
                _mean([x[j] + sizes[j] / 2 for j in near[i]], x[i] + sizes[i] / 2) - sizes[i] / 2 for i in row
            ]
            right = [*wish]
            for k in range(1, len(row)):
                right[k] = max(right[k], right[k - 1] + sizes[row[k - 1]] + _GAP_X)
            left_most = [*wish]
            for k in range(len(row) - 2, -1, -1):
                left_most[k] = min(left_most[k], left_most[k + 1] - sizes[row[k]] - _GAP_X)
            # Both keep the distances, and so does the middle between them.
            for k, i in enumerate(row):
                x[i] = (right[k] + left_most[k]) / 2
    least = min(x, default=0.0)
    return [v - least for v in x]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
