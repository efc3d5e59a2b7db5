"""Tracing: from a Python function to a compiled graph and a self-verifying dump."""

from typing import TYPE_CHECKING

from ..base.registry import lazy

if TYPE_CHECKING:
    from ..base.errors import TraceError
    from ..engines.recompute_config import DTRConfig, SublinearMemoryConfig
    from .config import GraphOptimizationConfig
    from .modules import TracedModule, partial_trace, trace_module
    from .traced import Traced, exclude_from_trace, is_tracing, trace

__all__ = [
    "DTRConfig",
    "GraphOptimizationConfig",
    "SublinearMemoryConfig",
    "TraceError",
    "Traced",
    "TracedModule",
    "exclude_from_trace",
    "is_tracing",
    "partial_trace",
    "trace",
    "trace_module",
]

# ONNX models are read under a recorder, which needs none of these.
__getattr__ = lazy(
    __name__,
    {
        **dict.fromkeys(("DTRConfig", "SublinearMemoryConfig"), "..engines.recompute_config"),
        "GraphOptimizationConfig": ".config",
        **dict.fromkeys(("TracedModule", "partial_trace", "trace_module"), ".modules"),
        "TraceError": "..base.errors",
        **dict.fromkeys(("Traced", "exclude_from_trace", "is_tracing", "trace"), ".traced"),
    },
)
