"""Names that code written for MegEngine takes from its compiled part."""

from ...imperative.device import Device as CompNode
from ...imperative.opdefs import OpDef, OperatorNodeConfig
from ...network.graphs import Graph as ComputingGraph
from ...network.graphs import TensorAttr
from ...network.nodes import OpNode as OperatorNode
from ...network.nodes import VarNode
from . import core2, ops

__all__ = [
    "CompNode",
    "ComputingGraph",
    "OpDef",
    "OperatorNode",
    "OperatorNodeConfig",
    "TensorAttr",
    "VarNode",
    "core2",
    "ops",
]
