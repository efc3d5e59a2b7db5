"""Limits on the memory of a single value, and the memory that the values of a run take."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..graph import Opr
from ..graph.dtypes import Array
from .program import root

__all__ = ["MemoryMeter", "keep_heap", "memory_limit"]

_KEPT = 31 << 20
"""Just below the size (32 MiB) from which on the C library of Linux always asks the system for memory."""


def memory_limit() -> int:
    """Return the bytes of physical memory, or 2**62 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**62


def keep_heap() -> None:
    """Make the allocator of the C library on Linux keep what it is given back, for the arrays of later operators.

    It returns free memory above a threshold to the system, and gets it again for the next large array, whose pages are
    then cleared one by one. The threshold follows the largest array that was ever freed, so one is freed here that
    nobody has written to: it costs no memory. Elsewhere this does nothing.
    """
    np.empty(_KEPT, np.uint8)


class MemoryMeter:
    """Counts the bytes of intermediate values that are alive while a graph is executed.

    A value counts from the moment an operator returned it until its memory is really freed, whoever holds it;
    values that share memory count once. What kernels allocate for themselves while they run does not count.

    Args:
        ignore: arrays that are not intermediate values (what is fed), so that views of them do not count.

    Attributes:
        live: bytes alive now.
        peak: the most bytes that were alive right after an operator, its inputs included.
        executions: how many operators were executed.

    Example::

        meter = MemoryMeter()
        ReferenceEngine(graph).run(feeds, memory=meter)
        meter.peak
    """

    def __init__(self, ignore: Iterable[Array] = ()) -> None:
        self.live = 0
        self.peak = 0
        self.executions = 0
        self._ignored: dict[int, object] = {}
        self._held: dict[int, weakref.ref[Any]] = {}
        self.ignore(ignore)

    def ignore(self, arrays: Iterable[Array]) -> None:
        """Leave out these arrays and their views."""
        for array in arrays:
            base = root(array)
            # Kept alive, so that no other array gets the same id.
            self._ignored[id(base)] = base

    def __call__(self, opr: Opr, outputs: Sequence[Array]) -> None:
        """Count an operator's outputs; an engine's observer."""
        self.executions += 1
        for array in outputs:
            base = root(array)
            if isinstance(base, np.ndarray) and id(base) not in self._held and id(base) not in self._ignored:
                self.live += base.nbytes
                freed = partial(_freed, weakref.ref(self), id(base), base.nbytes)
                self._held[id(base)] = weakref.ref(base, freed)
        self.peak = max(self.peak, self.live)


def _freed(meter: weakref.ref[MemoryMeter], key: int, size: int, gone: object) -> None:
    found = meter()
    if found is not None:
        found.live -= size
        found._held.pop(key, None)
