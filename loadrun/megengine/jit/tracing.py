"""Tracing under the name of ``megengine.jit.tracing``."""

from ...tracing import TraceError, exclude_from_trace, is_tracing, trace
from ..absent import absent

__all__ = ["TraceError", "exclude_from_trace", "is_tracing", "trace"]

__getattr__ = absent(__name__)
