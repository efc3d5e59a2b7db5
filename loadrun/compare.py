"""Comparing an expected with a computed array: MegEngine's error measure and the metrics beside it.

Nothing here knows of files, graphs or thresholds: a `Comparison` holds numbers, `passes` is the one predicate.
Arrays are walked in chunks, so that the memory needed does not grow with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Any

import numpy as np

from .dtypes import Array

__all__ = ["Comparison", "Number", "assert_equal_error", "compare", "errors", "passes"]

Number = bool | int | float | complex

_CHUNK = 1 << 15
"""Elements looked at in one go: the float64 temporaries of a chunk stay in the processor's cache."""


def passes(error: float, maxerr: float) -> bool:
    """Whether an error is within a tolerance; NaN on either side never is.

    >>> passes(1e-5, 1e-4), passes(float("nan"), 1e-4), passes(float("inf"), float("inf"))
    (True, False, True)
    """
    return bool(0 <= error <= maxerr)


def errors(expect: Array, get: Array) -> Array:
    """Return MegEngine's error of every element, in float64: ``|expect - get| / max(1, min(|expect|, |get|))``.

    Absolute below 1, relative above. NaN where either value is NaN, or both are the same infinity: what becomes of
    those is the caller's to decide.

    Args:
        expect: expected values, any real dtype.
        get: computed values of the same shape.

    >>> import numpy as np
    >>> errors(np.array([0.5, 200.0]), np.array([0.75, 202.0])).tolist()
    [0.25, 0.01]
    """
    e, g = expect.astype(np.float64, copy=False), get.astype(np.float64, copy=False)
    with np.errstate(all="ignore"):
        return np.abs(e - g) / np.maximum(np.minimum(np.abs(e), np.abs(g)), 1)


