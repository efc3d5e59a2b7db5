"""Operators as values, under the name of ``megengine.core._imperative_rt.ops``."""

from ...imperative.opdefs import DEFINITIONS, OpDef
from ...imperative.subgraphs import SubgraphBuilder

__all__ = ["OpDef", "SubgraphBuilder", "jit_supported", *DEFINITIONS]

jit_supported = False

globals().update(DEFINITIONS)
