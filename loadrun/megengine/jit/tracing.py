"""Tracing under the name of ``megengine.jit.tracing``."""

from ...tracing import TraceError, exclude_from_trace, is_tracing, trace
from ..core._trace_option import set_symbolic_shape

__all__ = ["TraceError", "exclude_from_trace", "is_tracing", "set_symbolic_shape", "trace"]
