"""Nodes: a graph as users edit it, variables that compute with Python's operators and operators with lists.

A `VarNode` is a Tensor, so that ``F.add(var, 1)`` and ``var * 2`` append operators; an `OpNode` has lists of inputs and
outputs and a dict of parameters that may be changed. Nodes are what counts while a graph is edited; `Opr` and `Var`
beneath them are brought up to date by `OpNode.refresh` and copied when a graph is built from them.

Source of semantics: MegEngine ``utils/network_node.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

from ...base.errors import UnsupportedError, UsageError, UsageRuntimeError
from ...graph import Opr, Var
from ...graph.dtypes import Array, DType
from ...graph.params import AxisDesc, OptionalAxisV1, Record
from ...ops.catalog import CATALOG
from ...ops.infer import Inference, follow, infer_dtypes
from ...tensors.apply import apply1
from ...tensors.device import Device
from ...tensors.dtypes import graph_dtype
from ...tensors.switches import set_symbolic_shape, symbolic_shape
from ...tensors.value import Session, Tensor
from ...tracing.recording import plain_title
from .indexing import part_of_unknown
from .parameters import in_field_type, readable

__all__ = [
    "NetworkNode",
    "NodeVar",
    "OpNode",
    "VarNode",
    "fresh_id",
    "infer",
    "set_symbolic_shape",
]

_ids = itertools.count(1 << 20)


def fresh_id() -> int:
    """Return a number that no other node has; those of loaded graphs are smaller."""
    return next(_ids)


class NodeVar(Var):
    """A variable that knows its node, and how many axes it has where the shape is not known."""

    node: VarNode
    rank: int | None = None


class NetworkNode:
    """Base of the variables and operators of an edited graph."""


class VarNode(NetworkNode, Tensor):
    """A variable of an edited graph: a Tensor without a value, by which graphs grow.

    Functions of ``megengine.functional`` and Python's operators take it and give further nodes. A node is compared by
    identity where it is a key, and is false as a truth value.

    Attributes:
        owner: the operator that computes it.
        users: the operators that read it.
    """

    _owner: OpNode
    _users: list[OpNode]
    _number: int | None
    _title: str | None
    _known: Array | None
    _graph: Any

    def __new__(cls, var: Any = None, *, owner_opr: OpNode | None = None, name: str | None = None) -> VarNode:
        """Return the node that is given, as MegEngine's two layers are one here; others are made by graphs."""
        if var is None:
            return super().__new__(cls)
        if not isinstance(var, VarNode):
            raise UsageError(
                f"a node stands for a variable of a graph, found {type(var).__name__}; "
                "Network.make_const and make_input_node make new ones"
            )
        return var

    def __init__(self, var: VarNode, *, owner_opr: OpNode | None = None, name: str | None = None) -> None:
        if name:
            self.name = name

    @classmethod
    def of_variable(cls, var: NodeVar, owner: OpNode, session: Session, *, scalar: bool = False) -> VarNode:
        """Return the node of a variable."""
        node = cls._of(None, var.dtype or DType("Float32"), scalar)
        node._var, node._session, node._owner = var, session, owner
        node._users, node._number, node._title, node._known = [], None, None, None
        node._graph = None
        var.node = node
        return node

    @property
    def variable(self) -> Var:
        """The variable beneath."""
        assert self._var is not None
        return self._var

    @property
    def var(self) -> VarNode:
        """The node itself: what MegEngine keeps in two layers is one here."""
        return self

    _node = var

    @property
    def op(self) -> OpNode:
        """The operator that computes it."""
        return self._owner

    @property
    def owner(self) -> OpNode:
        """The operator that computes it."""
        return self._owner

    @property
    def users(self) -> list[OpNode]:
        """The operators that read it."""
        return self._users

    @property
    def id(self) -> int:
        """A number that no other node of the same graph has."""
        return id(self) if self._number is None else self._number

    @property
    def name(self) -> str:
        """The name; without one, a text made of the operator's."""
        own = self.variable.name or self._title
        if own:
            return own
        base = self._owner.name
        return base if len(self._owner.outputs) < 2 else f"{base}:o{self.variable.index}"

    @name.setter
    def name(self, value: str | None) -> None:
        self.variable.name = value or None

    @property
    def shape(self) -> Any:
        """The inferred shape, None if it is not known; with `set_symbolic_shape` the node that computes it."""
        if symbolic_shape():
            return self._shape_node()
        return self.variable.shape

    @property
    def size(self) -> int:
        """How many elements the value has.

        Raises:
            UsageError: the shape depends on the inputs of the graph.
        """
        self._need_shape("size")
        return super().size

    def __len__(self) -> int:
        self._need_shape("length")
        return super().__len__()

    def _need_shape(self, what: str) -> None:
        if self.shape is None:
            raise UsageRuntimeError(
                f"the {what} of {self.name} is not known: its shape depends on the values of the graph's inputs; "
                "shapeof(axis) gives the node that computes a size"
            )

    def _shape_entries(self) -> tuple[Any, ...]:
        if self.shape is None:
            return tuple(self.shapeof(axis) for axis in range(self.ndim))
        return super()._shape_entries()

    @property
    def partial_shape(self) -> tuple[int, ...]:
        """The inferred shape in numbers."""
        return self._sizes()

    def shapeof(self, axis: int) -> Tensor:
        """Return the node that computes the size of one axis."""
        return self._shape_node(axis)

    def _shape_node(self, axis: int | None = None) -> Tensor:
        param = OptionalAxisV1() if axis is None else OptionalAxisV1(axis=axis)
        return apply1("GetVarShapeV1", param, inputs=[self], scalar=False)

    @property
    def comp_node(self) -> Device:
        """The device."""
        return self.device

    @property
    def graph(self) -> Any:
        """The graph that runs it (``core.tensor.megbrain_graph.Graph``): that of what it is computed from."""
        assert self._session is not None
        return self._session.graph_of(self)  # type: ignore[attr-defined]

    def _ndim(self) -> int:
        if not self._scalar and self.variable.shape is None:
            return self._session.rank(self)  # type: ignore[union-attr]
        return super()._ndim()

    def _frozen(self) -> VarNode:
        """Return a node for what this one stands for now; graphs know the variable by `itself`."""
        view = type(self)._of(None, self._dtype, self._scalar)
        view._var, view._session, view._format = self._var, self._session, self._format
        view._owner, view._users, view._place = self._owner, self._users, self._place
        view._number, view._title = self._number, self._title
        view._known, view._graph = self._known, self._graph
        return view

    @property
    def itself(self) -> VarNode:
        """The node by which graphs know the variable."""
        var = self.variable
        return var.node if isinstance(var, NodeVar) else self

    def __getitem__(self, index: Any) -> Any:
        if self.variable.shape is None:
            return part_of_unknown(self, index)
        return super().__getitem__(index)

    def _copy_state(self, other: Tensor) -> None:
        """Stand for another variable; what read the old one keeps reading it, by a node of its own."""
        if not isinstance(other, VarNode):
            # A value becomes a constant of the graph.
            other = self._session.node(other)  # type: ignore[union-attr]
        assert isinstance(other, VarNode)
        old = self.variable
        if isinstance(old, NodeVar) and old.node is self and other is not self:
            stand_in = VarNode.of_variable(old, self._owner, self._session, scalar=self._scalar)  # type: ignore[arg-type]
            stand_in._users = self._users
            self._owner.outputs[old.index] = stand_in
            for user in self._users:
                user.inputs[:] = [stand_in if v is self else v for v in user.inputs]
        self._var, self._owner, self._users = other._var, other._owner, other._users
        self._dtype, self._scalar, self._known = other._dtype, other._scalar, other._known
        self._session = other._session
        new = self.variable
        if isinstance(new, NodeVar):
            self._owner.outputs[new.index] = self
            new.node = self

    def __bool__(self) -> bool:
        return False

    __index__ = None  # type: ignore[assignment]
    __int__ = None  # type: ignore[assignment]
    __float__ = None  # type: ignore[assignment]
    __complex__ = None  # type: ignore[assignment]

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"VarNode:{self.name}"

    def __copy__(self) -> VarNode:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> VarNode:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        raise UsageError("a node of a graph is not saved by itself; Network.dump writes the graph")


