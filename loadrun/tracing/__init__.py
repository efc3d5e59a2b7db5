"""Tracing: from a Python function to a compiled graph and a self-verifying dump."""

from ..base.errors import TraceError
from ..engines.recompute_config import DTRConfig, SublinearMemoryConfig
from .config import GraphOptimizationConfig
from .modules import LoadedModule, TracedModule, load_module, partial_trace, trace_module
from .traced import Traced
from .tracing import exclude_from_trace, is_tracing, trace

__all__ = [
    "DTRConfig",
    "GraphOptimizationConfig",
    "LoadedModule",
    "SublinearMemoryConfig",
    "TraceError",
    "Traced",
    "TracedModule",
    "exclude_from_trace",
    "is_tracing",
    "load_module",
    "partial_trace",
    "trace",
    "trace_module",
]
