"""Loading, editing and writing dumps, under the name of ``megengine.utils.network``."""

from ..network.filters import NodeFilter, as_oprnode, as_varnode
from ..network.network import Network
from ..network.nodes import set_symbolic_shape

__all__ = ["Network", "NodeFilter", "as_oprnode", "as_varnode", "set_symbolic_shape"]
