"""`compare`: all differences of two arrays, as a `Comparison`."""

import math
from sys import intern
from typing import Any, NamedTuple

import numpy as np

from ..graph.dtypes import Array, DType
from .metrics import Measures, Totals, as_numbers, chunks, errors, top1_share

Number = bool | int | float | complex


class Side(NamedTuple):
    """One of the two arrays.

    Attributes:
        shape: its shape.
        dtype: its numpy dtype's name.
        nan: how many of its values are NaN.
        inf: how many are infinite.
        worst: its value at `Comparison.worst_index`.
    """

    shape: tuple[int, ...]
    dtype: str
    nan: int = 0
    inf: int = 0
    worst: Number | None = None


class Places(NamedTuple):
    """What `with_places` adds to a comparison; None where nothing was asked.

    Attributes:
        exceeding: how many elements exceed the tolerance.
        abs_index: position of `Measures.max_abs`.
        rel_index: position of `Measures.max_rel`.
    """

    exceeding: int | None = None
    abs_index: tuple[int, ...] | None = None
    rel_index: tuple[int, ...] | None = None


class Comparison(NamedTuple):
    """All differences of an expected and a computed array.

    Elements where either value is NaN or infinite count in `mismatches`, in `max_error` and in the counts of
    non-finite values; measures other than `top1` look at the remaining `finite` elements only.

    Attributes:
        expected: the expected array.
        got: the computed array; when its shape differs, nothing else was compared.
        finite: how many elements are finite in both arrays.
        mismatches: how many elements are not equal (NaN is equal to nothing).
        max_error: MegEngine's error (`assert_equal_error`) computed in float64; NaN when the shapes differ.
        worst_index: position of the largest error of elements that differ (the first NaN, if there is one), None
            when no element differs.
        measures: all other metrics.
        nonfinite_agree: whether NaN and infinities are at the same places, infinities with the same sign.
        places: what exceeds the tolerance of a check that fails, and where.
    """

    expected: Side
    got: Side
    finite: int = 0
    mismatches: int = 0
    max_error: float = math.nan
    worst_index: tuple[int, ...] | None = None
    measures: Measures = Measures()
    nonfinite_agree: bool = True
    places: Places = Places()

    @property
    def same_shape(self) -> bool:
        """True if the arrays have the same shape."""
        return self.expected.shape == self.got.shape

    @property
    def size(self) -> int:
        """Number of elements compared, 0 when the shapes differ."""
        return math.prod(self.expected.shape) if self.same_shape else 0

    @property
    def equal(self) -> bool:
        """True if the arrays have one shape and equal elements, with NaN and infinities at the same places."""
        return self.same_shape and self.nonfinite_agree and self.mismatches == self.expected.nan

    @property
    def partial(self) -> str:
        """Of how many elements the metrics other than the error are, "" where it is all of them."""
        if self.finite == self.size:
            return ""
        return f"of the {self.finite} of {self.size} pairs that are finite"

    def explain(self) -> str:
        """Explain the comparison in a few lines of text.

        >>> import numpy as np
        >>> print(compare(np.array([1.0, 2, 3], "f4"), np.array([1.0, 2, 3.5], "f4")).explain())
        1 of 3 values differs; error 0.166667 at [2]: expected 3.0, got 3.5
        max abs 0.5, max rel 0.166667, mean abs 0.166667, 2097152 ULP
        cosine 0.997409, SNR 17.4819 dB, top-1 agrees in 100 %
        """
        e, g, m = self.expected, self.got, self.measures
        if not self.same_shape:
            return f"the shapes differ: expected {list(e.shape)}, got {list(g.shape)}"
        lines = [self._first_line()]
        if e.dtype != g.dtype:
            lines.append(f"expected values are {e.dtype}, computed ones {g.dtype}")
        if self.mismatches:
            metrics = [
                _formatted("max abs {}", m.max_abs, self.places.abs_index),
                _formatted("max rel {}", m.max_rel, self.places.rel_index),
                _formatted("mean abs {}", m.mean_abs),
                _formatted("{} ULP", m.ulp),
                _formatted("off by {}", m.off_by),
            ]
            lines.append(", ".join(text for text in metrics if text))
            top1 = None if m.top1 is None else 100 * m.top1
            metrics = [
                _formatted("cosine {}", m.cosine),
                _formatted("SNR {} dB", m.snr_db),
                _formatted("top-1 agrees in {} %", top1),
            ]
            lines.append(", ".join(text for text in metrics if text))
            if self.partial and m.max_abs is not None:
                lines.append(f"these measures are {self.partial}")
        if e.nan or g.nan or e.inf or g.inf:
            counts = f"NaN: expected {e.nan}, got {g.nan}; infinite: expected {e.inf}, got {g.inf}"
            places = "the same places" if self.nonfinite_agree else "different places or with different signs"
            lines.append(f"{counts}; at {places}")
        return "\n".join(line for line in lines if line)

    def _first_line(self) -> str:
        if not self.mismatches:
            return f"all {self.size} values are equal" if self.size else "no values to compare"
        verb = "differs" if self.mismatches == 1 else "differ"
        text = f"{self.mismatches} of {self.size} values {verb}"
        exceeding = self.places.exceeding
        if exceeding is not None:
            verb = "exceeds" if exceeding == 1 else "exceed"
            text = f"{exceeding} of {self.size} values {verb} the tolerance"
        error, expected, got = self.max_error, self.expected.worst, self.got.worst
        if isinstance(expected, int | float) and isinstance(got, int | float):
            # That of the element, which equal infinities elsewhere hide.
            error = float(errors(np.array(expected), np.array(got)))
        text += f"; error {error:.6g}"
        if self.worst_index is not None:
            text += f" at {list(self.worst_index)}: expected {expected}, got {got}"
        return text


