"""Tracing: from a Python function to a compiled graph and a self-verifying dump."""

from ..errors import TraceError
from .tracing import exclude_from_trace, is_tracing, trace

__all__ = ["TraceError", "exclude_from_trace", "is_tracing", "trace"]
