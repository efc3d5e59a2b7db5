"""Benchmarks: timing rules, statistics, and models measured side by side.

`running` knows models; the rest knows numbers alone.
"""

from .timing import Timing, measure, needed

__all__ = ["Timing", "measure", "needed"]
