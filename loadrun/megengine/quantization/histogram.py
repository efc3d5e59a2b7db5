"""Histograms of values, and the range of least rounding error in them (MegEngine's ``HistogramObserver``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.dtypes import Array

_STEP = 1e-5


def _rounding_error(histogram: Array, width: Any, start: int, end: int, levels: int) -> float:
    """Return the squared error of rounding to as many levels, spread over the bins from `start` to `end`.

    Values are taken as spread evenly within their bin; each is rounded to the middle of its level.
    """
    level = width * (end - start + 1) / levels
    if level == 0:
        return 0.0
    begin = (np.arange(len(histogram)) - start) * width
    finish = begin + width
    first = np.clip(np.floor(begin / level), 0, levels - 1)
    last = np.clip(np.floor(finish / level), 0, levels - 1)
    density = histogram / width

    def cubes(a: Any, b: Any) -> Any:
        return (b * b * b - a * a * a) / 3

    from_middle = begin - (first * level + level / 2)
    to_middle = finish - (last * level + level / 2)
    half = level / 2
    several = cubes(from_middle, half) + (last - first - 1) * cubes(-half, half) + cubes(-half, to_middle)
    return float((density * np.where(first == last, cubes(from_middle, to_middle), several)).sum())


def least_error_range(histogram: Array, width: Any, levels: int) -> tuple[int, int]:
    """Return the first bin and the one after the last that a quantized dtype should cover.

    Bins are cut off at the end where fewer values lie, as long as the error gets less.

    Args:
        histogram: counts per bin.
        width: of a bin.
        levels: of the quantized dtype.

    >>> least_error_range(np.r_[np.ones(100), np.zeros(100)], 1.0, 16)
    (0, 99)
    """
    sums = np.cumsum(histogram, axis=0)
    total = float(sums[-1])
    alpha, beta = 0.0, 1.0
    start, end = 0, len(histogram) - 1
    least = np.inf
    while alpha < beta:
        more, less = alpha + _STEP, beta - _STEP
        left = min(max(int(np.searchsorted(sums, more * total, "left")), start), end)
        right = max(min(int(np.searchsorted(sums, less * total, "right")) - 1, end), start)
        new_start, new_end = start, end
        if left - start > end - right:
            new_start, alpha = left, more
        else:
            new_end, beta = right, less
        if (new_start, new_end) == (start, end):
            continue
        error = _rounding_error(histogram, width, new_start, new_end, levels)
        if error > least:
            break
        least, start, end = error, new_start, new_end
    return start, end + 1


def combined(x: Array, histogram: Array, low: Any, high: Any, parts: int) -> tuple[Array, Any, Any]:
    """Return the counts of old and new values together, and the range that they cover.

    Args:
        x: the new values.
        histogram: the old counts; -1 in the first bin if there are none.
        low: where the old range begins.
        high: where it ends.
        parts: into how many a bin is divided to be counted in the new range.
    """
    bins = len(histogram)
    new_low, new_high = x.min(), x.max()
    if histogram[0] == -1:
        return np.histogram(x, bins, (new_low, new_high))[0], new_low, new_high
    new_low, new_high = min(new_low, low), max(new_high, high)
    part = (high - low) / (bins * parts)
    stretch = int(np.ceil((new_high - new_low) / (bins * part)))
    slack = stretch * (bins * part) - (new_high - new_low)
    new_low, new_high = new_low - slack / 2, new_high + slack / 2
    offset = int(np.round((low - new_low) / part))
    counts = np.histogram(x, bins, (new_low, new_high))[0].astype(np.float64)
    if new_low == low and new_high == high:
        return counts + histogram, new_low, new_high
    spread = np.zeros(bins * stretch)
    spread[offset : bins * parts + offset] = histogram.repeat(parts)
    return counts + np.diff(np.cumsum(spread)[stretch - 1 :: stretch], prepend=0) / parts, new_low, new_high
