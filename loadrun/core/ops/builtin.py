"""Operators as values, under the name of ``megengine.core.ops.builtin``; their names are those of MegEngine."""

from ...network.opdefs import DEFINITIONS, OpDef

__all__ = ["OpDef"]

globals().update(DEFINITIONS)
