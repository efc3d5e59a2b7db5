"""`trace` and `trace_module` where torch has them: in a module ``jit``."""

from .tracing import TracedModule, trace, trace_module

__all__ = ["TracedModule", "trace", "trace_module"]
