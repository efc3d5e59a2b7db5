"""Timing rules: warm-up first, raw samples kept, statistics that the number of samples supports."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_SHARE = 0.9
_NEEDED = ((50.0, 1), (90.0, 64), (99.0, 662))
"""Percentiles, and how many samples they take."""


def needed(p: float) -> int:
    """Return how many samples the p-th percentile needs.

    At 99 % confidence 64 samples tell the 90th and 662 the 99th percentile (MLPerf's early stopping).

    >>> needed(50), needed(90), needed(99)
    (1, 64, 662)
    """
    return next((n for limit, n in _NEEDED if p <= limit), 10 * _NEEDED[-1][1])


@dataclass(frozen=True)
class Timing:
    """Times of repeated runs, in seconds.

    Attributes:
        samples: by the clock.
        warmup: runs before these.
        processor: of the processor, of all threads together; empty if unknown.
        testcase: the number of the testcase that was run, None if there is none.

    >>> t = Timing((0.003, 0.001, 0.002))
    >>> t.median, t.best
    (0.002, 0.001)
    """

    samples: tuple[float, ...]
    warmup: int = 0
    processor: tuple[float, ...] = ()
    testcase: int | None = None

    @property
    def share(self) -> float:
        """The part of the time for which the runs had a processor, 1 if that is unknown; more with several threads.

        >>> Timing((1.0, 1.0), processor=(0.9, 0.7)).share
        0.8
        """
        return sum(self.processor) / sum(self.samples) if self.processor and sum(self.samples) else 1.0

    @property
    def cpu(self) -> Timing:
        """The same runs by processor time."""
        return Timing(self.processor, self.warmup, testcase=self.testcase)

    @property
    def disturbed(self) -> bool:
        """Whether runs waited for a processor so long that only its own time tells how long they take."""
        return self.share < _SHARE

    @property
    def median(self) -> float:
        """The middle sample, or the mean of the two middle ones."""
        return _middle(self.samples)

    @property
    def best(self) -> float:
        """The smallest sample."""
        return min(self.samples)

    @property
    def mean(self) -> float:
        """The arithmetic mean."""
        return math.fsum(self.samples) / len(self.samples)

    @property
    def deviation(self) -> float:
        """The median of the absolute distances from the median."""
        middle = self.median
        return _middle([abs(s - middle) for s in self.samples])

    def percentile(self, p: float) -> float | None:
        """Return the p-th percentile (0 < p < 100), or None if the samples are too few (see `needed`)."""
        if len(self.samples) < needed(p):
            return None
        if p == 50:
            return self.median
        ordered = sorted(self.samples)
        return ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))]


def _middle(samples: Sequence[float]) -> float:
    ordered = sorted(samples)
    half, odd = divmod(len(ordered), 2)
    return ordered[half] if odd else (ordered[half - 1] + ordered[half]) / 2


def measure(run: Callable[[], object], iterations: int, warmup: int = 1) -> Timing:
    """Call `run` repeatedly and keep the time of every call.

    Args:
        run: what to time.
        iterations: the number of timed calls.
        warmup: calls before the timing begins.
    """
    for _ in range(warmup):
        run()
    samples: list[float] = []
    processor: list[float] = []
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(iterations):
            used, start = time.process_time_ns(), time.perf_counter_ns()
            run()
            samples.append((time.perf_counter_ns() - start) * 1e-9)
            processor.append((time.process_time_ns() - used) * 1e-9)
    finally:
        if enabled:
            gc.enable()
    return Timing(tuple(samples), warmup, tuple(processor))
