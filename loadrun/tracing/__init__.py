"""Tracing: from a Python function to a compiled graph and a self-verifying dump."""

from ..base.registry import exported

# ONNX models are read under a recorder, which needs none of these.
with exported(__name__) as _exported:
    from ..base.errors import TraceError as TraceError
    from ..engines.recompute import (
        DTRConfig as DTRConfig,
        SublinearMemoryConfig as SublinearMemoryConfig,
    )
    from .config import GraphOptimizationConfig as GraphOptimizationConfig
    from .modules import (
        TracedModule as TracedModule,
        partial_trace as partial_trace,
        trace_module as trace_module,
    )
    from .traced import (
        Traced as Traced,
        exclude_from_trace as exclude_from_trace,
        is_tracing as is_tracing,
        trace as trace,
    )

__getattr__ = _exported.find
