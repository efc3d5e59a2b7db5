"""Operators as values, under the name of ``megengine.core._imperative_rt.ops``."""

from ...imperative.opdefs import DEFINITIONS, OpDef
from ...imperative.subgraphs import SubgraphBuilder
from ...random import seed as set_global_rng_seed

__all__ = ["OpDef", "SubgraphBuilder", "jit_supported", "set_global_rng_seed", *DEFINITIONS]

jit_supported = False

globals().update(DEFINITIONS)
