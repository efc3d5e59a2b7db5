"""Images of a failing output: how its errors are distributed, and where they are."""

from dataclasses import dataclass

import numpy as np

from ..compare import errors
from ..graph.dtypes import Array

_LOW, _HIGH = -12, 6
_CELLS = 48
"""Cells of a map along either axis at most."""


@dataclass(frozen=True)
class Picture:
    """Errors of one output, few enough numbers to draw.

    Attributes:
        low: decade at which the histogram begins: bin ``i`` counts errors from
            ``10**(low + i)`` on, below ten times that.
        counts: elements by decade; what is smaller or greater than all bins counts in the first or the last.
        equal: elements without error.
        nonfinite: elements of which a value is NaN or infinite, and the other is not the same.
        shape: shape of the output.
        cells: the largest error in each cell of a map, row by row; its rows are all axes but the last, its columns the
            last one. NaN where a value is not finite.
        worst: the cell of the largest error.
    """

    low: int
    counts: tuple[int, ...]
    equal: int
    nonfinite: int
    shape: tuple[int, ...]
    cells: tuple[tuple[float, ...], ...]
    worst: tuple[int, int]


def picture(expect: Array, get: Array) -> Picture:
    """Draw the errors of an output; the error is MegEngine's, ``|expect - get| / max(1, min(|expect|, |get|))``.

    Args:
        expect, get: expected and computed value, of any real dtypes; of two shapes, nothing is counted.

    >>> import numpy as np
    >>> found = picture(np.array([1.0, 2.0, 0.5]), np.array([1.0, 2.0, 0.75]))
    >>> found.equal, sum(found.counts), found.counts[-1 - found.low], found.cells
    (2, 1, 1, ((0.0, 0.0, 0.25),))
    """
    bins = _HIGH - _LOW
    if expect.shape != get.shape or not expect.size:
        return Picture(_LOW, (0,) * bins, 0, 0, get.shape, (), (0, 0))
    e, g = (np.atleast_1d(np.asarray(v)).astype(np.float64) for v in (expect, get))
    error = errors(e, g)
    error[e == g] = 0.0
    with np.errstate(all="ignore"):
        finite = np.isfinite(error)
        some = error[finite & (error > 0)]
        decade = np.clip(np.floor(np.log10(some)).astype(np.int64) - _LOW, 0, bins - 1)
    counts = np.bincount(decade, minlength=bins)
    plane = error.reshape(-1, error.shape[-1])
    rows, columns = _grid(plane)
    cells = np.maximum.reduceat(np.maximum.reduceat(plane, rows, axis=0), columns, axis=1)
    filled = np.where(np.isfinite(cells), cells, np.inf)
    at = np.unravel_index(int(filled.argmax()), cells.shape)
    return Picture(
        _LOW,
        tuple(map(int, counts)),
        int((error == 0).sum()),
        int((~finite).sum()),
        expect.shape,
        tuple(tuple(float(v) for v in row) for row in cells),
        (int(at[0]), int(at[1])),
    )


def _grid(plane: Array) -> tuple[Array, Array]:
    """Return where the cells of a map begin, along rows and columns."""
    starts = [
        np.unique(np.linspace(0, n, min(n, _CELLS), endpoint=False).astype(np.intp)) for n in plane.shape
    ]
    return starts[0], starts[1]
