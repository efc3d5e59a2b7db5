"""Operators as values, under the name of ``megengine.core._imperative_rt.ops``."""

from ....build.random import global_seed as get_global_rng_seed
from ....build.random import seed as set_global_rng_seed
from ...opdefs import DEFINITIONS, OpDef
from ...opdefs.handles import delete_rng_handle, new_rng_handle
from ...subgraphs import SubgraphBuilder

__all__ = [
    "OpDef",
    "SubgraphBuilder",
    "delete_rng_handle",
    "get_global_rng_seed",
    "jit_supported",
    "new_rng_handle",
    "set_global_rng_seed",
    *DEFINITIONS,
]

jit_supported = False

globals().update(DEFINITIONS)
