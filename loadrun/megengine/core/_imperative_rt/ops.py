"""Operators as values, under the name of ``megengine.core._imperative_rt.ops``."""

from ....build.random import seed as set_global_rng_seed
from ...opdefs import DEFINITIONS, OpDef
from ...subgraphs import SubgraphBuilder

__all__ = ["OpDef", "SubgraphBuilder", "jit_supported", "set_global_rng_seed", *DEFINITIONS]

jit_supported = False

globals().update(DEFINITIONS)
