"""From an ONNX graph to a graph of MegEngine's operators: its inputs, outputs and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ..base.errors import EngineError, FormatError, LoadRunError, UnsupportedError, UsageError
from ..graph import Graph, Var
from ..graph.dtypes import Array, numpy_array
from ..ops.registry import FoldingBudget, Shape, limited
from ..passes.constants import subgraph
from ..passes.loadable import make_loadable
from ..tensors import Tensor
from ..tensors.access import (
    from_stored,
    recorded_variable,
    set_stored,
    stored,
    value_of,
    variable_of,
)
from ..tensors.switches import exact_arithmetic, use
from ..testcase import EXPECT
from ..tracing.recorder import TraceRecorder
from .lowering import of_length
from .messages import (
    GraphProto,
    ModelProto,
    TensorTypeProto,
    TypeProto,
    ValueInfoProto,
)
from .nodes import in_order, nodes_needed
from .tensors import HELD, STRING, ExternalData
from .types import StandIn
from .unrolling import least_unrolled
from .values import (
    ABSENT,
    INT64,
    Absent,
    Bound,
    DeclaredInput,
    Items,
    Scope,
    UnsupportedNodeError,
    Value,
    checked,
    graph_type,
)
from .walking import NodeWalker

__all__ = ["Importer"]

_SMALL_INPUT = 64
"""Elements up to which the values of an input may decide what a graph is."""


class _Recorder(TraceRecorder):
    """Records a graph, in which nothing is decided by data that leave a tensor without elements in this call.

    Attributes:
        empty: whether an input has no elements, so that others have none whatever the data are.
    """

    empty = False

    def shape(self, tensor: Tensor) -> Shape:
        """Return the shape of a tensor; where data decide it, with at least one entry along every axis."""
        var = recorded_variable(tensor)
        known = self.recording.known.shapes
        decided = known.get(var.id) is None
        shape = super().shape(tensor)
        if decided and 0 in shape and not self.empty and value_of(tensor) is not None:
            filled = np.zeros([n or 1 for n in shape], stored(tensor).dtype)
            set_stored(tensor, filled)
            self.evaluator.values[var.id] = filled
            shape = known[var.id] = filled.shape
        return shape


class _SizesKnown(_Recorder):
    """Records a graph for known input sizes: in it sizes are numbers, but for those that data decide."""

    def detached(self, tensor: Tensor) -> bool:
        """Return whether the sizes of a tensor are numbers."""
        return not self.fluid(tensor)


class Importer(NodeWalker):
    """Builds a graph from a model.

    Args:
        model: the model.
        external: where tensors outside the file are.
        input_shapes: shapes by input name.
        constants: values of inputs that are to be constants.
        examples: values of inputs, from which data-dependent sizes are known.
        expected: values of outputs; those that have one get a check.
        maxerr: tolerances of MegEngine's formula by output name, for checks that are not by ONNX's own rule.
        stand_in: sizes to assume where neither the file nor an argument gives them.
        fixed: axes of inputs, by name, that may have no other size than now.
        budget: the limit for constant folding, None for no limit.
        values: values of inputs for which alone the graph is made: the inputs stay, but nodes read constants.
        sizes_known: whether the graph runs at these sizes alone, so that they are numbers where no data decide them.

    Attributes:
        deciding: names of small inputs whose values were asked for where data cannot decide.
        assumed: whether such a size was needed.
        recorded: the graph as lowerings recorded it, before the passes that make it loadable by MegEngine.
    """

    def __init__(
        self,
        model: ModelProto,
        external: ExternalData,
        input_shapes: Mapping[str, Sequence[int]],
        constants: Mapping[str, Any],
        examples: Mapping[str, Array] | None = None,
        expected: Mapping[str, Array] | None = None,
        maxerr: Mapping[str, float] | None = None,
        stand_in: StandIn | None = None,
        fixed: Mapping[str, Sequence[int]] | None = None,
        budget: FoldingBudget | None = None,
        values: Mapping[str, Array] | None = None,
        *,
        sizes_known: bool = False,
    ) -> None:
        recorder = _SizesKnown if sizes_known else _Recorder
        self.session: _Recorder = recorder("lazy", fixed=True, symbolic_shape=True, places=False)
        self.session.recording.graph.exact = True
        super().__init__(model, external, self.session)
        self.values = values or {}
        self.deciding: set[str] = set()
        self.fixed = fixed or {}
        self.stand_in = stand_in or StandIn()
        self.assumed = False
        self.recorded = Graph()
        self.model = model
        self.input_shapes = input_shapes
        self.constants = constants
        self.examples = examples or {}
        self.expected = expected or {}
        self.maxerr = {**(maxerr or {})}
        self.budget = budget
        self.inputs: dict[str, DeclaredInput] = {}
        self.outputs: dict[str, Value] = {}
        self.sizes_known = sizes_known
        self.open_sizes = False

    def name_of(self, value: Value) -> str:
        """Return the name of the graph input that a value is, or "" if it is none."""
        return next((n for n in self.inputs if self._top.names.get(n) is value), "")

    def inputs_behind(self, tensor: Tensor) -> list[str]:
        """Return the names of the graph inputs that a tensor is computed from."""
        begin = variable_of(tensor)
        todo, seen, names = [begin] if begin is not None else [], set(), []
        while todo:
            var = todo.pop()
            if var.id in seen:
                continue
            seen.add(var.id)
            if var.owner.type == "Host2DeviceCopy" and var.name in self.inputs:
                names.append(var.name)
            todo += var.owner.inputs
        return names

    def ask_value(self, tensor: Tensor) -> None:
        """Remember that a value must be known, if it is computed from small inputs alone (`deciding`)."""
        names = self.inputs_behind(tensor)
        if all(prod(self.inputs[n].shape) <= _SMALL_INPUT for n in names):
            self.deciding.update(names)

    def graph(self) -> Graph:
        """Lower the nodes to a graph.

        Raises:
            UnsupportedError: nodes or inputs cannot be expressed; the text lists all of them.
            FormatError: the graph contradicts itself.
        """
        try:
            with limited(self.budget), exact_arithmetic():
                return self._graph()
        except EngineError as e:
            e.expressible = self._expressible
            raise

    def _graph(self) -> Graph:
        proto = self.model.graph
        assert proto is not None
        proto.nodes = in_order(proto.nodes)
        self.expect(least_unrolled(proto))
        self._top = scope = Scope()
        with use(self.session):
            self._begin(proto, scope)
            left = self._left_out(proto)
            self._nodes(proto.nodes, scope, nodes_needed(proto, left), self._opsets, {})
            results = self._end(proto, scope, left)
            if not self.problems:
                results = self.required.held(results)
        if self.problems:
            lines = "\n".join(f"  {p}" for p in self.problems)
            count = f"{len(self.problems)} part{'s' * (len(self.problems) > 1)}"
            sizes = f"\n{self.about_sizes()}" if self.assumed else ""
            raise UnsupportedError(
                f"{count} of the model cannot be expressed:\n{lines}{sizes}"
            ) from self.fault
        return self._finish(results)

    def _expressible(self) -> Graph:
        """Make a graph of what can be expressed: the last values with a name are its outputs."""
        whole = self.session.recording.graph
        # Half of a node that could not be lowered may read the last value before it.
        read: set[int] = set()
        ends: list[Var] = []
        for opr in reversed(whole.oprs):
            named = [v for v in opr.outputs if v.name and opr.inputs and v.id not in read]
            ends += named
            if named or any(v.id in read for v in opr.outputs):
                read.update(v.id for v in opr.inputs)
        ends.reverse()
        with limited(self.budget):
            return make_loadable(subgraph(whole, ends)[0])

    @property
    def unranked(self) -> list[str]:
        """The inputs of which even the number of axes is assumed."""
        return [n for n, d in self.inputs.items() if d.assumed and d.declared is None]

    def about_sizes(self) -> str:
        """Say which shapes were assumed where the file leaves sizes open."""
        taken = [f"{n} {list(d.shape)}" for n, d in self.inputs.items() if d.assumed]
        more = f" and {len(taken) - 5} more" if len(taken) > 5 else ""
        return (
            f"the file leaves sizes open, and these were assumed: {', '.join(taken[:5])}{more}; data or input_shapes "
            "(--input-shape) set others"
        )

    def _begin(self, proto: GraphProto, scope: Scope) -> None:
        self._initialize(proto, scope)
        for info in proto.inputs:
            if not info.name or info.name in self.inputs:
                raise FormatError(f"the graph has an input named {info.name!r} twice or without a name")
            if info.name in self.constants:
                scope.names[info.name] = _constant_input(info.name, info.type, self.constants[info.name])
                continue
            if info.name in scope.names or info.name in scope.missing:
                continue
            try:
                self._input(info, scope)
            except UnsupportedNodeError as e:
                scope.missing.add(info.name)
                self.problems.setdefault(f"input {info.name!r} {e}")
        unknown = (set(self.constants) | set(self.input_shapes)) - {i.name for i in proto.inputs}
        if unknown:
            names = ", ".join(i.name for i in proto.inputs) or "none"
            raise UsageError(f"the model has no input {sorted(unknown)[0]!r}; its inputs are {names}")

    def _input(self, info: ValueInfoProto, scope: Scope) -> None:
        example = self.examples.get(info.name)
        shape = self.input_shapes.get(info.name)
        known_shape = example.shape if example is not None and shape is None else shape
        declared = DeclaredInput(info, known_shape, self.stand_in)
        self.assumed |= declared.assumed
        self.open_sizes |= declared.open_sizes and not self.sizes_known
        dtype = graph_type(declared.kind)
        if example is None or example.shape != declared.shape:
            try:
                example = np.broadcast_to(np.ones((), dtype.np), declared.shape)
            except ValueError:
                raise UnsupportedNodeError(f"has the shape {list(declared.shape)}") from None
        else:
            example = checked(example, declared.kind)
        self.session.empty |= not example.size
        outside = from_stored(example.reshape(declared.shape or (1,)), dtype, not declared.shape)
        tensor = self.session.argument(info.name, outside)
        for axis in self.fixed.get(info.name, ()):
            size = declared.shape[axis]
            tensor = of_length(
                tensor, axis, f"this file is valid only for size {size} of axis {axis} of {info.name!r}"
            )
        value = self.values.get(info.name)
        if value is None:
            scope.names[info.name] = Value(declared.kind, tensor)
        else:
            scope.names[info.name] = _constant_input(info.name, info.type, value.reshape(declared.shape))
        self.inputs[info.name] = declared

    def _left_out(self, proto: GraphProto) -> set[str]:
        """List text outputs, which are left out if there are others."""
        text = {o.name for o in proto.outputs if o.type and o.type.tensor and o.type.tensor.elem == STRING}
        if len(text) == len(proto.outputs):
            return set()
        for name in sorted(text):
            self.note(f"output {name!r} holds text, which MegEngine does not support, so it is omitted")
        return text

    def _end(self, proto: GraphProto, scope: Scope, left: set[str]) -> list[tuple[str, Value]]:
        results = []
        for info in proto.outputs:
            if info.name in left:
                continue
            known, value = scope.find(info.name)
            if not known:
                raise FormatError(f"no node computes the graph's output {info.name!r}")
            if isinstance(value, list):
                results += self._items_out(info.name, value)
            elif isinstance(value, Absent):
                self.note(f"output {info.name!r} is an optional value without an element")
            elif value is not None:
                results.append((info.name, self._storable(info.name, value)))
            elif not self.problems:
                self.problems.setdefault(f"output {info.name!r} {self._unheld.get(info.name, 'is missing')}")
        if not proto.outputs:
            raise FormatError("the graph has no outputs")
        return results

    def _storable(self, name: str, value: Value) -> Value:
        """Require a type that MegEngine has for an output."""
        try:
            value.stored  # noqa: B018
        except LoadRunError as e:
            self.problems.setdefault(f"output {name!r}: {e}")
        return value

    def _items_out(self, name: str, items: Items) -> list[tuple[str, Value]]:
        """Split a sequence into outputs of their own."""
        if not items:
            self.note(f"output {name!r} is an empty sequence")
        else:
            if name in self.maxerr:
                self.maxerr.update({f"{name}.{i}": self.maxerr[name] for i in range(len(items))})
            self.note(
                f"output {name!r} is a sequence; its values are the outputs {name}.0 to {name}.{len(items) - 1}"
            )
        return [(f"{name}.{i}", self._storable(f"{name}.{i}", v)) for i, v in enumerate(items)]

    def _finish(self, results: list[tuple[str, Value]]) -> Graph:
        whole = self.session.recording.graph
        ends: list[Var] = []
        checked_ends: set[int] = set()
        taken: set[Var] = set()
        with use(self.session):
            for name, value in results:
                is_listed_again = name in self.outputs
                self.outputs[name] = value
                var = self.session.source(value.stored).var
                if name in self.expected and not is_listed_again:
                    ends.append(self._checked(name, value))
                    checked_ends.add(len(ends) - 1)
                    continue
                is_taken = var in taken or var.owner.type == "Host2DeviceCopy"
                (end,) = whole.add("Identity", inputs=[var]) if is_taken else (var,)
                taken.add(end)
                end.name = None
                ends.append(end)
        self.recorded = subgraph(whole, ends)[0]
        graph = make_loadable(self.recorded)
        taken = set()
        for i, (name, _) in enumerate(results):
            var = graph.outputs[i]
            if i not in checked_ends:
                if var.owner.type == "Host2DeviceCopy" or var in taken:
                    (var,) = graph.add("Identity", inputs=[var])
                    graph.outputs[i] = var
                var.name = name
            taken.add(var)
        left = {v.name for v in graph.inputs}
        recorded = {v.name: v.owner for v in reversed(whole.inputs)}
        for name in self.inputs:
            if name not in left:
                unread = recorded[name]
                graph.add("Host2DeviceCopy", *unread.params, names=[name], tensors=unread.tensors)
        return graph

    def _checked(self, name: str, value: Value) -> Var:
        """Compare an output with its expected value, an input of the graph, as ONNX's backend tests do."""
        from .file import check, check_within  # for start-up

        reference = checked(self.expected[name], value.kind)
        scalar = reference.ndim == 0
        outside = from_stored(reference.reshape(reference.shape or (1,)), graph_type(value.kind), scalar)
        expect = self.session.argument(name + EXPECT, outside)
        if name in self.maxerr:
            var = variable_of(check_within(expect, value.stored, self.maxerr[name]))
        else:
            var = variable_of(check(expect, value.stored, value.kind))
        assert var is not None
        return var


