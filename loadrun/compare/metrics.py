"""Metrics of the difference of two arrays, gathered chunk by chunk: MegEngine's error measure and those beside it."""

import math
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np

from ..graph.dtypes import HELD_AS_FLOAT32, Array, DType

CHUNK = 1 << 15
"""Elements per chunk, whose float64 temporaries stay in the processor's cache."""


def as_numbers(x: Array, also: str = "") -> Array:
    """Return an array whose dtype has one of these kinds of numbers, or one of `also`.

    Raises:
        TypeError: another dtype.
    """
    x = np.asarray(x)
    if x.dtype.kind not in "iubf" + also:
        raise TypeError(f"{x.dtype} values cannot be compared as numbers")
    return x


def chunks(expect: Array, get: Array) -> Iterator[tuple[Array, Array]]:
    """Yield chunks of both arrays in C order as native 1-d arrays, copied only if necessary."""
    if not expect.size:
        return
    if expect.flags.c_contiguous and get.flags.c_contiguous and expect.dtype.isnative and get.dtype.isnative:
        e, g = expect.reshape(-1), get.reshape(-1)
        for i in range(0, e.size, CHUNK):
            yield e[i : i + CHUNK], g[i : i + CHUNK]
        return
    pairs = np.nditer(
        [expect, get],
        ["external_loop", "buffered"],
        [["readonly", "nbo", "aligned"]] * 2,
        order="C",
        buffersize=CHUNK,
    )
    yield from pairs


def passes(error: float, maxerr: float) -> bool:
    """Return whether an error is within a tolerance; NaN on either side never is.

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
    """Compute MegEngine's error of two arrays of one shape, which its AssertEqual compares with ``maxerr``.

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
    expect, get = as_numbers(expect), as_numbers(get)
    if expect.shape != get.shape:
        raise ValueError(f"shapes differ: expected {list(expect.shape)}, got {list(get.shape)}")
    exact = "f" not in expect.dtype.kind + get.dtype.kind
    worst = np.float32(0)
    with np.errstate(all="ignore"):
        for e, g in chunks(expect, get):
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


class Measures(NamedTuple):
    """Measures of two arrays beside MegEngine's error; None where one does not apply.

    Attributes:
        max_abs: largest ``|expected - got|``.
        max_rel: largest ``|expected - got| / |expected|`` over elements whose expected value is not 0.
        mean_abs: mean of ``|expected - got|``.
        ulp: largest distance in units of the last place of the data type, for float16, bfloat16 and float32.
        cosine: cosine of the angle between the arrays as vectors; 1 for two zero vectors, 0 for one.
        snr_db: signal to noise ratio ``10 log10(sum expected^2 / sum (expected - got)^2)``; inf without noise.
        top1: share of rows (along the last axis, of 2 or more real elements) whose largest element is at the
            same place.
        off_by: largest difference of integer (or bool) arrays, exact.
    """

    max_abs: float | None = None
    max_rel: float | None = None
    mean_abs: float | None = None
    ulp: int | None = None
    cosine: float | None = None
    snr_db: float | None = None
    top1: float | None = None
    off_by: int | None = None


