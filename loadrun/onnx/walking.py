"""From ONNX nodes to MegEngine's operators: walking nodes, functions and subgraphs under a recording session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..base.errors import FormatError, LoadRunError
from ..ops.registry import BudgetError
from ..tensors import Tensor, access
from ..tensors.access import dtype_of, stored_shape, variable_of
from ..tensors.apply import type_cvt
from ..tensors.naming import scope as named_part
from ..tensors.switches import suspended
from ..tracing.recorder import TraceRecorder, loses_float64
from . import exact
from .call import NodeCall, NodeLowering, NodeReader, Result, find
from .messages import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto
from .nodes import attributes_of, nodes_needed, title_of
from .required import Required
from .tensors import STRING, ExternalData, UnsupportedTensorTypeError, array, dense, kind_name, texts
from .values import (
    ABSENT,
    DOUBLE,
    Absent,
    Bound,
    Given,
    InnerNodeError,
    Items,
    Scope,
    Unheld,
    UnsupportedNodeError,
    Value,
    graph_type,
    kind_of,
)

__all__ = ["NodeWalker"]

_MOST_NODES = 100_000
_DEPTH = 16
_BEYOND = (
    "parts of the model depend on no input but are too expensive to fold while loading a file of its size; they are "
    "computed when it runs"
)
_BLOCKED = ("com.microsoft.nchwc", "com.ms.internal.nhwc")
"""Domains of layouts that ONNX Runtime chooses for one processor."""
_WHY = {
    ("", "ImageDecoder"): "decodes images, which MegEngine has no operator for; feed them as arrays",
    ("", "RegexFullMatch"): "matches a regular expression on text, which MegEngine does not support",
    ("ai.onnx.preview.training", "Gradient"): "trains the model, which dumps cannot do",
}
"""Reasons for standard operators that are refused for a reason of their own."""


class NodeWalker(NodeReader):
    """Lowers the nodes of a model, its functions and its subgraphs.

    Args:
        model: the model.
        external: where tensors outside the file are.
        session: what records the operators.

    Attributes:
        problems: why nodes are refused, in their order.
        notes: what the caller should know.
        follows: the problems that follow from others, inside of subgraphs.
        fault: the first exception of a node that its lowering did not foresee.
    """

    def __init__(self, model: ModelProto, external: ExternalData, session: TraceRecorder) -> None:
        self.external = external
        self.session = session
        self.required = Required()
        self.problems: dict[str, None] = {}
        self.notes: dict[str, None] = {}
        self.follows: set[str] = set()
        self.fault: Exception | None = None
        self.functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self._sizes: dict[int, int] = {}
        self._unheld: dict[str, str] = {}
        self._count = 0
        self._depth = 0
        self._opsets = self._imported(model.opsets)

    @staticmethod
    def _imported(opsets: Iterable[Any]) -> dict[str, int]:
        return {("" if o.domain == "ai.onnx" else o.domain): o.version for o in opsets}

    def note(self, text: str) -> None:
        """Remember something that the caller should know."""
        self.notes.setdefault(text)

    def expect(self, nodes: int) -> None:
        """Refuse the model if it cannot have so many more nodes."""
        if self._count + nodes > _MOST_NODES:
            raise FormatError(f"the model unrolls to more than {_MOST_NODES} nodes")

    def _initialize(self, proto: GraphProto, scope: Scope) -> None:
        for tensor in proto.initializers:
            try:
                scope.names[tensor.name] = self.stored(tensor)
            except UnsupportedTensorTypeError as e:
                scope.missing.add(tensor.name)
                self._unheld[tensor.name] = str(e)
        for sparse in proto.sparse:
            if sparse.values is None:
                continue
            name = sparse.values.name
            try:
                value = dense(sparse, self.external)
                scope.names[name] = Value(sparse.values.data_type, array=value)
            except BudgetError as e:
                scope.missing.add(name)
                self.problems.setdefault(f"the sparse tensor {name!r}: {e}")

    def stored(self, tensor: TensorProto) -> Value:
        """Turn a stored tensor into a constant."""
        if tensor.data_type == STRING:
            return Value(STRING, array=texts(tensor), name=tensor.name)
        return Value(tensor.data_type, array=array(tensor, self.external), name=tensor.name)

    def _nodes(
        self,
        nodes: Sequence[NodeProto],
        scope: Scope,
        needed: set[int] | None,
        opsets: Mapping[str, int],
        call_attributes: Mapping[str, AttributeProto],
    ) -> None:
        begun, computed = {*scope.names, *scope.missing}, set[str]()
        for i, node in enumerate(nodes):
            for name in node.outputs:
                if name and name in begun:
                    raise FormatError(f"a node computes {name!r}, which is an input or a stored tensor")
                if name and name in computed:
                    raise FormatError(f"two nodes compute {name!r}")
                computed.add(name)
            if needed is None or i in needed:
                self._node(node, scope, opsets, call_attributes)

    def _node(
        self,
        node: NodeProto,
        scope: Scope,
        opsets: Mapping[str, int],
        call_attributes: Mapping[str, AttributeProto],
    ) -> None:
        self._count += 1
        self.expect(0)
        inputs = self._inputs(node, scope)
        results = None if inputs is None else self._lowered(node, inputs, scope, opsets, call_attributes)
        if results is None:
            scope.missing.update(n for n in node.outputs if n)
            return
        for name, value in zip(node.outputs, results, strict=False):
            if isinstance(value, Unheld):
                scope.missing.add(name)
                self._unheld[name] = value.reason
            elif name:
                scope.names[name] = value
                self._name(name, value)
        for name in node.outputs[len(results) :]:
            if name:
                self._refuse(node, f"gives no output {name!r}")
                scope.missing.add(name)

    def _inputs(self, node: NodeProto, scope: Scope) -> list[Given] | None:
        """Return the values that a node reads, or None if one of them could not be lowered."""
        inputs: list[Given] = []
        for name in node.inputs:
            known, value = scope.find(name) if name else (True, None)
            if not known:
                raise FormatError(f"node {title_of(node)} reads {name!r}, which no earlier node computes")
            if name and value is None:
                if name in self._unheld:
                    self._refuse(node, f"reads {name!r}, which {self._unheld[name]}")
                return None
            inputs.append(None if isinstance(value, Absent) else value)
        return inputs

    def _lowered(
        self,
        node: NodeProto,
        inputs: list[Given],
        scope: Scope,
        opsets: Mapping[str, int],
        call_attributes: Mapping[str, AttributeProto],
    ) -> Sequence[Bound | Unheld] | None:
        """Lower a node to its results, or None if it is refused."""
        try:
            # Messages name operators after the node that they come from.
            with named_part(node.name or next((n for n in node.outputs if n), node.op)):
                return self._results(node, inputs, scope, opsets, call_attributes)
        except FormatError:
            raise
        except (LoadRunError, UnsupportedTensorTypeError) as e:
            self._refuse(node, str(e))
            if isinstance(e, InnerNodeError):
                self.follows.add(f"{title_of(node)}: {e}")
        except RecursionError:
            raise FormatError("the graph is nested too deeply") from None
        except MemoryError as e:
            self._refuse(node, f"its inputs {_shown(inputs)} need more memory than is available ({e})")
        except Exception as e:
            self.fault = self.fault or e
            # Errors of other kinds are Python's own, which say nothing of the model.
            why = f": {e}" if isinstance(e, (AssertionError, ValueError)) and str(e) else " it"
            self._refuse(node, f"its inputs {_shown(inputs)}{_shown_attributes(node)} do not fit{why}")
        return None

    def _name(self, name: str, value: Bound) -> None:
        if not isinstance(value, Value):
            return
        # A constant that was computed beforehand is called like what the node gives.
        value.name = value.name or name
        if value.lowered is not None:
            var = variable_of(value.lowered)
            if var is None and not access.tensor_name(value.lowered):
                access.set_name(value.lowered, name)
            elif var is not None and var.name is None and var.owner.type != "Host2DeviceCopy":
                var.name = name

    def _refuse(self, node: NodeProto, why: str) -> None:
        self.problems.setdefault(f"{title_of(node)}: {why}")

    def _results(
        self,
        node: NodeProto,
        inputs: list[Given],
        scope: Scope,
        opsets: Mapping[str, int],
        call_attributes: Mapping[str, AttributeProto],
    ) -> Sequence[Bound | Unheld]:
        attributes = attributes_of(node, call_attributes)
        domain = "" if node.domain == "ai.onnx" else node.domain
        function = self.functions.get((node.domain, node.op, node.overload))
        if function is not None:
            return self._inline(function, inputs, attributes)
        lowering = find(domain, node.op)
        if lowering is None:
            where = f" of the domain {domain}" if domain else ""
            hint = "; save the model with ORT_ENABLE_EXTENDED instead" if domain in _BLOCKED else ""
            why = _WHY.get((domain, node.op), "cannot be expressed")
            raise UnsupportedNodeError(f"the operator {node.op}{where} {why}{hint}")
        wanted = [bool(n) for n in node.outputs]
        opset = opsets.get(domain, self._opsets.get(domain, 1))
        call = NodeCall(node.op, opset, inputs, attributes, wanted, self, scope)
        call.opsets = opsets
        call.call_attributes = call_attributes
        short = exact.compute(call) if not domain else None
        if short is not None:
            return [short]
        values = [v for v in inputs if v is not None]
        folds = lowering.foldable and all(isinstance(v, Value) and v.constant() is not None for v in values)
        if folds:
            try:
                with suspended():
                    return self._settled(lowering.run(call), call, lowering)
            except (BudgetError, MemoryError):
                # It stays in the graph, and is computed when that runs.
                self.note(_BEYOND)
        oprs = self.session.recording.graph.oprs
        before = len(oprs)
        settled = self._settled(lowering.run(call), call, lowering)
        if loses_float64(oprs[before:]) and any(isinstance(v, Value) and v.kind == DOUBLE for v in settled):
            self.note(f"{call.op} of double is computed in float32")
        return settled

    def _settled(self, results: Result, call: NodeCall, lowering: NodeLowering) -> list[Bound | Unheld]:
        """Convert the results to values in the types that the graph has for them."""
        listed = list(results) if isinstance(results, tuple) else [results]
        like = call.inputs[lowering.like] if lowering.like < len(call.inputs) else None
        settled: list[Bound | Unheld] = []
        for r in listed:
            if r is None or isinstance(r, (list, Unheld, Absent)):
                settled.append(r)
                continue
            value = r if isinstance(r, Value) else Value(_elem_type_of(r, like), r)
            if value.lowered is not None and value.array is None:
                if len(stored_shape(value.lowered)) > 7:
                    raise UnsupportedNodeError("has a result with more than MegEngine's 7 axes")
                want = graph_type(value.kind)
                if dtype_of(value.lowered) != want:
                    value = Value(value.kind, type_cvt(value.lowered, want))
            settled.append(value)
        return settled

    def _inline(
        self, function: FunctionProto, inputs: list[Given], attributes: Mapping[str, AttributeProto]
    ) -> list[Bound]:
        if len(inputs) > len(function.inputs):
            raise FormatError(f"the function {function.name} takes {len(function.inputs)} inputs")
        inner = Scope()
        for i, name in enumerate(function.inputs):
            value = inputs[i] if i < len(inputs) else None
            inner.names[name] = ABSENT if value is None else value
        self.expect(self._unrolled(function))
        call_attributes = {a.name: a for a in function.defaults}
        call_attributes.update(attributes)
        self._enter(function.name)
        try:
            opsets = self._imported(function.opsets) or self._opsets
            self._nodes(function.nodes, inner, None, opsets, call_attributes)
        finally:
            self._depth -= 1
        return [self._out(inner, name) for name in function.outputs]

    def _unrolled(self, function: FunctionProto) -> int:
        """Count the nodes that a function stands for with those that it calls."""
        count = self._sizes.get(id(function))
        if count is None:
            # One that calls itself is refused where that is done.
            self._sizes[id(function)] = 0
            called = (self.functions.get((n.domain, n.op, n.overload)) for n in function.nodes)
            count = sum(1 + (0 if f is None else self._unrolled(f)) for f in called)
            self._sizes[id(function)] = count
        return count

    def _enter(self, what: str) -> None:
        self._depth += 1
        if self._depth > _DEPTH:
            self._depth -= 1
            raise FormatError(f"{what} is nested in itself, or deeper than {_DEPTH}")

    def _out(self, scope: Scope, name: str) -> Bound:
        known, value = scope.find(name)
        if not known:
            raise FormatError(f"no node computes the output {name!r}")
        if value is None:
            raise InnerNodeError(f"{name!r} inside it cannot be expressed")
        return value

    def run_subgraph(
        self, graph: GraphProto, inputs: Sequence[Bound], scope: Scope, call: NodeCall
    ) -> list[Value | Items]:
        """Lower a subgraph in the scope of a node; gives its outputs."""
        return self._run(graph, inputs, Scope(scope), call)

    def run_branch(self, graph: GraphProto, call: NodeCall, mark: Callable[[Value], Value]) -> list[Value]:
        """Lower a branch that data choose; everything from outside is marked as belonging to it."""
        values = []
        for value in self._run(graph, [], Scope(call.scope, mark), call):
            if not isinstance(value, Value):
                raise UnsupportedNodeError(
                    "a branch that depends on data returns a sequence or an optional value"
                )
            values.append(mark(value) if value.constant() is not None else value)
        return values

    def _run(
        self, graph: GraphProto, inputs: Sequence[Bound], inner: Scope, call: NodeCall
    ) -> list[Value | Items]:
        self._initialize(graph, inner)
        if len(inputs) > len(graph.inputs):
            raise FormatError(
                f"a subgraph of {call.op} takes {len(graph.inputs)} inputs, found {len(inputs)}"
            )
        for info, value in zip(graph.inputs, inputs, strict=False):
            inner.names[info.name] = ABSENT if value is None else value
        self._enter(f"a subgraph of {call.op}")
        try:
            self._nodes(graph.nodes, inner, nodes_needed(graph), call.opsets, call.call_attributes)
        finally:
            self._depth -= 1
        return [self._out(inner, o.name) for o in graph.outputs]  # type: ignore[misc]


def _shown(inputs: Sequence[Given]) -> str:
    """Describe the types and shapes of a node's inputs, for an error."""

    def one(value: Given) -> str:
        if isinstance(value, Value):
            return f"{kind_name(value.kind)} {list(value.numbers)}"
        return f"a sequence of {len(value)}" if isinstance(value, list) else "none"

    return ", ".join(map(one, inputs)) or "(none)"


def _shown_attributes(node: NodeProto) -> str:
    """Describe the attributes of a node that are numbers or words, for an error."""
    shown = []
    for a in node.attributes:
        numbers = [v for row in (*a.ints, *a.floats) for v in row[:8].tolist()][:8]
        value = {1: a.f, 2: a.i, 3: bytes(a.s[:40]).decode("utf-8", "replace")}.get(a.type, numbers)
        shown += [f"{a.name} {value!r}"] if value != [] else []
    return f" and attributes {', '.join(shown)}" if shown else ""


def _elem_type_of(tensor: Tensor, like: Bound) -> int:
    """Return ONNX's type of a result: that of the input that it follows if the graph's types agree."""
    if isinstance(like, Value) and dtype_of(tensor).name != "Bool":
        own = graph_type(like.kind)
        small = dtype_of(tensor).name == "Int32" and own.np.kind in "iu" and own.np.itemsize < 4
        if small or dtype_of(tensor) in (own, dtype_of(like.tensor)):
            return like.kind
    return kind_of(tensor)
