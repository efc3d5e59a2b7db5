"""Operators as values, under the name of ``megengine.core._imperative_rt.ops``."""

from ...network.opdefs import DEFINITIONS, OpDef

__all__ = ["OpDef"]

globals().update(DEFINITIONS)
