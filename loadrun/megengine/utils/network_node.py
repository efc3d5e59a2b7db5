"""Nodes of an edited graph, under the name of ``megengine.utils.network_node``."""

from ..network.classes import CLASSES, IndexingBase, ReadOnlyOpNode, RNGOpr, str_to_mge_class
from ..network.nodes import NetworkNode, OpNode, VarNode
from ..network.providers import ConstOpBase

__all__ = [
    "ConstOpBase",
    "IndexingBase",
    "NetworkNode",
    "OpNode",
    "RNGOpr",
    "ReadOnlyOpNode",
    "VarNode",
    "str_to_mge_class",
]

globals().update(CLASSES)
