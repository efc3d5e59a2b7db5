"""Names that code written for MegEngine takes from its compiled part."""

from collections.abc import Sequence
from typing import Any

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
    "make_h2d",
    "ops",
]


def make_h2d(
    graph: ComputingGraph,
    device: object,
    dtype: Any,
    shape: Sequence[int] | None = None,
    name: str | None = None,
) -> VarNode:
    """Return the variable of an input of a graph; see `ComputingGraph.make_h2d`."""
    return graph.make_h2d(dtype=dtype, device=device, shape=shape, name=name)
