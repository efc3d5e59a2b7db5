"""Names that code written for MegEngine takes from its compiled part."""

from ....base.logger import Logger
from ....tensors.device import Device as CompNode
from ...network.graphs import Graph as ComputingGraph
from ...network.graphs import TensorAttr
from ...network.nodes import OpNode as OperatorNode
from ...network.nodes import VarNode
from ...opdefs import OpDef, OperatorNodeConfig
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
