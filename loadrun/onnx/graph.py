"""An ONNX file as a graph of what it says: one operator for each node, MegEngine's or a composite that bears its name.

Such a graph runs at all sizes: what decides shapes is computed by the nodes themselves when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from ..base.errors import EngineError, FormatError, LoadRunError, UnsupportedError
from ..graph import Graph, StoredTensor, Var, params as P
from ..graph.composite import Composite, Definition, NodeTypes, TensorAttribute
from ..graph.dtypes import Array, DType, plain
from ..ops.infer import Inference, follow, infer_dtypes
from ..ops.registry import BudgetError
from ..passes.checks import add_check
from ..testcase import EXPECT
from . import nodes
from .file import BRAIN_RTOL, RTOL, rule_error
from .lasting import tensor_of
from .messages import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto
from .nodes import Subgraph, attributes_of, in_order, names_captured, nodes_needed, title_of
from .operators import HOMES, find
from .tensors import STRING, ExternalData, UnsupportedTensorTypeError, array, dense, texts
from .types import declared_shape, dtype_of_kind, sizes_of, type_of

_SHAPING = ("elementwise", "functions", "reductions", "shapes", "filling", "indexing")
"""Families whose operators compute sizes: their small results are known before data are there."""
_DEPTH = 16
_MOST_NODES = 100_000


_BLOCKED = ("com.microsoft.nchwc", "com.ms.internal.nhwc")
"""Domains of layouts that ONNX Runtime chooses for one processor."""
_WHY = {
    ("", "ImageDecoder"): "decodes images; feed them as arrays",
    ("ai.onnx.preview.training", "Gradient"): "trains the model, which is not replayed",
}
"""Reasons for operators that are refused for a reason of their own."""


class NotExpressed(EngineError):
    """A node cannot be in a graph; the text says why."""


Name = Var | StoredTensor | None
"""What a name stands for: a variable, a stored value that nothing has read yet, or an optional without a value."""


class GraphReader:
    """Builds a graph from the nodes of a model, or of a subgraph.

    Args:
        model: the model.
        external: where tensors outside the file are.
        shapes: shapes of inputs by name, as far as they are known; they are hints, but for what is told from ranks.
        constants: values of inputs that are constants.
        outer: the reader of the graph around, for a subgraph.

    Attributes:
        graph: the graph.
        known: shapes and values that follow from `shapes`.
        misfits: operators that cannot take these shapes.
        problems: why nodes cannot be in the graph or those inside of it; what reads their results is left out.
    """

    def __init__(
        self,
        model: ModelProto,
        external: ExternalData,
        shapes: Mapping[str, Sequence[int]] | None = None,
        constants: Mapping[str, TensorAttribute] | None = None,
        outer: GraphReader | None = None,
    ) -> None:
        self.model, self.external, self.outer = model, external, outer
        self.shapes, self.constants = shapes or {}, constants or {}
        self.graph = Graph(exact=True)
        self.known = Inference()
        self.misfits: list[str] = []
        self.names: dict[str, Name] = {}
        self.captured: list[str] = []
        self.functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self.opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opsets}
        self._depth: int = 0 if outer is None else outer._depth + 1
        self._counter: Iterator[int] = count(1) if outer is None else outer._counter
        self._said: tuple[str | None, str | None] = None, None
        self._stored: dict[int, Var] = {}
        self.problems: dict[str, None] = {} if outer is None else outer.problems
        self._missing: set[str] = set()

    # Graphs

    def read(self, proto: GraphProto, fed: Sequence[DType | None] = ()) -> Graph:
        """Read inputs, nodes and outputs.

        Args:
            proto: the graph.
            fed: the types of what is fed to the first inputs, where the graph does not declare them.

        Raises:
            FormatError: the graph contradicts itself.
            UnsupportedError: nodes cannot be in the graph; the text lists all of them.
        """
        if self._depth > _DEPTH:
            raise FormatError(f"the graph is nested deeper than {_DEPTH}")
        self._initialize(proto)
        for i, info in enumerate(proto.inputs):
            if not info.name or isinstance(self.names.get(info.name), Var):
                raise FormatError(f"the graph has an input named {info.name!r} twice or without a name")
            if info.name in self.constants:
                value = self.constants[info.name]
                self.names[info.name] = tensor_of(value.value, value.dtype, info.name)
            elif info.name not in self.names:
                dtype = type_of(info.type) or (fed[i] if i < len(fed) else None)
                if dtype is None:
                    raise NotExpressed(f"the input {info.name!r} has no type")
                self.add_input(info.name, dtype)
        proto.nodes = in_order(proto.nodes)
        self._nodes(proto.nodes, nodes_needed(proto), self.opsets, {}, {*self.names})
        self._said = None, None
        ends = ((i.name, sizes_of(i)) for i in (*proto.inputs, *proto.outputs))
        self.graph.declared = {n: sizes for n, sizes in ends if sizes is not None}
        names = [o.name for o in proto.outputs if o.name not in self._missing]
        lost = next((n for n in names if n not in self.names and self.outer is None), None)
        if lost is not None:
            raise FormatError(f"no node computes the graph's output {lost!r}")
        outputs = [(n, self.read_name(n, "the graph's output")) for n in names]
        if not proto.outputs:
            raise FormatError("the graph has no outputs")
        if self.problems and self.outer is None:
            lines = "\n".join(f"  {p}" for p in self.problems)
            count = f"{len(self.problems)} part{'s' * (len(self.problems) > 1)}"
            raise UnsupportedError(f"{count} of the model cannot be expressed:\n{lines}")
        self.finish(outputs)
        return self.graph

    def finish(self, outputs: Iterable[tuple[str, Name]]) -> None:
        """Set the outputs; each is a variable of its own that bears the output's name."""
        taken: set[int] = set()
        for name, value in outputs:
            var = self.var(value, name)
            if var.id in taken or var.owner.type == "Host2DeviceCopy" or (var.name not in (None, name)):
                (var,) = self.record("Identity", [var])
            taken.add(var.id)
            var.name = name
            self.graph.outputs.append(var)

    def unfinished(self) -> Graph:
        """Return the graph as far as it was read; its outputs are those of the model, or what nothing reads."""
        if not self.graph.outputs:
            read = {v.id for o in self.graph.oprs for v in o.inputs}
            ends = (v for o in self.graph.oprs if o.inputs for v in o.outputs)
            self.graph.outputs = [v for v in ends if v.id not in read]
        return self.graph

    def _initialize(self, proto: GraphProto) -> None:
        for tensor in proto.initializers:
            value = self.attribute_tensor(tensor)
            self.names[tensor.name] = tensor_of(value.value, value.dtype, tensor.name)
        for sparse in proto.sparse:
            if sparse.values is not None:
                name = sparse.values.name
                kind = dtype_of_kind(sparse.values.data_type)
                try:
                    self.names[name] = tensor_of(dense(sparse, self.external), kind, name)
                except BudgetError as e:
                    raise EngineError(f"the sparse tensor {name!r}: {e}") from e

    def attribute_tensor(self, tensor: TensorProto) -> TensorAttribute:
        """Decode a tensor with its type."""
        if tensor.data_type == STRING:
            return TensorAttribute(texts(tensor), plain("String"))
        try:
            return TensorAttribute(array(tensor, self.external), dtype_of_kind(tensor.data_type))
        except UnsupportedTensorTypeError as e:
            raise NotExpressed(f"the tensor {tensor.name!r} {e}") from e

    def add_input(self, name: str, dtype: DType) -> Var:
        """Add an input of the graph."""
        shape = () if dtype.name == "Object" else self.shapes.get(name)
        stored = StoredTensor(dtype, None if shape is None else tuple(shape), name, ranked=True)
        (var,) = self.graph.add("Host2DeviceCopy", P.Host2DeviceCopy(), names=[name], tensors=[stored])
        var.dtype = dtype
        if shape is not None:
            self.known.shapes[var.id] = tuple(shape)
        self.names[name] = var
        return var

    # Names

    def read_name(self, name: str, reader: str) -> Name:
        """Return what a name stands for, here or around.

        Raises:
            FormatError: nothing has that name.
        """
        if name in self.names:
            return self.names[name]
        if self.outer is None:
            raise FormatError(f"{reader} reads {name!r}, which no earlier node computes")
        value = self.outer.read_name(name, reader)
        if isinstance(value, Var):
            # A value from around is an input of the node that holds this graph.
            assert value.dtype is not None
            shape = self.outer.known.shapes.get(value.id)
            self.shapes = self.shapes if shape is None else {**self.shapes, name: shape}
            self.captured.append(name)
            return self.add_input(name, value.dtype)
        self.names[name] = value
        return value

    def var(self, value: Name, name: str = "") -> Var:
        """Return the variable of a value that is there; a stored one is put into the graph when it is first read."""
        if isinstance(value, Var):
            return value
        if value is None:
            raise NotExpressed(f"the output {name!r} is an optional value without an element")
        var = self._stored.get(id(value))
        if var is None:
            (var,) = self.graph.add("SharedDeviceTensor", names=[value.name or None], tensors=[value])
            var.dtype = value.dtype
            self._follow(var)
            self._stored[id(value)] = var
        return var

    def dtype(self, value: Name) -> DType | None:
        """Return the type of a value."""
        return None if value is None else value.dtype

    # Nodes

    def _nodes(
        self,
        nodes: Sequence[NodeProto],
        needed: Collection[int] | None,
        opsets: Mapping[str, int],
        call_attributes: Mapping[str, AttributeProto],
        begun: Collection[str],
    ) -> None:
        computed: set[str] = set()
        for i, node in enumerate(nodes):
            for name in filter(None, node.outputs):
                if name in begun:
                    raise FormatError(f"a node computes {name!r}, which is an input or a stored tensor")
                if name in computed:
                    raise FormatError(f"two nodes compute {name!r}")
                computed.add(name)
            if needed is None or i in needed:
                self._node(node, opsets, call_attributes)

    def _node(
        self, node: NodeProto, opsets: Mapping[str, int], call_attributes: Mapping[str, AttributeProto]
    ) -> None:
        if next(self._counter) > _MOST_NODES:
            raise FormatError(f"the model has more than {_MOST_NODES} nodes")
        if self._misses([*node.inputs, *names_captured(node)]):
            self._missing.update(node.outputs)
            return
        try:
            self._record_node(node, opsets, call_attributes)
        except FormatError:
            raise
        except (LoadRunError, ValueError) as e:
            self.problems.setdefault(f"{title_of(node)}: {e}")
            self._missing.update(node.outputs)

    def _misses(self, names: Iterable[str]) -> bool:
        """Return whether a value could not be computed, here or around."""
        if not self._missing.isdisjoint(filter(None, names)):
            return True
        return self.outer is not None and self.outer._misses(set(names) - self.names.keys())

    def _record_node(
        self, node: NodeProto, opsets: Mapping[str, int], call_attributes: Mapping[str, AttributeProto]
    ) -> None:
        inputs = [self.read_name(n, f"node {title_of(node)}") if n else None for n in node.inputs]
        attributes = attributes_of(node, call_attributes)
        domain = "" if node.domain == "ai.onnx" else node.domain
        function = self.functions.get((node.domain, node.op, node.overload))
        if function is not None:
            self._inline(function, node, inputs, attributes)
        elif node.op == "Constant" and not domain:
            self.names[node.outputs[0]] = self._constant(node, attributes)
        else:
            opset = opsets.get(domain, self.opsets.get(domain, 1))
            definition = find(domain, node.op, opset)
            if definition is None:
                where = f" of the domain {domain}" if domain else ""
                hint = "; save the model with ORT_ENABLE_EXTENDED instead" if domain in _BLOCKED else ""
                why = _WHY.get((domain, node.op), "cannot be expressed")
                raise NotExpressed(f"the operator {node.op}{where} {why}{hint}")
            self._operator(node, definition, opset, inputs, attributes)

    def _operator(
        self,
        node: NodeProto,
        definition: Definition,
        opset: int,
        inputs: list[Name],
        attributes: Mapping[str, AttributeProto],
    ) -> None:
        kinds = [self.dtype(v) for v in inputs]
        # ONNX Runtime had some operators before ONNX.
        first = next(iter(nodes.versions_of(definition.domain, definition.name)), None)
        if first is None or definition.since >= first.since or opset >= first.since:
            nodes.check(definition.domain, definition.name, opset, kinds, len(node.outputs), attributes)
        fed = {"Loop": [plain("Int64"), plain("Bool"), *kinds[2:]], "Scan": kinds}.get(node.op, [])
        before = len(self.problems)
        values: dict[str, Any] = {n: self.attribute(a, fed) for n, a in attributes.items()}
        if len(self.problems) > before:
            # A graph of its own is not whole.
            self._missing.update(node.outputs)
            return
        # What versions before 6 say of memory has no effect.
        surplus = sorted(values.keys() - definition.attributes - {"consumed_inputs"})
        if surplus:
            raise EngineError(f"its attribute {surplus[0]!r} is not supported; leave it out")
        # What subgraphs read from around follows the node's own inputs.
        captured = dict.fromkeys(n for v in values.values() if isinstance(v, Subgraph) for n in v.captured)
        for v in values.values():
            if isinstance(v, Subgraph):
                v.place(list(captured))
        if captured and not definition.takes_more:
            raise NotExpressed("its graphs read values from around, which is not supported")
        inputs = [*inputs, *(self.names[n] for n in captured)]
        types = NodeTypes(tuple(map(self.dtype, inputs)), (), opset, tuple(map(bool, node.outputs)))
        types = types._replace(outputs=definition.types_of(types, values))
        self._said = f"{definition.domain}.{definition.name}".lstrip("."), node.name or None
        # Nodes that draw numbers do not draw the same ones.
        params = Composite(definition, values, types, seed=len(self.graph.oprs) if definition.random else 0)
        read = [self.var(v) for v in inputs if v is not None]
        outs = self.record(kind_of(definition), read, params, names=[n or None for n in node.outputs])
        self.names.update((v.name, v) for v in outs if v.name)

    def record(
        self, type: str, inputs: Sequence[Var], *params: P.Record, names: Sequence[str | None] = (None,)
    ) -> list[Var]:
        """Append an operator and follow types and shapes."""
        outs = self.graph.add(type, *params, inputs=inputs, n_outputs=len(names), names=names)
        outs[0].owner.called, outs[0].owner.name = self._said
        self._follow(*outs)
        return outs

    def _follow(self, *outs: Var) -> None:
        opr = outs[0].owner
        infer_dtypes([opr])
        try:
            follow(opr, self.known, {n: tuple(s) for n, s in self.shapes.items()})
        except EngineError as e:
            self.misfits.append(str(e))

    def attribute(self, a: AttributeProto, fed: Sequence[DType | None] = ()) -> Any:  # noqa: ANN401 - of any type
        """Return an attribute as Python has it; a graph as a function of what is fed to it."""
        kind = a.type or _guessed(a)
        values: dict[int, Callable[[], object]] = {
            1: lambda: a.f,
            2: lambda: a.i,
            3: lambda: bytes(a.s).decode("utf-8", "replace"),
            6: lambda: [float(v) for row in a.floats for v in row],
            7: lambda: [int(v) for row in a.ints for v in row],
            8: lambda: [bytes(s).decode("utf-8", "replace") for s in a.strings],
        }
        if kind in values:
            return values[kind]()
        if kind == 4 and a.t is not None:
            return self.attribute_tensor(a.t)
        if kind == 5 and a.g is not None:
            return self._subgraph(a.g, fed)
        if kind == 11 and a.sparse is not None and a.sparse.values is not None:
            dtype = dtype_of_kind(a.sparse.values.data_type)
            return TensorAttribute(dense(a.sparse, self.external), dtype)
        if kind == 13:
            return type_of(a.kind)
        raise NotExpressed(f"its attribute {a.name} is of the type {kind}")

    def _subgraph(self, proto: GraphProto, fed: Sequence[DType | None]) -> Subgraph:
        """Read a graph inside of this one; see `read`."""
        inner = GraphReader(self.model, self.external, outer=self)
        graph = inner.read(proto, fed)
        shapes = [[declared_shape(i) for i in infos] for infos in (proto.inputs, proto.outputs)]
        return Subgraph(graph, [i.name for i in proto.inputs], inner.captured, *shapes)

    def _constant(self, node: NodeProto, attributes: Mapping[str, AttributeProto]) -> StoredTensor:
        """Return the value of a Constant, which may stand in one of several attributes."""
        if len(attributes) != 1:
            raise FormatError(f"node {title_of(node)} has {len(attributes)} attributes, expected one value")
        (attribute,) = attributes.values()
        value = self.attribute(attribute)
        if isinstance(value, TensorAttribute):
            return tensor_of(value.value, value.dtype, node.outputs[0])
        first = value[0] if isinstance(value, list) and value else value
        name = {int: "Int64", float: "Float32", str: "String"}.get(type(first))
        if name is None:
            name = {"value_ints": "Int64", "value_floats": "Float32"}.get(next(iter(attributes)), "String")
        return tensor_of(np.asarray(value, plain(name).np), plain(name), node.outputs[0])

    def _inline(
        self,
        function: FunctionProto,
        node: NodeProto,
        inputs: Sequence[Name],
        attributes: Mapping[str, AttributeProto],
    ) -> None:
        """Put the nodes of a function in place of its call."""
        if len(inputs) > len(function.inputs):
            raise FormatError(f"the function {function.name} takes {len(function.inputs)} inputs")
        self._depth += 1
        if self._depth > _DEPTH:
            raise FormatError(f"{function.name} is nested in itself, or deeper than {_DEPTH}")
        around, self.names = self.names, dict.fromkeys(function.inputs)
        self.names.update(zip(function.inputs, inputs, strict=False))
        opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in function.opsets}
        try:
            defaults = {a.name: a for a in function.defaults}
            self._nodes(
                function.nodes, None, opsets or self.opsets, {**defaults, **attributes}, {*function.inputs}
            )
            results = [self.read_name(n, f"the function {function.name}'s output") for n in function.outputs]
        finally:
            self.names = around
            self._depth -= 1
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                self.names[name] = value
                if isinstance(value, Var) and value.owner.type != "Host2DeviceCopy":
                    value.name = name

    # Checks

    def check(self, name: str, expected: Array, maxerr: float | None) -> None:
        """Compare an output with its expected value, an input of the graph.

        Args:
            name: the output.
            expected: the value of the first data set, whose shape is a hint.
            maxerr: tolerance of MegEngine's measure; None for the rule of ONNX's backend tests.
        """
        i = next(i for i, v in enumerate(self.graph.outputs) if v.name == name)
        get = self.graph.outputs[i]
        assert get.dtype is not None
        if maxerr is not None:
            self.graph.outputs[i] = add_check(
                self.graph, name, get, expected.shape, maxerr=maxerr, verbose=False
            )
            return
        expect = self.add_input(name + EXPECT, get.dtype)
        expect.owner.tensors[0].shape = expected.shape
        rtol = BRAIN_RTOL if get.dtype.name == "BFloat16" else RTOL
        types = NodeTypes((get.dtype, get.dtype), (plain("Float32"),), 1, (True,))
        (err,) = self.record("Composite", [expect, get], Composite(RULE, {"rtol": rtol}, types))
        param = P.AssertEqual(maxerr=1.0, verbose=False)
        self.graph.outputs[i] = self.graph.add("AssertEqual", param, inputs=[expect, get, err])[0]
        infer_dtypes([self.graph.outputs[i].owner])


