"""The session by which graphs grow: what functions of tensors do where one of their inputs is a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base.errors import UsageError, UsageRuntimeError
from ...graph import Opr
from ...graph.dtypes import Array, DType
from ...graph.params import Record
from ...ops.registry import Shape
from ...tensors.access import (
    dtype_of,
    named_device,
    recorded_variable,
    session_of,
    set_device,
    stored,
    tensor_name,
    variable_of,
)
from ...tensors.device import Device
from ...tensors.value import Session, Tensor
from .nodes import NodeVar, OpNode, VarNode, fresh_id

__all__ = ["SESSION", "EditingSession"]


class EditingSession(Session):
    """The session of all edited graphs: it keeps nothing, graphs are what nodes are connected to.

    Attributes:
        constant: makes the node of a constant of a stored value, its dtype and name.
        node_class: gives the class of a registered operator's nodes.
        evaluate: computes the value of a node that depends on no input.
        rank_of: finds the number of axes of a node of unknown shape.
        new_graph: makes a graph for nodes that belong to none yet.
    """

    symbolic_shape = False
    ended = False
    standing = True
    constant: Callable[[Array, DType, str | None], VarNode]
    node_class: Callable[[str], type[OpNode]]
    evaluate: Callable[[VarNode], Array]
    rank_of: Callable[[VarNode], int]
    new_graph: Callable[[], Any]

    def __init__(self) -> None:
        self.sizes: dict[Any, Tensor] = {}

    def apply(
        self,
        type: str,
        params: tuple[Record, ...],
        inputs: Sequence[Tensor],
        n: int,
        output_dtype: DType | None,
        scalar: bool,
    ) -> list[Tensor]:
        """Append an operator to the graph of its inputs."""
        place = _place_of(inputs)
        nodes = [self.node(x) for x in inputs]
        opr = Opr(type, params, [v.variable for v in nodes], output_dtype=output_dtype, id=fresh_id())
        opr.outputs = [NodeVar(fresh_id(), opr, i) for i in range(n)]
        owner = self.node_class(type).load(opr)
        owner.inputs = nodes
        outputs = [
            VarNode.of_variable(v, owner, self, scalar=scalar) for v in opr.outputs if isinstance(v, NodeVar)
        ]
        for node in outputs:
            set_device(node, place)
        owner.outputs = outputs
        owner.refresh()
        for node in nodes:
            if owner not in node.users:
                node.users.append(owner)
        return [*outputs]

    def node(self, tensor: Tensor) -> VarNode:
        """Return the node of a tensor; one with a value becomes a constant."""
        if isinstance(tensor, VarNode):
            return tensor.itself
        var = variable_of(tensor)
        if isinstance(var, NodeVar) and session_of(tensor) is self:
            return var.node
        return self.constant(stored(tensor), dtype_of(tensor), tensor_name(tensor) or None)

    def graph_of(self, node: VarNode) -> Any:
        """Return the graph that a node belongs to: that of the nearest node it is computed from which has one."""
        waiting, seen, graph = [node], {id(node)}, None
        for v in waiting:
            graph = v._graph
            if graph is not None:
                break
            near = [x for x in v.owner.inputs if id(x) not in seen]
            seen.update(map(id, near))
            # The list grows while it is walked.
            waiting.extend(near)
        graph = self.new_graph() if graph is None else graph
        for v in waiting:
            v._graph = v._graph or graph
        return graph

    def joined(self, tensor: Tensor) -> None:
        """Know a tensor; nothing is kept."""

    def value(self, tensor: Tensor) -> Array:
        """Return the value of a node that depends on no input."""
        return self.evaluate(self.node(tensor))

    def shape(self, tensor: Tensor) -> Shape:
        """Return the shape of a node in numbers."""
        assert variable_of(tensor) is not None
        shape = recorded_variable(tensor).shape
        if shape is None:
            shape = recorded_variable(tensor).shape = self.value(tensor).shape
        return shape

    def rank(self, node: VarNode) -> int:
        """Return the number of axes of a node of unknown shape."""
        var = variable_of(node)
        assert isinstance(var, NodeVar)
        if var.rank is None:
            var.rank = self.rank_of(node)
        return var.rank

    def detached(self, tensor: Tensor) -> bool:
        """Return whether sizes are numbers: always, unless ``VarNode.shape`` gives nodes."""
        return True

    def fluid(self, tensor: Tensor) -> bool:
        """Return whether the data may decide how large a tensor is."""
        return recorded_variable(tensor) is not None and recorded_variable(tensor).shape is None

    def chosen(self, key: tuple[Any, ...], choice: bool) -> bool:
        """Return the choice."""
        return choice

    def became(self, tensor: Tensor, kind: str) -> None:
        """Note that a Python number was made of a value, which is a constant here."""

    def measured(self, tensor: Tensor) -> None:
        """Note that a size was taken as a number; nothing is kept."""

    def named(self, tensor: Tensor, name: str) -> None:
        """Name a variable."""
        if variable_of(tensor) is not None:
            recorded_variable(tensor).name = name or None

    def leave(self) -> None:
        """Leave a region out, which graphs that are edited know nothing of.

        Raises:
            UsageError: always.
        """
        raise UsageError("a graph that is edited has no regions to leave out")


def _place_of(inputs: Sequence[Tensor]) -> Device | None:
    """Return the device that variables name.

    Raises:
        UsageError: they name several.
    """
    named = {d for x in inputs if isinstance(x, VarNode) and (d := named_device(x)) is not None}
    if len(named) > 1:
        raise UsageRuntimeError(
            f"inputs of one operator are on one device, found {', '.join(sorted(named))}; var.to(device) brings one "
            "to another"
        )
    return named.pop() if named else None


SESSION = EditingSession()
"""The session that all nodes share."""
