"""Graphs built operator by operator, under the name of ``megengine.core.tensor.megbrain_graph``."""

from ...network.graphs import (
    AttrOutputNode,
    CompGraphLoadResult,
    Graph,
    InputNode,
    OpNode,
    OutputNode,
    TensorAttr,
    ValueOutputNode,
    VarNode,
    apply_normal_varnode,
    deserialize_infer_option,
    dump_graph,
    load_graph,
    optimize_for_inference,
    set_priority_to_id,
)

__all__ = [
    "AttrOutputNode",
    "CompGraphLoadResult",
    "Graph",
    "InputNode",
    "OpNode",
    "OutputNode",
    "TensorAttr",
    "ValueOutputNode",
    "VarNode",
    "apply_normal_varnode",
    "deserialize_infer_option",
    "dump_graph",
    "load_graph",
    "optimize_for_inference",
    "set_priority_to_id",
]
