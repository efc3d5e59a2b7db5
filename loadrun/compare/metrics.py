"""Metrics of the difference of two arrays, gathered chunk by chunk."""

from __future__ import annotations

import math

import numpy as np

from ..graph.dtypes import Array
from .chunks import CHUNK
from .measure import errors

__all__ = ["Totals", "top1_share"]


class Totals:
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
        if odd.size:
            self._error(errors(e_odd, g_odd), odd)
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
        """Compute the cosine of the angle between the arrays."""
        if not (self.ee and self.gg):
            return 1.0 if self.ee == self.gg else 0.0
        if not self.noise:
            return 1.0
        return max(-1.0, min(1.0, self.eg / (math.sqrt(self.ee) * math.sqrt(self.gg))))

    def snr(self) -> float:
        """Compute the signal to noise ratio in dB."""
        if not self.noise:
            return math.inf
        return 10 * (math.log10(self.ee) - math.log10(self.noise)) if self.ee else -math.inf


def _ulp(e: Array, g: Array) -> int:
    """Return the largest distance of finite floats of one dtype, counted in representable values."""
    bits = np.dtype(f"i{e.itemsize}")
    i, j = e.view(bits), g.view(bits)
    across = np.flatnonzero((i ^ j) < 0)
    d = np.abs(i - j)
    if not across.size:
        return int(d.max())
    # Opposite signs: the magnitudes add up through zero; the difference of the bits may have wrapped.
    d[across] = 0
    low = np.iinfo(bits).max
    through = (i[across] & low).astype(np.int64) + (j[across] & low)
    return max(int(d.max()), int(through.max()))


def _off_by(e: Array, g: Array) -> int:
    """Return the largest difference of integers."""
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


def top1_share(expect: Array, get: Array, equal: bool) -> float | None:
    """Share of rows along the last axis whose largest element stands at the same place."""
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
