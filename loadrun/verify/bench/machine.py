"""The state of the machine while something is timed: whether it is busy with other things, whether its clock drifts."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from statistics import median

from .timing import Timing

__all__ = ["MachineMonitor", "drift"]

_BUSY = 0.5
_DRIFT = 0.05
_LOOP = 20_000
_LEAST = 9
_EVERY = 0.1


def drift(samples: Sequence[float]) -> float | None:
    """How much slower the last third of equal pieces of work was than the first, None when there are too few.

    >>> drift([1.0] * 6 + [1.2] * 3)
    0.2
    """
    if len(samples) < _LEAST:
        return None
    third = len(samples) // 3
    return round(median(samples[-third:]) / median(samples[:third]) - 1, 12)


class MachineMonitor:
    """Watches the machine through a benchmark.

    Attributes:
        load: processes that wanted a processor in the minute before, None if the system does not tell.
        pieces: seconds of processor time of equal pieces of work, done from time to time.
    """

    def __init__(self, processors: int) -> None:
        self.processors = processors
        self.load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        self.pieces: list[float] = []
        self._last = 0.0

    def sample(self) -> None:
        """Do a piece of work, if the last one was some time ago."""
        now = time.perf_counter()
        if self.pieces and now - self._last < _EVERY:
            return
        self._last = now
        start = time.process_time_ns()
        total = 0
        for i in range(_LOOP):
            total += i
        self.pieces.append((time.process_time_ns() - start) * 1e-9)

    def warnings(self, timings: Sequence[Timing]) -> list[str]:
        """Return what makes the times of some subjects doubtful."""
        doubts = []
        if self.load is not None and self.load > _BUSY * self.processors:
            doubts.append(
                f"the machine was busy before: {self.load:.1f} processes for {self.processors} processors"
            )
        if any(t.disturbed for t in timings):
            got = min(t.share for t in timings)
            doubts.append(f"the machine was busy during the runs: they got {got:.0%} of a processor")
        changed = drift(self.pieces)
        if changed is not None and abs(changed) > _DRIFT:
            word = "slower" if changed > 0 else "faster"
            doubts.append(f"the clock drifted: equal work was {abs(changed):.0%} {word} at the end")
        return doubts