def assert_equal_error(expect: Array, get: Array) -> np.float32:
    """MegEngine's error of two arrays of one shape: what its AssertEqual operator holds against ``maxerr``.

    The maximum of ``|expect - get| / max(1, min(|expect|, |get|))`` in float32: absolute below 1, relative above.
    NaN as soon as one quotient is NaN: where either value is NaN, or both are the same infinity. Integers are
    subtracted without wrapping around, where MegEngine's would hide a difference of 255 in an int8 array.

    Args:
        expect: expected values, any real dtype.
        get: computed values of the same shape.

    Returns:
        the error; 0 for arrays without elements.

    Raises:
        ValueError: the shapes differ.
        TypeError: a dtype that does not hold numbers.

    >>> import numpy as np
    >>> float(assert_equal_error(np.array([0.5, 200.0], "f4"), np.array([0.75, 202.0], "f4")))
    0.25
    """
    expect, get = _numbers(expect), _numbers(get)
    if expect.shape != get.shape:
        raise ValueError(f"shapes differ: expected {list(expect.shape)}, got {list(get.shape)}")
    exact = "f" not in expect.dtype.kind + get.dtype.kind
    worst = np.float32(0)
    with np.errstate(all="ignore"):
        for e, g in _chunks(expect, get):
            if exact:
                d = np.abs(np.subtract(e, g, dtype=np.float64)).astype(np.float32)
            e, g = e.astype(np.float32, copy=False), g.astype(np.float32, copy=False)
            if not exact:
                d = e - g
                np.abs(d, out=d)
            bound = np.minimum(np.abs(e), np.abs(g))
            d /= np.maximum(bound, np.float32(1), out=bound)
            # numpy's maximum keeps a NaN, whichever side it is on.
            worst = np.maximum(worst, d.max())
    return np.float32(worst)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that is known about the difference of an expected and a computed array.

    Elements where either value is NaN or infinite count in `mismatches`, in `max_error` and in the counts of
    non-finite values; all other metrics look at the remaining elements only. Metrics that do not apply are None.

    Attributes:
        expected_shape: shape of the expected array.
        got_shape: shape of the computed array; when it differs, nothing else was compared.
        expected_dtype: its numpy dtype's name.
        got_dtype: its numpy dtype's name.
        size: number of elements compared, 0 when the shapes differ.
        mismatches: how many elements are not equal (NaN is equal to nothing).
        max_error: MegEngine's error (`assert_equal_error`) computed in float64; NaN when the shapes differ.
        worst_index: position of `max_error` (the first NaN, if there is one), None when no element differs.
        expected: expected value there.
        got: computed value there.
        max_abs: largest ``|expected - got|``.
        max_rel: largest ``|expected - got| / |expected|`` over elements whose expected value is not 0.
        mean_abs: mean of ``|expected - got|``.
        ulp: largest distance in units of the last place, for two float16 or two float32 arrays.
        cosine: cosine of the angle between the arrays as vectors; 1 for two zero vectors, 0 for one.
        snr_db: signal to noise ratio ``10 log10(sum expected^2 / sum (expected - got)^2)``; inf without noise.
        top1: share of rows (along the last axis, of 2 or more real elements) whose largest element stands at the
            same place.
        off_by: largest difference of integer (or bool) arrays, exact.
        expected_nan: number of NaN among the expected values.
        got_nan: number of NaN among the computed values.
        expected_inf: number of infinities among the expected values.
        got_inf: number of infinities among the computed values.
        nonfinite_agree: whether NaN and infinities stand at the same places, infinities with the same sign.
    """

    expected_shape: tuple[int, ...]
    got_shape: tuple[int, ...]
    expected_dtype: str
    got_dtype: str
    size: int = 0
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

    @property
    def same_shape(self) -> bool:
        """Whether the arrays could be compared at all."""
        return self.expected_shape == self.got_shape

    @property
    def equal(self) -> bool:
        """Whether the arrays have one shape and equal elements, with NaN and infinities at the same places."""
        return self.same_shape and self.nonfinite_agree and self.mismatches == self.expected_nan

    def explain(self) -> str:
        """The comparison in a few lines of text.

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
                _formatted("max abs {}", self.max_abs),
                _formatted("max rel {}", self.max_rel),
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
        if self.expected_nan or self.got_nan or self.expected_inf or self.got_inf:
            lines.append(
                f"NaN: expected {self.expected_nan}, got {self.got_nan}; "
                f"infinite: expected {self.expected_inf}, got {self.got_inf}; "
                + ("at the same places" if self.nonfinite_agree else "at different places or of other sign")
            )
        return "\n".join(line for line in lines if line)

    def _first_line(self) -> str:
        if not self.mismatches:
            return f"all {self.size} values are equal" if self.size else "no values to compare"
        verb = "differs" if self.mismatches == 1 else "differ"
        text = f"{self.mismatches} of {self.size} values {verb}; error {self.max_error:.6g}"
        if self.worst_index is not None:
            text += f" at {list(self.worst_index)}: expected {self.expected}, got {self.got}"
        return text


