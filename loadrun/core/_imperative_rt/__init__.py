"""Names that code written for MegEngine takes from its compiled part."""

from ...imperative.device import Device as CompNode
from ...imperative.opdefs import OpDef, OperatorNodeConfig
from ...logger import Logger
from ...network.graphs import Graph as ComputingGraph
from ...network.graphs import TensorAttr
from ...network.nodes import OpNode as OperatorNode
from ...network.nodes import VarNode
from . import core2, ops

__all__ = [
    "CompNode",
    "ComputingGraph",
    "Logger",
    "OpDef",
    "OperatorNode",
    "OperatorNodeConfig",
    "TensorAttr",
    "VarNode",
    "core2",
    "ops",
]
