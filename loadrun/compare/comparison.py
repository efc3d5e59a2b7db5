"""`compare`: all differences of two arrays, as a `Comparison`."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from sys import intern
from typing import Any

import numpy as np

from ..graph.dtypes import Array, DType
from .metrics import Totals, as_numbers, chunks, errors, top1_share

Number = bool | int | float | complex


@dataclass(frozen=True, eq=False)
class Comparison:
    """All differences of an expected and a computed array.

    Elements where either value is NaN or infinite count in `mismatches`, in `max_error` and in the counts of
    non-finite values; all other metrics look at the remaining `finite` elements only. Metrics that do not apply
    are None.

    Attributes:
        expected_shape: shape of the expected array.
        got_shape: shape of the computed array; when it differs, nothing else was compared.
        expected_dtype: its numpy dtype's name.
        got_dtype: its numpy dtype's name.
        size: number of elements compared, 0 when the shapes differ.
        finite: how many of them are finite in both arrays.
        mismatches: how many elements are not equal (NaN is equal to nothing).
        max_error: MegEngine's error (`assert_equal_error`) computed in float64; NaN when the shapes differ.
        worst_index: position of the largest error of elements that differ (the first NaN, if there is one), None
            when no element differs.
        expected: expected value there.
        got: computed value there.
        max_abs: largest ``|expected - got|``.
        max_rel: largest ``|expected - got| / |expected|`` over elements whose expected value is not 0.
        mean_abs: mean of ``|expected - got|``.
        ulp: largest distance in units of the last place of the data type, for float16, bfloat16 and float32.
        cosine: cosine of the angle between the arrays as vectors; 1 for two zero vectors, 0 for one.
        snr_db: signal to noise ratio ``10 log10(sum expected^2 / sum (expected - got)^2)``; inf without noise.
        top1: share of rows (along the last axis, of 2 or more real elements) whose largest element is at the
            same place.
        off_by: largest difference of integer (or bool) arrays, exact.
        expected_nan: number of NaN among the expected values.
        got_nan: number of NaN among the computed values.
        expected_inf: number of infinities among the expected values.
        got_inf: number of infinities among the computed values.
        nonfinite_agree: whether NaN and infinities are at the same places, infinities with the same sign.
        exceeding: how many elements exceed the tolerance; None where nothing was asked (`with_places`).
        abs_index: position of `max_abs`, found with `exceeding`.
        rel_index: position of `max_rel`, found with `exceeding`.
    """

    expected_shape: tuple[int, ...]
    got_shape: tuple[int, ...]
    expected_dtype: str
    got_dtype: str
    size: int = 0
    finite: int = 0
    mismatches: int = 0
    max_error: float = math.nan
    worst_index: tuple[int, ...] | None = None
    expected: Number | None = None
    got: Number | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    mean_abs: float | None = None
    ulp: int | None = None
    cosine: float | None = None
    snr_db: float | None = None
    top1: float | None = None
    off_by: int | None = None
    expected_nan: int = 0
    got_nan: int = 0
    expected_inf: int = 0
    got_inf: int = 0
    nonfinite_agree: bool = True
    exceeding: int | None = None
    abs_index: tuple[int, ...] | None = None
    rel_index: tuple[int, ...] | None = None

    @property
    def same_shape(self) -> bool:
        """True if the arrays have the same shape."""
        return self.expected_shape == self.got_shape

    @property
    def equal(self) -> bool:
        """True if the arrays have one shape and equal elements, with NaN and infinities at the same places."""
        return self.same_shape and self.nonfinite_agree and self.mismatches == self.expected_nan

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
        if not self.same_shape:
            return f"the shapes differ: expected {list(self.expected_shape)}, got {list(self.got_shape)}"
        lines = [self._first_line()]
        if self.expected_dtype != self.got_dtype:
            lines.append(f"expected values are {self.expected_dtype}, computed ones {self.got_dtype}")
        if self.mismatches:
            metrics = [
                _formatted("max abs {}", self.max_abs) + _at(self.abs_index),
                _formatted("max rel {}", self.max_rel) + _at(self.rel_index),
                _formatted("mean abs {}", self.mean_abs),
                _formatted("{} ULP", self.ulp),
                _formatted("off by {}", self.off_by),
            ]
            lines.append(", ".join(m for m in metrics if m))
            top1 = None if self.top1 is None else 100 * self.top1
            metrics = [
                _formatted("cosine {}", self.cosine),
                _formatted("SNR {} dB", self.snr_db),
                _formatted("top-1 agrees in {} %", top1),
            ]
            lines.append(", ".join(m for m in metrics if m))
            if self.partial and self.max_abs is not None:
                lines.append(f"these measures are {self.partial}")
        if self.expected_nan or self.got_nan or self.expected_inf or self.got_inf:
            lines.append(
                f"NaN: expected {self.expected_nan}, got {self.got_nan}; "
                f"infinite: expected {self.expected_inf}, got {self.got_inf}; "
                + (
                    "at the same places"
                    if self.nonfinite_agree
                    else "at different places or with different signs"
                )
            )
        return "\n".join(line for line in lines if line)

    def _first_line(self) -> str:
        if not self.mismatches:
            return f"all {self.size} values are equal" if self.size else "no values to compare"
        verb = "differs" if self.mismatches == 1 else "differ"
        text = f"{self.mismatches} of {self.size} values {verb}"
        if self.exceeding is not None:
            verb = "exceeds" if self.exceeding == 1 else "exceed"
            text = f"{self.exceeding} of {self.size} values {verb} the tolerance"
        error = self.max_error
        if isinstance(self.expected, int | float) and isinstance(self.got, int | float):
            # That of the element, which equal infinities elsewhere hide.
            error = float(errors(np.array(self.expected), np.array(self.got)))
        text += f"; error {error:.6g}"
        if self.worst_index is not None:
            text += f" at {list(self.worst_index)}: expected {self.expected}, got {self.got}"
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
    >>> found.off_by, found.mismatches, found.worst_index
    (247, 1, (0,))
    """
    expect, get = as_numbers(expect, "c"), as_numbers(get, "c")
    # Results are kept for a while, so they share names and shapes, which numpy would create again.
    e_name, g_name = intern(expect.dtype.name), intern(get.dtype.name)
    shape = _shared(expect.shape)
    if get.shape != shape:
        most = max(expect.size, get.size)
        return Comparison(shape, get.shape, e_name, g_name, mismatches=most, nonfinite_agree=False)
    whole = expect, get
    paired = "c" in expect.dtype.kind + get.dtype.kind
    if paired:
        kind = np.result_type(expect, get)
        expect, get = (_pairs(x, kind) for x in whole)
    t = Totals(expect, get, dtype)
    with np.errstate(all="ignore"):
        for e, g in chunks(expect, get):
            t.add(e, g)
        top1 = None if paired else top1_share(expect, get, t.mismatches == 0)
    at = None if t.at is None else tuple(int(i) for i in np.unravel_index(t.at, expect.shape))
    if at is not None:
        at = at[: whole[0].ndim]
    pairs = finite = t.finite
    if paired and pairs < expect.size:
        finite = int(np.count_nonzero(np.isfinite(whole[0]) & np.isfinite(whole[1])))
    elif paired:
        finite = whole[0].size
    return Comparison(
        shape,
        shape,
        e_name,
        g_name,
        size=whole[0].size,
        finite=finite,
        mismatches=t.mismatches,
        max_error=t.error(),
        worst_index=at,
        expected=None if at is None else whole[0][at].item(),
        got=None if at is None else whole[1][at].item(),
        max_abs=t.max_abs if pairs else None,
        max_rel=t.max_rel if pairs else None,
        mean_abs=t.sum_abs / pairs if pairs else None,
        ulp=t.ulp if pairs else None,
        cosine=t.cosine() if pairs else None,
        snr_db=t.snr() if pairs else None,
        top1=top1,
        off_by=t.off_by if pairs else None,
        expected_nan=t.nan[0],
        got_nan=t.nan[1],
        expected_inf=t.inf[0],
        got_inf=t.inf[1],
        nonfinite_agree=t.agree,
    )


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
    if not comparison.same_shape or not comparison.size:
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
    places = [
        None if at is None else tuple(int(i) for i in np.unravel_index(at, expect.shape)) for _, at in best
    ]
    return replace(comparison, exceeding=count, abs_index=places[0], rel_index=places[1])


def _at(place: tuple[int, ...] | None) -> str:
    return "" if place is None else f" at {list(place)}"


@lru_cache(maxsize=64)
def _shared(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape


def _formatted(form: str, value: float | None) -> str:
    """Fill in the form; empty without a value."""
    return "" if value is None else form.format(value if isinstance(value, int) else f"{value:.6g}")


def _pairs(x: Array, kind: np.dtype[Any]) -> Array:
    """Split a complex array into real and imaginary parts along a new last axis."""
    whole = np.ascontiguousarray(x, kind)
    return whole.view(whole.real.dtype).reshape(*x.shape, 2)