def _constant_input(name: str, kind: TypeProto | None, value: object) -> Bound:
    """Convert the constant for an input: an array, a list for a sequence, None for an empty optional.

    Raises:
        UsageError: it does not fit what the file declares.
    """
    if kind is not None and kind.optional is not None:
        return ABSENT if value is None else _constant_input(name, kind.optional.of, value)
    if kind is not None and kind.sequence is not None:
        if not isinstance(value, (list, tuple)):
            raise UsageError(
                f"input {name!r} is a sequence, the constant for it {type(value).__name__}, expected a list"
            )
        items = [_constant_input(f"{name}[{i}]", kind.sequence.of, v) for i, v in enumerate(value)]
        return [v for v in items if isinstance(v, Value)]
    if kind is not None and kind.map is not None:
        raise UsageError(f"input {name!r} is a map, which cannot be a constant")
    return _constant_tensor(name, kind.tensor if kind is not None else None, value)


def _constant_tensor(name: str, tensor: TensorTypeProto | None, constant: object) -> Value:
    """Convert an input to a constant; one number takes the rank that the file declares."""
    value = numpy_array(constant)
    elem = tensor.elem if tensor is not None else INT64
    rank = len(tensor.shape.dims) if tensor is not None and tensor.shape is not None else value.ndim
    if elem == STRING and value.dtype.kind in "UO":
        return Value(STRING, array=value.astype(object))
    if value.dtype.kind not in "biuf":
        raise UsageError(f"the constant for input {name!r} holds {value.dtype}, expected numbers")
    if value.size == 1 and min(rank, value.ndim) == 0:
        value = value.reshape((1,) * rank)
    if value.ndim != rank:
        raise UsageError(f"input {name!r} has {rank} axes, the constant for it {value.ndim}")
    return Value(elem, array=value.astype(HELD.get(elem, value.dtype)))
