"""Comparing an expected with a computed array: MegEngine's error measure and the metrics beside it.

Nothing here knows of files, graphs or thresholds: a `Comparison` holds numbers, `passes` is the one predicate.
Arrays are walked in chunks, so that the memory needed does not grow with them.
"""

from .comparison import Comparison, Number, compare
from .metrics import assert_equal_error, errors, passes

__all__ = ["Comparison", "Number", "assert_equal_error", "compare", "errors", "passes"]