def compare(expect: Array, get: Array, dtype: DType | None = None) -> Comparison:
    """Compare a computed with an expected array of any numeric dtype.

    Args:
        expect: expected values.
        get: computed values; another shape gives a `Comparison` that says so and nothing more.
        dtype: the data type of the values where their arrays' is a wider one, such as bfloat16, whose last places
            are counted then.

    Returns:
        all metrics, gathered in float64 (integer ones exactly).

    Raises:
        TypeError: a dtype that does not hold numbers.

    >>> import numpy as np
    >>> found = compare(np.array([250, 3], "u1"), np.array([3, 3], "u1"))
    >>> found.measures.off_by, found.mismatches, found.worst_index
    (247, 1, (0,))
    """
    expect, get = as_numbers(expect, "c"), as_numbers(get, "c")
    whole, shape = (expect, get), expect.shape
    if get.shape != shape:
        expected, got = (Side(x.shape, x.dtype.name) for x in whole)
        return Comparison(expected, got, mismatches=max(x.size for x in whole), nonfinite_agree=False)
    paired = "c" in expect.dtype.kind + get.dtype.kind
    if paired:
        kind = np.result_type(expect, get)
        expect, get = (_pairs(x, kind) for x in whole)
    t = Totals(expect, get, dtype)
    with np.errstate(all="ignore"):
        for e, g in chunks(expect, get):
            t.add(e, g)
        top1 = None if paired else top1_share(expect, get, t.mismatches == 0)
    at = _place(None if t.at is None else t.at // (1 + paired), shape)
    finite = int(np.count_nonzero(np.isfinite(whole[0]) & np.isfinite(whole[1]))) if paired else t.finite
    # Results are kept for a while, so they share the name and the shape, which numpy would create again.
    expected, got = (
        Side(shape, intern(x.dtype.name), nan, inf, None if at is None else x[at].item())
        for x, nan, inf in zip(whole, t.nan, t.inf, strict=True)
    )
    return Comparison(expected, got, finite, t.mismatches, t.error(), at, t.measures(top1), t.agree)


def with_places(comparison: Comparison, expect: Array, get: Array, tolerance: float) -> Comparison:
    """Add to a comparison how many elements exceed a tolerance, and where the largest differences are.

    Args:
        comparison: the comparison of the two arrays.
        expect, get: expected and computed values, real numbers.
        tolerance: the largest error by MegEngine's measure that does not exceed it; NaN always does.

    >>> import numpy as np
    >>> x, y = np.array([1.0, 2, 300], "f4"), np.array([1.0, 2.5, 301], "f4")
    >>> print(with_places(compare(x, y), x, y, 0.1).explain().splitlines()[0])
    1 of 3 values exceeds the tolerance; error 0.25 at [1]: expected 2.0, got 2.5
    """
    if not comparison.size:
        return comparison
    count, start = 0, 0
    best: list[tuple[float, int | None]] = [(0.0, None), (0.0, None)]
    with np.errstate(all="ignore"):
        for e, g in chunks(expect, get):
            x, y = e.astype(np.float64), g.astype(np.float64)
            count += int(np.count_nonzero((x != y) & ~(errors(x, y) <= tolerance)))
            apart = np.abs(x - y)
            finite = np.isfinite(x) & np.isfinite(y)
            for i, d in enumerate((apart, apart / np.abs(np.where(x == 0, np.inf, x)))):
                d = np.where(finite, d, 0.0)
                at = int(np.argmax(d))
                if d[at] > best[i][0]:
                    best[i] = float(d[at]), start + at
            start += e.size
    of_abs, of_rel = (_place(at, expect.shape) for _, at in best)
    return comparison._replace(places=Places(count, of_abs, of_rel))


def _place(at: int | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if at is None else tuple(int(i) for i in np.unravel_index(at, shape))


def _formatted(form: str, value: float | None, place: tuple[int, ...] | None = None) -> str:
    """Fill in the form; empty without a value."""
    at = "" if place is None else f" at {list(place)}"
    return "" if value is None else form.format(value if isinstance(value, int) else f"{value:.6g}") + at


def _pairs(x: Array, kind: np.dtype[Any]) -> Array:
    """Split a complex array into real and imaginary parts along a new last axis."""
    whole = np.ascontiguousarray(x, kind)
    return whole.view(whole.real.dtype).reshape(*x.shape, 2)
