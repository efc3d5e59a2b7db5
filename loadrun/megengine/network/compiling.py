"""Between stored graphs and nodes, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ...base.errors import LoadRunError, UsageRuntimeError
from ...engines.reference import ReferenceEngine
from ...graph import Graph, Opr, Var
from ...graph.dtypes import Array
from ...ops.infer import infer_dtypes
from ...ops.numbering import Numbering, loaded
from ...tensors.access import copy_state
from ...testcase import Bundle
from .classes import class_of, node_of
from .editing import SESSION
from .nodes import NodeVar, OpNode, VarNode
from .providers import Host2DeviceCopy, constant_node
from .traversal import get_dep_vars, get_oprs_seq, operators

__all__ = [
    "compute",
    "graph_of",
    "nodes_of",
    "outputs_of",
    "refreshed",
    "replace_inputs",
    "take_over",
    "value_of",
]


def nodes_of(graph: Graph, *, numbered: bool = False, within: object = None) -> list[VarNode]:
    """Return the nodes of a graph's outputs; the others hang on them.

    Args:
        graph: a graph, which stays as it is.
        within: the graph that the nodes belong to (`VarNode.graph`), by default a new one.
        numbered: give operators and variables the numbers and names that they have where MegEngine loads the graph, and
            operands the order of their numbers where it sorts them.
    """
    known: dict[int, VarNode] = {}
    within = within or SESSION.new_graph()
    numbering = _numbers(graph) if numbered else None
    for opr in graph.oprs:
        inputs = [known[v.id] for v in (numbering.inputs(opr) if numbering else opr.inputs)]
        copied = opr.copied([v.variable for v in inputs], opr.id)
        node = node_of(copied)
        node.inputs = inputs
        if numbering:
            node._number, node._title = numbering.oprs[opr.id].id, numbering.oprs[opr.id].name
        for var in opr.outputs:
            fresh = NodeVar(
                var.id, copied, var.index, var.name, var.dtype, var.shape, var.format, var.comp_node
            )
            fresh.described = var.described
            copied.outputs.append(fresh)
            known[var.id] = VarNode.of_variable(fresh, node, SESSION)
            known[var.id]._graph = within
            if numbering:
                known[var.id]._number, known[var.id]._title = numbering.var(var)
        node.outputs = [known[v.id] for v in opr.outputs]
        for v in inputs:
            if node not in v.users:
                v.users.append(node)
        node.refresh()
    return [known[v.id] for v in graph.outputs]


def _numbers(graph: Graph) -> Numbering:
    """Numbers and names where MegEngine loads a graph."""
    # A cast without a name is called by its dtype.
    infer_dtypes([o for o in graph.oprs if not o.tensors])
    return loaded(graph)


def outputs_of(bundle: Bundle, nodes: list[VarNode]) -> list[VarNode]:
    """Return the nodes of a dump's outputs; those of the model alone where the file has testcases.

    MegEngine reads no file with testcases in this way; of a dump with checks and no testcases, checks are outputs.
    """
    if not bundle.is_container:
        return nodes
    by_id = {n.variable.id: n for n in get_dep_vars(nodes)}
    outputs = []
    for name, var in bundle.outputs.items():
        node = by_id[var.id]
        if not isinstance(node.owner, Host2DeviceCopy):
            # Optimization renames variables, checks keep the name.
            node.name = name
        outputs.append(node)
    return outputs


def graph_of(outputs: Sequence[VarNode], like: Graph | None = None, *, names: bool = True) -> Graph:
    """Return the graph that computes some variables, as nodes are now.

    Args:
        outputs: the variables.
        like: the graph whose format the new one has.
        names: whether outputs without a name get the text that stands for one.
    """
    graph = replace(
        like or Graph(), oprs=[], outputs=[], original_ids=[], output_alias=[], metadata=None, content_hash=0
    )
    known: dict[int, Var] = {}
    number = 0
    for node in get_oprs_seq(outputs, False, False):
        node.refresh()
        opr = node.opr
        fresh = opr.copied([known[id(v.variable)] for v in node.inputs], len(graph.oprs))
        fresh.name = node._own_name
        for out in node.outputs:
            old = out.variable
            var = old.copied(number, fresh)
            number += 1
            fresh.outputs.append(var)
            known[id(old)] = var
        _name_provider(fresh)
        graph.oprs.append(fresh)
    for node_var in outputs:
        var = known[id(node_var.variable)]
        if names:
            var.name = node_var.name
        graph.outputs.append(var)
    return graph


def _name_provider(opr: Opr) -> None:
    """Give what an input holds the name of its variable, which is how it is fed."""
    if opr.type == "Host2DeviceCopy":
        opr.tensors[0].name = opr.outputs[0].name


def value_of(node: VarNode) -> Array:
    """Return the value of a variable that depends on no input, in storage form.

    Raises:
        UsageError: it depends on one.
    """
    if node._known is not None:
        return node._known
    opr = node.owner.opr
    if opr.tensors and opr.type != "Host2DeviceCopy":
        return opr.tensors[node.variable.index].value()
    if any(isinstance(o, Host2DeviceCopy) for o in operators([node])):
        raise UsageRuntimeError(
            f"the value of {node.name} depends on the inputs of the graph; GraphInference computes it for given ones"
        )
    return compute([node], {})[0]


def compute(outputs: Sequence[VarNode], feeds: dict[str, Array]) -> list[Array]:
    """Return the values of variables, in storage form, for given inputs."""
    graph = graph_of(outputs, names=False)
    return ReferenceEngine(graph, graph.outputs).run(feeds)


def rank_of(node: VarNode) -> int:
    """Return how many axes a variable has whose shape only data tells: as many as with ones or zeros for inputs.

    Raises:
        UsageError: the graph takes neither.
    """
    inputs = [o for o in operators([node]) if isinstance(o, Host2DeviceCopy)]
    for fill in (np.ones, np.zeros):
        try:
            feeds = {o.name: fill(o.stored.shape or (1,), o.stored.dtype.np) for o in inputs}
            return compute([node], feeds)[0].ndim
        except LoadRunError as e:
            refused = e
    raise UsageRuntimeError(
        f"how many axes {node.name} has depends on the inputs of the graph: {refused}"
    ) from refused


SESSION.constant = constant_node
SESSION.node_class = class_of
SESSION.evaluate = value_of
SESSION.rank_of = rank_of


def replace_inputs(oprs: Iterable[OpNode], old: VarNode, new: VarNode) -> None:
    """Let operators read another variable, but for those that compute it."""
    ahead = {id(o) for o in operators([new])}
    for opr in oprs:
        if id(opr) in ahead or not any(v is old for v in opr.inputs):
            continue
        opr.inputs[:] = [new if v is old else v for v in opr.inputs]
        if opr not in new.users:
            new.users.append(opr)
        if opr in old.users:
            old.users.remove(opr)


def take_over(oprs: Iterable[OpNode], old: VarNode, new: VarNode) -> None:
    """Let a variable be what another one is, and operators that read either read it; but for those that compute it.

    Args:
        oprs: the operators.
        old: the variable that stays. What the other is computed from reads what it was, by a node of its own.
        new: what it becomes.
    """
    readers = [*oprs]
    replace_inputs(readers, old, new)
    copy_state(old, new)
    for opr in readers:
        opr.inputs[:] = [old if v is new else v for v in opr.inputs]


def refreshed(outputs: Iterable[VarNode]) -> None:
    """Bring everything that variables depend on up to date."""
    for opr in get_oprs_seq([*outputs], False, False):
        opr.refresh()
