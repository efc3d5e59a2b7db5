"""Operators as values, under the name of ``megengine.core.ops.builtin``; their names are those of MegEngine."""

from ...opdefs import DEFINITIONS, OpDef

__all__ = ["OpDef", *DEFINITIONS]

globals().update(DEFINITIONS)