def _rule(expect: Array, get: Array, *, rtol: float) -> Array:
    """Compute the error by the rule of ONNX's backend tests; a graph's feeds have no arrays without axes."""
    if expect.size == get.size == 1 and max(expect.ndim, get.ndim) <= 1:
        expect, get = expect.reshape(1), get.reshape(1)
    return np.array([rule_error(expect, get.astype(expect.dtype), rtol)], np.float32)


RULE = Definition("loadrun", "RuleError", _rule, out=("Float32",), shape=lambda expect, get, rtol: (1,))


def kind_of(definition: Definition) -> str:
    """Return the composite operator's type in the catalog."""
    if definition.random:
        return "CompositeRandom"
    if definition.pointwise:
        return "CompositePointwise"
    if not definition.domain and definition.name in ("Shape", "Size"):
        return "CompositeSizes"
    return "Composite" if HOMES.get((definition.domain, definition.name)) in _SHAPING else "CompositeLayer"


def _guessed(a: AttributeProto) -> int:
    """Return the type of an attribute of an early file, which does not say it."""
    present = ((4, a.t), (5, a.g), (6, a.floats), (7, a.ints), (8, a.strings), (3, a.s), (1, a.f))
    return next(
        (k for k, v in present if v is not None and (not hasattr(v, "__len__") or len(v)) and v != 0), 2
    )
