"""How far two values of one variable are apart, and sketches of values that order does not change."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ...base.errors import LoadRunError
from ...compare import assert_equal_error
from ...graph import Graph, Opr, Var
from ...graph.dtypes import Array, DType
from ...graph.params import Reduce, ReduceMode
from ...ops.infer import infer_dtypes

TOLERANCE = 1e-4
"""How far a value may be off, relative to the largest value of its tensor."""
_REDUCE = "ReduceV2"
_LAST_PLACE = {"Float16": 2.0**-10, "BFloat16": 2.0**-7, "Float32": 2.0**-23, "Float64": 2.0**-52}
_LAST_PLACES = {name: 4 * _LAST_PLACE[name] for name in ("Float16", "BFloat16")}
"""Four units in the last place of the largest value: sums in another order and casts elsewhere differ by some."""


@dataclass(frozen=True)
class Distance:
    """The difference of two arrays of one size.

    Attributes:
        relative: the largest difference over the largest absolute value of the reference; infinite where either has
            NaN or infinity and the other does not. Beside huge values (a mask's -1e9) the others have a scale of
            their own.
        absolute: the largest difference.
        error: MegEngine's measure.
        index: where the difference is largest, measured by its scale.
        found, expected: the two values there.
        count: how many elements exceed the tolerance.
        size: how many elements there are.
        elementwise: the largest difference over the absolute value of its own element of the reference.
        at: where that is.
        nonfinite: how many elements are the same NaN or infinity in both.
    """

    relative: float
    absolute: float
    error: float
    index: tuple[int, ...]
    found: float
    expected: float
    count: int = 0
    size: int = 0
    elementwise: float = 0.0
    at: tuple[int, ...] = ()
    nonfinite: int = 0


def agree(apart: Distance | None, dtype: DType | None, tolerance: float, *, exactly: bool = False) -> bool:
    """Return whether a distance is within a tolerance relative to the tensor's largest value.

    Args:
        apart: the distance; None if the numbers of elements differ.
        dtype: that of the values; quantized ones may be off by one step.
        tolerance: the largest relative distance.
        exactly: quantized values and integers must be equal.
    """
    if apart is None:
        return False
    if dtype is not None and (dtype.is_quantized or dtype.np.kind in "biu"):
        if exactly:
            return apart.absolute == 0
        if dtype.is_quantized:
            return apart.relative <= tolerance or apart.absolute <= 1.001 * float(dtype.scale)
    return apart.relative <= tolerance


class Tolerances:
    """How far values may be off, relative to the largest value of their tensors.

    Args:
        tolerance: the same for all; None takes `TOLERANCE`, and four units in the last place of the largest value for
            what is computed in float16 or bfloat16.
        graphs: the graphs of the values. Their dtypes are inferred.
        exactly: whether one side rounds nothing, so that roundings of the other add up: then with the root of their
            number along a path, beyond 16.
    """

    def __init__(self, tolerance: float | None, *graphs: Graph, exactly: bool = False) -> None:
        self.exact = TOLERANCE if tolerance is None else tolerance
        """That of values that are computed in float32."""
        self._inexact = [_inexact(g, exactly) for g in graphs] if tolerance is None else []

    def of(self, *variables: Var) -> float:
        """Return that of a variable of each graph."""
        known = zip(self._inexact, variables, strict=False)
        return max((self.exact, *(off.get(v.id, 0.0) for off, v in known)))


def _inexact(graph: Graph, exactly: bool) -> dict[int, float]:
    """Map variables that are computed in float16 or bfloat16 to how far they may be off at least, by their ids."""
    off: dict[int, float] = {}
    roundings: dict[int, int] = {}
    for opr in graph.needed():
        with suppress(LoadRunError):
            infer_dtypes([opr])
        behind = max((off.get(v.id, 0.0) for v in opr.inputs), default=0.0)
        before = max((roundings.get(v.id, 0) for v in opr.inputs), default=0)
        for var in opr.outputs:
            places = _LAST_PLACES.get(var.dtype.name, 0.0) if var.dtype is not None else 0.0
            if most := max(behind, places):
                off[var.id], roundings[var.id] = most, before + bool(places)
    return {i: most * max(1.0, roundings[i] ** 0.5 / 4) for i, most in off.items()} if exactly else off


class Sums:
    """Which sums of a graph cancel, so that their values are nothing but what rounding left of the terms.

    Args:
        graph: the graph. Its dtypes are inferred.
    """

    def __init__(self, graph: Graph) -> None:
        self._terms = {v.id for o in graph.oprs for v in _terms(o)}
        self._seen: dict[int, tuple[float, int]] = {}

    def see(self, var: Var, value: Array) -> None:
        """Take note of a variable's value, in execution order."""
        if var.id in self._terms:
            self._seen[var.id] = (
                float(np.abs(value).mean(dtype=np.float64)) if value.size else 0.0,
                value.size,
            )

    def cancel(self, var: Var, *values: Array) -> bool:
        """Tell whether these, of several runs, are what rounding left of the terms that a variable is the sum of."""
        terms = [self._seen[v.id] for v in _terms(var.owner) if v.id in self._seen]
        unit = _LAST_PLACE.get(var.dtype.name) if var.dtype is not None else None
        if unit is None or not terms:
            return False
        mean, size = max(terms)
        added = max(1.0, size / max(1, values[0].size))
        rounding = 4 * unit * mean * added**0.5
        if var.owner.type == _REDUCE and var.owner.get(Reduce).mode == ReduceMode.SUM:
            rounding *= added
        return rounding < np.inf and all(float(np.abs(v).max(initial=0.0)) <= rounding for v in values)


def _terms(opr: Opr) -> Sequence[Var]:
    """Give what an operator adds up, nothing where it is no sum."""
    if opr.type == _REDUCE:
        return opr.inputs[: opr.get(Reduce).mode in (ReduceMode.SUM, ReduceMode.MEAN)]
    if opr.title in ("ReduceSum", "ReduceMean"):
        return opr.inputs[:1]
    return opr.inputs if opr.title in ("ADD", "SUB", "Add", "Sub", "Sum") else ()


def distance(
    actual: Array, expected: Array, tolerance: float = 0.0, *, packed: bool = False
) -> Distance | None:
    """Compare two arrays; None if their numbers of elements differ.

    Arrays of other shapes are compared in the layout in which they fit best, so that packed channels (NCHW4, NCHW44,
    NHWC, ...) stand beside plain ones; so are arrays of one shape that are `packed` in different ways. Elements are
    counted whose relative difference exceeds the tolerance.

    >>> import numpy as np
    >>> distance(np.array([1.0, 2.5]), np.array([1.0, 2.0])).relative
    0.25
    """
    if actual.shape == expected.shape and not packed:
        return _apart(actual, expected, tolerance)
    best = None
    for x, y in _laid_out_alike(actual, expected):
        apart = _apart(x, y, tolerance)
        if best is None or apart.relative < best.relative:
            best = apart
    return best


def are_reordered(actual: Array, expected: Array, tolerance: float) -> bool:
    """Return whether two arrays hold the same numbers, in any order."""
    if actual.size != expected.size:
        return False
    return _apart(np.sort(actual, axis=None), np.sort(expected, axis=None), tolerance).relative <= tolerance


def is_packed_otherwise(var: Var, there: Var) -> bool:
    """Tell whether two operators give layouts of their own, which may have one shape."""
    return _formats(var.owner) != _formats(there.owner)


def has_layouts(graph: Graph) -> bool:
    """Tell whether any operator has another layout than plain NCHW, so that shapes of one value may differ."""
    return any(not _formats(o) <= {"None", "NCHW", "DEFAULT"} for o in graph.oprs)


def _formats(opr: Opr) -> set[str]:
    return {str(getattr(f, "name", f)) for p in opr.params for f in (dict(p.pairs()).get("format"),)}


def _laid_out_alike(actual: Array, expected: Array) -> Iterator[tuple[Array, Array]]:
    """Both arrays in layouts of one shape, and flat where they only have as many elements."""
    for x in _unpacked(actual):
        for y in _unpacked(expected):
            if x.shape == y.shape:
                yield x, y
            elif x.ndim == y.ndim == 4 and x.shape[::2] == y.shape[::2] and x.shape[3] == y.shape[3]:
                # Packs are filled up with channels that mean nothing.
                channels = min(x.shape[1], y.shape[1])
                yield x[:, :channels], y[:, :channels]
    if actual.size == expected.size:
        yield actual.reshape(-1), expected.reshape(-1)


def _unpacked(value: Array) -> Iterator[Array]:
    """Yield the array as it is, and as plain NCHW where it may be NHWC or have packed channels."""
    yield value
    if value.ndim == 4:
        yield value.transpose(0, 3, 1, 2)
    elif value.ndim == 5:
        for axes in ((0, 1, 4, 2, 3), (3, 0, 4, 1, 2), (0, 2, 4, 1, 3)):  # NCHWx, CHWNx, NHCWx
            n, c, k, h, w = (value.shape[i] for i in axes)
            yield value.transpose(axes).reshape(n, c * k, h, w)


def _apart(actual: Array, expected: Array, tolerance: float) -> Distance:
    """Measure the distance of two arrays of one shape."""
    if actual.size == 0:
        return Distance(0.0, 0.0, 0.0, (), 0.0, 0.0)
    shape = actual.shape
    x, y = actual.reshape(-1).astype(np.float64), expected.reshape(-1).astype(np.float64)
    with np.errstate(all="ignore"):
        difference = np.abs(x - y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        difference[same] = 0
        difference[np.isnan(difference)] = np.inf
        magnitude = np.abs(y)
        magnitude[~np.isfinite(magnitude)] = 0
        absolute = float(difference.max())
        scale = _scale(magnitude) if absolute else 0.0
        relative = difference / np.maximum(magnitude, scale) if scale else difference
        nonfinite = int(np.count_nonzero(same & ~np.isfinite(y)))
        elementwise = np.where(magnitude > 0, difference / magnitude, np.where(same, 0.0, np.inf))
    worst, largest = int(np.argmax(relative)), int(np.argmax(elementwise))
    return Distance(
        float(relative[worst]),
        absolute,
        float(assert_equal_error(x, y)) if np.isfinite(absolute) else float("inf"),
        _place(worst, shape),
        float(x[worst]),
        float(y[worst]),
        int(np.count_nonzero(relative > tolerance)),
        x.size,
        float(elementwise[largest]),
        _place(largest, shape),
        nonfinite,
    )


def _place(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape))


def _scale(magnitude: Array) -> float:
    """Return the largest absolute value below the huge ones.

    Huge are values of 1e4 and more that are 1e5 times the next smaller one: -1e9 in a mask of attention, the greatest
    number of a type. The others are then judged among themselves.
    """
    largest = float(magnitude.max(initial=0.0))
    if largest < _HUGE:
        return largest
    ordered = np.sort(magnitude)
    above = np.flatnonzero((ordered[1:] >= _HUGE) & (ordered[1:] > _GAP * ordered[:-1]) & (ordered[:-1] > 0))
    return float(ordered[above[0]]) if above.size and 100 * (above[0] + 1) >= ordered.size else largest


_HUGE = 1e4
_GAP = 1e5


Sketch = tuple[int, float, float, float, float, float, float]


def sketch(value: Array) -> Sketch:
    """Size, minimum, maximum, mean, mean of absolute values, and deviation: the same in any order of the elements.

    The last number depends on the order: the mean of the elements with weights that grow with their place.
    """
    if not value.size:
        return 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    x = value.reshape(-1).astype(np.float64)
    with np.errstate(all="ignore"):
        return (
            value.size,
            float(x.min()),
            float(x.max()),
            float(x.mean()),
            float(np.abs(x).mean()),
            float(x.std()),
            float(x @ np.linspace(0.0, 1.0, x.size)) / x.size,
        )


def is_even(of: Sketch) -> bool:
    """Return whether values hardly vary, so that a sketch says too little of them."""
    spread = max(abs(of[1]), abs(of[2]))
    return of[0] < 4 or not spread or of[5] < 1e-3 * spread


class SketchIndex:
    """Variables by their sketches.

    Args:
        sketches: the variables with their sketches.
    """

    def __init__(self, sketches: Iterable[tuple[Var, Sketch]]) -> None:
        # By size and mean magnitude, so that few are compared; those that agree with nothing are left out.
        telling = (item for item in sketches if not is_even(item[1]))
        self._ordered = sorted(telling, key=lambda item: (item[1][0], item[1][4], item[0].id))
        self._keys = [(values[0], values[4]) for _, values in self._ordered]

    def like(self, values: Sketch, tolerance: float) -> list[Var]:
        """List the variables whose sketches agree with one, in execution order."""
        near = 2 * tolerance * max(abs(values[1]), abs(values[2]))
        start = bisect_left(self._keys, (values[0], values[4] - near))
        end = bisect_right(self._keys, (values[0], values[4] + near))
        same = [v for v, there in self._ordered[start:end] if sketches_agree(values, there, tolerance)]
        return sorted(same, key=lambda v: v.id)


def sketches_agree(a: Sketch, b: Sketch, tolerance: float) -> bool:
    """Return whether two sketches may be of one value; values that hardly vary say too little and never agree.

    >>> x = np.array([[1.0, 2.0, 3.0], [5.0, 6.0, 8.0]])
    >>> sketches_agree(sketch(x), sketch(x.T), 1e-4), are_in_order(sketch(x), sketch(x.T), 1e-4)
    (True, False)
    """
    if a[0] != b[0] or is_even(b) or not np.isfinite([*a, *b]).all():
        return False
    spread = max(abs(b[1]), abs(b[2]))
    return all(abs(x - y) <= tolerance * spread for x, y in zip(a[1:6], b[1:6], strict=True))


def are_in_order(a: Sketch, b: Sketch, tolerance: float) -> bool:
    """Return whether the elements of two values whose sketches agree may be in one order, whatever their shapes."""
    return abs(a[6] - b[6]) <= tolerance * max(abs(b[1]), abs(b[2]))