class Totals:
    """Sums and maxima over the chunks seen so far."""

    def __init__(self, expect: Array, get: Array, dtype: DType | None = None) -> None:
        self.seen = 0
        self.finite = 0
        self.mismatches = 0
        self.worst = 0.0
        self.at: int | None = None
        self.same_infinities = False
        self.max_abs = self.max_rel = self.sum_abs = 0.0
        self.ee = self.gg = self.eg = self.noise = 0.0
        kinds = {x.dtype.newbyteorder("=") for x in (expect, get)}
        # Other floats of few bits have no place of their own in float32.
        counted = dtype is None or dtype.name not in HELD_AS_FLOAT32 or dtype.name == "BFloat16"
        self.ulp = 0 if counted and kinds in ({np.dtype("f2")}, {np.dtype("f4")}) else None
        self.shift = 16 if dtype is not None and dtype.name == "BFloat16" else 0
        self.off_by = 0 if expect.dtype.kind in "iub" and get.dtype.kind in "iub" else None
        self.nan = [0, 0]
        self.inf = [0, 0]
        self.agree = True
        # Allocating temporaries of this size each time would cost more than the arithmetic.
        self.scratch = np.empty((4, min(CHUNK, expect.size)))
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
        """Measure a chunk that may hold NaN or infinities: count them, then look at the rest."""
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
        apart = e_odd != g_odd
        self.same_infinities |= not apart.all()
        if apart.any():
            self._error(errors(e_odd, g_odd)[apart], odd[apart])
        e, g, e64, g64 = e[both], g[both], e64[both], g64[both]
        self.ee += float(np.dot(e64, e64))
        self.gg += float(np.dot(g64, g64))
        if e.size:
            self._differ(e, g, e64, g64, np.flatnonzero(both))

    def _differ(self, e: Array, g: Array, e64: Array, g64: Array, places: Array | None) -> None:
        """Measure finite values at these places of the chunk; overwrites the float64 copies."""
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
            self.ulp = max(self.ulp, _ulp(e, g, self.shift))
        if self.off_by is not None:
            self.off_by = max(self.off_by, _off_by(e, g))

    def _error(self, errors: Array, places: Array | None) -> None:
        """Keep the worst error of values that differ: NaN first, then the largest; of equal ones the first."""
        first = int(np.argmax(errors))
        error = float(errors[first])
        if error > self.worst or (math.isnan(error) and not math.isnan(self.worst)):
            self.worst, self.at = error, self.seen + (first if places is None else int(places[first]))

    def error(self) -> float:
        """Return MegEngine's error: the worst one, NaN also where both values are the same infinity."""
        return math.nan if self.same_infinities else self.worst

    def measures(self, top1: float | None) -> Measures:
        """Return the measures of what was finite."""
        if not self.finite:
            return Measures(top1=top1)
        mean = self.sum_abs / self.finite
        cosine, snr = self._cosine(), self._snr()
        return Measures(self.max_abs, self.max_rel, mean, self.ulp, cosine, snr, top1, self.off_by)

    def _cosine(self) -> float:
        """Compute the cosine of the angle between the arrays."""
        if not (self.ee and self.gg):
            return 1.0 if self.ee == self.gg else 0.0
        if not self.noise:
            return 1.0
        return max(-1.0, min(1.0, self.eg / (math.sqrt(self.ee) * math.sqrt(self.gg))))

    def _snr(self) -> float:
        """Compute the signal to noise ratio in dB."""
        if not self.noise:
            return math.inf
        return 10 * (math.log10(self.ee) - math.log10(self.noise)) if self.ee else -math.inf


def _ulp(e: Array, g: Array, shift: int) -> int:
    """Return the largest distance of finite floats of one dtype, counted in representable values.

    Args:
        e, g: the floats.
        shift: how many of their last bits the dtype does not have, 16 for bfloat16 that is held as float32.
    """
    bits = np.dtype(f"i{e.itemsize}")
    i, j = e.view(bits), g.view(bits)
    across = np.flatnonzero((i ^ j) < 0)
    d = np.abs(i - j)
    if not across.size:
        return int(d.max()) >> shift
    # Opposite signs: the magnitudes add up through zero; the difference of the bits may have wrapped.
    d[across] = 0
    low = np.iinfo(bits).max
    through = (i[across] & low).astype(np.int64) + (j[across] & low)
    return max(int(d.max()), int(through.max())) >> shift


def _off_by(e: Array, g: Array) -> int:
    """Return the largest difference of integers."""
    if max(e.itemsize, g.itemsize) < 8:
        return int(np.abs(np.subtract(e, g, dtype=np.int64)).max())
    kind = np.result_type(e, g)
    if kind.kind == "f":
        # int64 and uint64 have no common integer type.
        i = int(np.argmax(np.abs(np.subtract(e, g, dtype=np.float64))))
        return abs(int(e[i]) - int(g[i]))
    e, g = e.astype(kind, copy=False), g.astype(kind, copy=False)
    # Modulo 2^64 the larger minus the smaller is right even where it leaves the signed range.
    return int((np.maximum(e, g).view(np.uint64) - np.minimum(e, g).view(np.uint64)).max())


def top1_share(expect: Array, get: Array, equal: bool) -> float | None:
    """Share of rows along the last axis whose largest element is at the same place."""
    if not expect.size or expect.shape[-1:] in ((), (1,)):
        return None
    if equal:
        return 1.0
    rows = expect.size // expect.shape[-1]
    step = max(1, CHUNK // expect.shape[-1])
    same = 0
    if expect.flags.c_contiguous and get.flags.c_contiguous:
        e, g = expect.reshape(rows, -1), get.reshape(rows, -1)
        for i in range(0, rows, step):
            part = slice(i, i + step)
            same += int(np.count_nonzero(e[part].argmax(1) == g[part].argmax(1)))
    else:
        same = int(np.count_nonzero(expect.argmax(-1) == get.argmax(-1)))
    return same / rows


class Formula(Enum):
    """The formula by which a check computes its error.

    - REAL: MegEngine's formula in float32 (or in numbers that it converts to).
    - INTEGER: the same with FLOOR_DIV, which MegEngine writes for integers: every error below 100 % is 0, and small
      integers wrap around.
    - NARROW: the same in float16, whose rounding is part of the verdict.
    - OTHER: anything else.
    """

    REAL = "real"
    INTEGER = "integer"
    NARROW = "narrow"
    OTHER = "other"
