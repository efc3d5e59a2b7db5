"""Looking into graphs and running them, under the name of ``megengine.utils.comp_graph_tools``."""

from ..network.inference import (
    GraphInference,
    convert_inputs,
    convert_outputs,
    embed_inputs,
    replace_oprs,
    replace_vars,
)
from ..network.network import find_vars_by_name
from ..network.traversal import (
    get_dep_vars,
    get_opr_type,
    get_oprs_seq,
    get_owner_opr_inputs,
    get_owner_opr_type,
    graph_traversal,
    set_priority_to_id,
)

__all__ = [
    "GraphInference",
    "convert_inputs",
    "convert_outputs",
    "embed_inputs",
    "find_vars_by_name",
    "get_dep_vars",
    "get_opr_type",
    "get_oprs_seq",
    "get_owner_opr_inputs",
    "get_owner_opr_type",
    "graph_traversal",
    "replace_oprs",
    "replace_vars",
    "set_priority_to_id",
]
