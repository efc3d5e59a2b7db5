"""MegEngine's ``jit``: tracing functions, and what tracing takes."""

from ...tracing import (
    DTRConfig,
    GraphOptimizationConfig,
    SublinearMemoryConfig,
    TraceError,
    exclude_from_trace,
    is_tracing,
    partial_trace,
    trace,
)
from ..absent import absent

__all__ = ["DTRConfig", "GraphOptimizationConfig", "SublinearMemoryConfig", "TraceError"]
__all__ += ["exclude_from_trace", "is_tracing", "partial_trace", "trace"]

__getattr__ = absent(__name__)
