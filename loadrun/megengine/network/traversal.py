"""Walking an edited graph: what variables depend on, operators in an order in which they can run.

Source of semantics: MegEngine ``utils/comp_graph_tools.py``.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from ...base.errors import UsageAssertionError, UsageError
from .nodes import OpNode, VarNode
from .providers import ConstOpBase, Host2DeviceCopy

__all__ = [
    "get_dep_vars",
    "get_opr_type",
    "get_oprs_seq",
    "get_owner_opr_inputs",
    "get_owner_opr_type",
    "graph_traversal",
    "set_priority_to_id",
]

_PROVIDERS = (ConstOpBase, Host2DeviceCopy)


def listed(outputs: VarNode | Iterable[VarNode]) -> list[VarNode]:
    """Return variables as a list, which one alone may stand for."""
    return [outputs] if isinstance(outputs, VarNode) else list(outputs)


def get_dep_vars(
    var: VarNode | Iterable[VarNode], var_type: str | Sequence[str] | None = None
) -> list[VarNode]:
    """Return the variables that some depend on, themselves included, nearest first.

    Args:
        var: one variable or several.
        var_type: names of classes of operators, as `get_opr_type` gives them; only their outputs are returned.
    """
    kinds = (var_type,) if isinstance(var_type, str) else var_type
    waiting, seen, variables = listed(var), set[int](), []
    for v in waiting:
        if id(v) in seen:
            continue
        seen.add(id(v))
        if kinds is None or get_owner_opr_type(v) in kinds:
            variables.append(v)
        # The list grows while it is walked.
        waiting.extend(v.owner.inputs)
    return variables


def get_owner_opr_inputs(var: VarNode) -> list[VarNode]:
    """Return the inputs of the operator that computes a variable."""
    return var.owner.inputs


def get_owner_opr_type(var: VarNode) -> str:
    """Return the class of the operator that computes a variable."""
    return var.owner.class_name


def get_opr_type(opr: OpNode) -> str:
    """Return the name of MegEngine's class of an operator.

    Raises:
        UsageError: it is not an operator.
    """
    if not isinstance(opr, OpNode):
        raise UsageAssertionError(f"expected an operator of a graph, found {type(opr).__name__}")
    return opr.class_name


def operators(outputs: Iterable[VarNode]) -> list[OpNode]:
    """Return the operators that variables depend on, those that compute them first."""
    waiting = [v.owner for v in outputs]
    seen, oprs = set[int](), []
    for opr in waiting:
        if id(opr) in seen:
            continue
        seen.add(id(opr))
        oprs.append(opr)
        waiting.extend(v.owner for v in opr.inputs)
    return oprs


def graph_traversal(outputs: VarNode | Iterable[VarNode]) -> tuple[Any, ...]:
    """Return how operators and variables are connected.

    Args:
        outputs: the outputs of the graph.

    Returns:
        operators by their number; variables by theirs; by variable, pairs of an operator that reads it and the place of
        the input; by operator, the operators that read it; by number of inputs not computed yet, the operators; that
        number by operator.
    """
    map_oprs: dict[int, OpNode] = {}
    map_vars: dict[int, VarNode] = {}
    var2oprs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    opr2receivers: dict[int, list[int]] = defaultdict(list)
    indegree2opr: dict[int, set[int]] = defaultdict(set)
    opr2indegree: dict[int, int] = {}
    for opr in operators(listed(outputs)):
        map_oprs[opr.id] = opr
        for place, var in enumerate(opr.inputs):
            map_vars[var.id] = var
            var2oprs[var.id].append((opr.id, place))
            opr2receivers[var.owner.id].append(opr.id)
        indegree2opr[len(opr.inputs)].add(opr.id)
        opr2indegree[opr.id] = len(opr.inputs)
    return map_oprs, map_vars, var2oprs, opr2receivers, indegree2opr, opr2indegree


def get_oprs_seq(
    outputs: VarNode | Iterable[VarNode], prune_reshape: bool = False, prune_immtensor: bool = True
) -> list[OpNode]:
    """Return the operators of a graph in an order in which they can run, constants and inputs before a reader.

    Args:
        outputs: the outputs of the graph.
        prune_reshape: leave out what only computes the shapes that Reshape takes.
        prune_immtensor: leave out constants.

    Raises:
        UsageError: operators that depend on themselves.
    """
    outputs = listed(outputs)
    oprs = _near_readers(_sorted(operators(outputs)))
    if prune_reshape:
        useless = _shape_arithmetic(oprs, outputs)
        oprs = [o for o in oprs if id(o) not in useless]
    return [o for o in oprs if not (prune_immtensor and isinstance(o, ConstOpBase))]


def _sorted(oprs: list[OpNode]) -> list[OpNode]:
    """Return operators, inputs before readers; of several that could be next, the one of least priority."""
    missing = {id(o): len(o.inputs) for o in oprs}
    readers: dict[int, list[OpNode]] = defaultdict(list)
    for opr in oprs:
        for var in opr.inputs:
            readers[id(var.owner)].append(opr)
    ready = [(o.priority, i, o) for i, o in enumerate(oprs) if not o.inputs]
    heapq.heapify(ready)
    place = len(oprs)
    order = []
    while ready:
        opr = heapq.heappop(ready)[2]
        order.append(opr)
        for reader in readers[id(opr)]:
            missing[id(reader)] -= 1
            if not missing[id(reader)]:
                heapq.heappush(ready, (reader.priority, place, reader))
                place += 1
    if len(order) < len(oprs):
        raise UsageError(f"{len(oprs) - len(order)} operators depend on themselves")
    return order


def _near_readers(oprs: list[OpNode]) -> list[OpNode]:
    """Return operators with constants and inputs right before the first that reads them."""
    placed, order = set[int](), []

    def place(opr: OpNode) -> None:
        if id(opr) not in placed:
            placed.add(id(opr))
            order.append(opr)

    for opr in oprs:
        if isinstance(opr, _PROVIDERS):
            continue
        for var in opr.inputs:
            if isinstance(var.owner, _PROVIDERS):
                place(var.owner)
        place(opr)
    for opr in oprs:
        place(opr)
    return order


def _shape_arithmetic(oprs: list[OpNode], outputs: list[VarNode]) -> set[int]:
    """Return the operators that nothing needs but Reshape's target shapes."""
    readers: dict[int, int] = defaultdict(int)
    for opr in oprs:
        for place, var in enumerate(opr.inputs):
            if not (opr.class_name == "Reshape" and place == 1):
                readers[id(var.owner)] += 1
    kept = {id(v.owner) for v in outputs}
    shapes = [o.inputs[1].owner for o in oprs if o.class_name == "Reshape" and len(o.inputs) > 1]
    useless: set[int] = set()
    waiting = [o for o in shapes if not readers[id(o)] and id(o) not in kept]
    while waiting:
        opr = waiting.pop()
        if id(opr) in useless:
            continue
        useless.add(id(opr))
        for var in opr.inputs:
            readers[id(var.owner)] -= 1
            if not readers[id(var.owner)] and id(var.owner) not in kept:
                waiting.append(var.owner)
    return useless


def set_priority_to_id(dest_vars: VarNode | Iterable[VarNode]) -> None:
    """Give operators without a priority that of their number, so that they run in the order in which they were made."""
    for opr in operators(listed(dest_vars)):
        if not opr.opr.priority:
            opr.opr.priority = opr.opr.id