def compare(expect: Array, get: Array) -> Comparison:
    """Compare a computed with an expected array of any numeric dtype.

    Args:
        expect: expected values.
        get: computed values; another shape gives a `Comparison` that says so and nothing more.

    Returns:
        all metrics, gathered in float64 (integer ones exactly).

    Raises:
        TypeError: a dtype that does not hold numbers.

    >>> import numpy as np
    >>> found = compare(np.array([250, 3], "u1"), np.array([3, 3], "u1"))
    >>> found.off_by, found.mismatches, found.worst_index
    (247, 1, (0,))
    """
    expect, get = _numbers(expect, "c"), _numbers(get, "c")
    # Results are kept for a while, so they share names and shapes, which numpy makes anew each time.
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
    t = _Totals(expect, get)
    with np.errstate(all="ignore"):
        for e, g in _chunks(expect, get):
            t.add(e, g)
        top1 = None if paired else _top1(expect, get, t.mismatches == 0)
    at = None if t.at is None else tuple(int(i) for i in np.unravel_index(t.at, expect.shape))
    if at is not None:
        at = at[: whole[0].ndim]
    pairs = t.finite
    return Comparison(
        shape,
        shape,
        e_name,
        g_name,
        size=whole[0].size,
        mismatches=t.mismatches,
        max_error=t.error,
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


@lru_cache(maxsize=64)
def _shared(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape


class _Totals:
    """Sums and maxima over the chunks seen so far."""

    def __init__(self, expect: Array, get: Array) -> None:
        self.seen = 0
        self.finite = 0
        self.mismatches = 0
        self.error = 0.0
        self.at: int | None = None
        self.max_abs = self.max_rel = self.sum_abs = 0.0
        self.ee = self.gg = self.eg = self.noise = 0.0
        kinds = {x.dtype.newbyteorder("=") for x in (expect, get)}
        self.ulp = 0 if kinds in ({np.dtype("f2")}, {np.dtype("f4")}) else None
        self.off_by = 0 if expect.dtype.kind in "iub" and get.dtype.kind in "iub" else None
        self.nan = [0, 0]
        self.inf = [0, 0]
        self.agree = True
        # Fresh temporaries of this size would come from the system each time, which costs more than the arithmetic.
        self.scratch = np.empty((4, min(_CHUNK, expect.size)))
        self.ones = np.ones(self.scratch.shape[1])

    def add(self, e: Array, g: Array) -> None:
        """Take in the next chunk of both arrays (1-d, same length, native dtype)."""
        n = e.size
        self.finite += n
        wrong = int(np.count_nonzero(e != g))
        self.mismatches += wrong
        e64, g64 = self.scratch[0, :n], self.scratch[1, :n]
        np.copyto(e64, e)
        np.copyto(g64, g)
        ee, gg = float(np.dot(e64, e64)), float(np.dot(g64, g64))
        if not math.isfinite(ee + gg):
            self._nonfinite(e, g, e64, g64)
        else:
            self.ee += ee
            self.gg += gg
            if wrong:
                self._differ(e, g, e64, g64, None)
            else:
                self.eg += ee
        self.seen += n

    def _nonfinite(self, e: Array, g: Array, e64: Array, g64: Array) -> None:
        """A chunk that may hold NaN or infinities: count them, then look at the rest."""
        both = np.ones(e.size, bool)
        for i, x in enumerate((e64, g64)):
            finite = np.isfinite(x)
            nan = int(np.count_nonzero(np.isnan(x)))
            self.nan[i] += nan
            self.inf[i] += x.size - nan - int(np.count_nonzero(finite))
            both &= finite
        odd = np.flatnonzero(~both)
        e_odd, g_odd = e64[odd], g64[odd]
        self.agree &= bool(np.array_equal(e_odd, g_odd, equal_nan=True))
        self.finite -= odd.size
        if odd.size:
            self._error(errors(e_odd, g_odd), odd)
        e, g, e64, g64 = e[both], g[both], e64[both], g64[both]
        self.ee += float(np.dot(e64, e64))
        self.gg += float(np.dot(g64, g64))
        if e.size:
            self._differ(e, g, e64, g64, np.flatnonzero(both))

    def _differ(self, e: Array, g: Array, e64: Array, g64: Array, places: Array | None) -> None:
        """Metrics of finite values at these places of the chunk; overwrites the float64 copies."""
        d, ratio = self.scratch[2, : e.size], self.scratch[3, : e.size]
        self.eg += float(np.dot(e64, g64))
        np.subtract(e64, g64, out=d)
        self.noise += float(np.dot(d, d))
        np.abs(d, out=d)
        self.sum_abs += float(d.sum())
        self.max_abs = max(self.max_abs, float(d.max()))
        np.abs(e64, out=e64)
        np.minimum(e64, np.abs(g64, out=g64), out=ratio)
        np.maximum(ratio, self.ones[: e.size], out=ratio)
        self._error(np.divide(d, ratio, out=ratio), places)
        if not e64.min():
            # Expected zeros have no relative error; x / inf is 0.
            e64[e64 == 0] = np.inf
        self.max_rel = max(self.max_rel, float(np.divide(d, e64, out=d).max()))
        if self.ulp is not None:
            self.ulp = max(self.ulp, _ulp(e, g))
        if self.off_by is not None:
            self.off_by = max(self.off_by, _off_by(e, g))

    def _error(self, errors: Array, places: Array | None) -> None:
        """Keep the worst error: NaN over everything, then the largest; the first of equals."""
        first = int(np.argmax(errors))
        error = float(errors[first])
        if error > self.error or (math.isnan(error) and not math.isnan(self.error)):
            self.error, self.at = error, self.seen + (first if places is None else int(places[first]))

    def cosine(self) -> float:
        """Cosine of the angle between the arrays."""
        if not (self.ee and self.gg):
            return 1.0 if self.ee == self.gg else 0.0
        if not self.noise:
            return 1.0
        return max(-1.0, min(1.0, self.eg / (math.sqrt(self.ee) * math.sqrt(self.gg))))

    def snr(self) -> float:
        """Signal to noise ratio in dB."""
        if not self.noise:
            return math.inf
        return 10 * (math.log10(self.ee) - math.log10(self.noise)) if self.ee else -math.inf


def _formatted(form: str, value: float | None) -> str:
    """The filled-in form, empty without a value."""
    return "" if value is None else form.format(value if isinstance(value, int) else f"{value:.6g}")


def _numbers(x: Array, also: str = "") -> Array:
    x = np.asarray(x)
    if x.dtype.kind not in "iubf" + also:
        raise TypeError(f"{x.dtype} values cannot be compared as numbers")
    return x


def _chunks(expect: Array, get: Array) -> Iterator[tuple[Array, Array]]:
    """Pieces of both arrays in C order, as native 1-d arrays; copies only what is not laid out so."""
    if not expect.size:
        return
    if expect.flags.c_contiguous and get.flags.c_contiguous and expect.dtype.isnative and get.dtype.isnative:
        e, g = expect.reshape(-1), get.reshape(-1)
        for i in range(0, e.size, _CHUNK):
            yield e[i : i + _CHUNK], g[i : i + _CHUNK]
        return
    pairs = np.nditer(
        [expect, get],
        ["external_loop", "buffered"],
        [["readonly", "nbo", "aligned"]] * 2,
        order="C",
        buffersize=_CHUNK,
    )
    yield from pairs


def _pairs(x: Array, kind: np.dtype[Any]) -> Array:
    """A complex array as real and imaginary parts along a new last axis."""
    whole = np.ascontiguousarray(x, kind)
    return whole.view(whole.real.dtype).reshape(*x.shape, 2)


def _ulp(e: Array, g: Array) -> int:
    """Largest distance of finite floats of one dtype, counted in representable values."""
    bits = np.dtype(f"i{e.itemsize}")
    i, j = e.view(bits), g.view(bits)
    across = np.flatnonzero((i ^ j) < 0)
    d = np.abs(i - j)
    if not across.size:
        return int(d.max())
    # Of two signs: both magnitudes add up, through zero; the difference of the bits may have wrapped around.
    d[across] = 0
    low = np.iinfo(bits).max
    through = (i[across] & low).astype(np.int64) + (j[across] & low)
    return max(int(d.max()), int(through.max()))


def _off_by(e: Array, g: Array) -> int:
    """Largest difference of integers."""
    if max(e.itemsize, g.itemsize) < 8:
        return int(np.abs(np.subtract(e, g, dtype=np.int64)).max())
    kind = np.result_type(e, g)
    if kind.kind == "f":
        # int64 with uint64: no integer type holds both.
        i = int(np.argmax(np.abs(np.subtract(e, g, dtype=np.float64))))
        return abs(int(e[i]) - int(g[i]))
    e, g = e.astype(kind, copy=False), g.astype(kind, copy=False)
    # Modulo 2^64 the larger minus the smaller is right even where it leaves the signed range.
    return int((np.maximum(e, g).view(np.uint64) - np.minimum(e, g).view(np.uint64)).max())


def _top1(expect: Array, get: Array, equal: bool) -> float | None:
    """Share of rows along the last axis whose largest element stands at the same place."""
    if not expect.size or expect.shape[-1:] in ((), (1,)):
        return None
    if equal:
        return 1.0
    rows = expect.size // expect.shape[-1]
    step = max(1, _CHUNK // expect.shape[-1])
    same = 0
    if expect.flags.c_contiguous and get.flags.c_contiguous:
        e, g = expect.reshape(rows, -1), get.reshape(rows, -1)
        for i in range(0, rows, step):
            part = slice(i, i + step)
            same += int(np.count_nonzero(e[part].argmax(1) == g[part].argmax(1)))
    else:
        same = int(np.count_nonzero(expect.argmax(-1) == get.argmax(-1)))
    return same / rows
