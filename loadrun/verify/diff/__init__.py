"""Where two runs first diverge: matching the variables of two graphs, running both, extracting the operator to blame.

`between` compares a model with another graph, with itself in float64, or with values from elsewhere; what it returns
says which operator went wrong first. `extract` makes a testcase of that operator alone.
"""

from .blaming import SuspectVar
from .changes import ChangedConstant
from .extracting import extract
from .finding import Differences, between
from .matching import Matching, match
from .measuring import TOLERANCE
from .running import Bisected, FileSide, bisect
from .stored import StoredValues, read_values
from .watching import Finding, watch

__all__ = ["TOLERANCE", "Bisected", "ChangedConstant", "Differences", "FileSide", "Finding", "Matching"]
__all__ += ["StoredValues", "SuspectVar", "between", "bisect", "extract", "match", "read_values", "watch"]
