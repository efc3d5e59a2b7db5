"""Times of repeated calls: by the clock, and of the processor, all threads together."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["timed"]


def timed(call: Callable[[], object], iterations: int, warmup: int) -> dict[str, list[float]]:
    """Seconds of every call after the first ones."""
    found: dict[str, list[float]] = {"samples": [], "processor": []}
    for i in range(warmup + iterations):
        wall, processor = time.perf_counter(), time.process_time()
        call()
        if i >= warmup:
            found["processor"].append(time.process_time() - processor)
            found["samples"].append(time.perf_counter() - wall)
    return found
