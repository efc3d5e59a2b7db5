"""Switch: shapes are values of the graph, under the name of ``megengine.core._trace_option``."""

from ...tensors.switches import set_symbolic_shape
from ...tensors.switches import symbolic_shape as use_symbolic_shape

__all__ = ["set_symbolic_shape", "use_symbolic_shape"]
