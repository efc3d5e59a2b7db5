"""Operators on float64 arrays, each by its textbook formula: what the float64 engine computes with.

A formula takes the operator's call and its input arrays and gives one array per output, or None if it has none for
the operator's parameters. The float64 engine judges the reference engine, so formulas share no kernel with it: they are
plain sums over taps, rows or neighbours, slow and independent of the kernels. Both use the same dtype and shape
rules and the same code for layouts.
"""

from ...base.registry import Registry
from ..catalog import CATALOG, types
from ..elemwise.formulas import Formula
from ..op import Trait

__all__ = ["FORMULAS", "MOVING"]

FORMULAS: Registry[str, Formula] = Registry(
    "formula", {op.name: f"{__name__}.{op.wide.replace('.', ':')}" for op in CATALOG.values() if op.wide}
)
"""Formulas by operator type."""
MOVING = types(Trait.MOVES)
"""Operators that only move numbers, whose kernels take any dtype."""