class OpNode(NetworkNode):
    """An operator of an edited graph.

    Attributes:
        inputs, outputs: its variables; the list of inputs may be changed.
        params: its parameters by name, enums as names; changes take effect when the graph is written or run.
        type: the short name of its kind.
        opdef: the operator's parameter records.
    """

    type: Any = None
    opdef: ClassVar[tuple[Any, ...]] = ()

    def __init__(self) -> None:
        self.inputs: list[VarNode] = []
        self.outputs: list[VarNode] = []
        self.params: dict[str, Any] = {}
        self._opr: Any = None
        self._own_name: str | None = None
        self._snapshot: dict[str, Any] = {}
        self._number: int | None = None
        self._title: str | None = None

    @classmethod
    def load(cls, opr: Opr) -> OpNode:
        """Return the node of an operator, without its variables."""
        node = cls()
        node._opr = opr
        node._own_name = opr.name
        node.params = readable(opr)
        node._snapshot = dict(node.params)
        return node

    @property
    def opr(self) -> Opr:
        """The operator beneath."""
        assert isinstance(self._opr, Opr)
        return self._opr

    @property
    def class_name(self) -> str:
        """The name of MegEngine's class of operators."""
        return CATALOG[self.opr.type].class_name

    @property
    def id(self) -> int:
        """A number that no other operator of the same graph has."""
        return id(self) if self._number is None else self._number

    @property
    def priority(self) -> tuple[int, int]:
        """By what operators that could be next are ordered."""
        return (self.opr.priority, self.opr.id) if self._opr is not None else (0, 0)

    @property
    def name(self) -> str:
        """The name; without one, a text made of kind, inputs and number."""
        if self._own_name or self._title:
            return self._own_name or self._title or ""
        names = [v.name for v in self.inputs[:5]] + (["..."] if len(self.inputs) > 5 else [])
        return f"{plain_title(self.opr)}({','.join(names)})[{self.opr.id}]"

    @name.setter
    def name(self, value: str | None) -> None:
        self._own_name = value or None

    @property
    def _node(self) -> OpNode:
        return self

    @property
    def graph(self) -> Any:
        """The graph of its outputs."""
        return self.outputs[0].graph

    def add_inp_var(self, x: VarNode) -> None:
        """Append an input."""
        self.inputs.append(x)

    def add_out_var(self, x: VarNode) -> None:
        """Append an output."""
        self.outputs.append(x)

    def records(self) -> tuple[Record, ...]:
        """Return the parameter records, with what was changed in `params`."""
        changed = {k: v for k, v in self.params.items() if k not in self._snapshot or self._snapshot[k] != v}
        if not changed:
            return self.opr.params
        if "dtype" in changed and self.opr.output_dtype is not None:
            self.opr.output_dtype = graph_dtype(changed.pop("dtype"))
        if "axis" in changed and self.opr.type == "AxisAddRemove":
            methods = [d.method for d in self.opr.param.desc]  # type: ignore[attr-defined]
            axes = changed.pop("axis")
            changed["desc"] = tuple(AxisDesc(m, int(a)) for m, a in zip(methods, axes, strict=True))
        records = []
        for record in self.opr.params:
            own = {f.name for f in record.fields()}
            values = {k: in_field_type(record, k, changed.pop(k)) for k in list(changed) if k in own}
            records.append(record.replace(**values) if values else record)
        if changed:
            known = ", ".join(n for r in self.opr.params for n, _ in r.pairs()) or "none"
            raise UsageError(f"{self.name} has no parameter {', '.join(changed)}; it has {known}")
        return tuple(records)

    def refresh(self) -> None:
        """Bring the operator beneath up to date: inputs, parameters, dtypes and shapes of the outputs.

        Raises:
            EngineError: it does not take these inputs.
        """
        opr = self.opr
        opr.inputs = [v.variable for v in self.inputs]
        opr.params = self.records()
        self._snapshot = dict(self.params)
        infer(opr, self.inputs, self.outputs)

    def compile(self, graph: Any = None) -> None:
        """Bring the operator up to date, under MegEngine's name."""
        self.refresh()

    def __repr__(self) -> str:
        mode = f":{self.params['mode']}" if self.opr.title != self.opr.type else ""
        return f"{self.name}{{{self.type}{mode}}}"


def infer(opr: Opr, inputs: Sequence[VarNode], outputs: Sequence[VarNode]) -> None:
    """Find dtypes, shapes and, of shape arithmetic, values of an operator's outputs.

    An operator that has no kernel here, such as a vendor's, keeps what the file said of it.
    """
    try:
        infer_dtypes([opr])
    except UnsupportedError:
        return
    known = Inference()
    for node in inputs:
        var = node.variable
        if var.shape is not None:
            known.shapes[var.id] = var.shape
        if node._known is not None:
            known.values[var.id] = node._known
    follow(opr, known, {})
    for node in outputs:
        var = node.variable
        var.shape = known.shapes.get(var.id)
        node._known = known.values.get(var.id)
        assert var.dtype is not None
        node._dtype = var.dtype
