"""Operators with their parameters as values, named as in ``megengine.core.ops.builtin`` and made from the catalog.

A definition has the parameters that MegEngine's has, in MegEngine's order: those of the operator's records, and those
by which MegEngine spares an input, chooses a device or takes something apart before it makes a graph.
"""

from .config import OperatorNodeConfig
from .definition import OpDef, apply
from .parameters import EnumValue
from .table import DEFINITIONS

__all__ = ["DEFINITIONS", "EnumValue", "OpDef", "OperatorNodeConfig", "apply"]
