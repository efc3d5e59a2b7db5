"""Nodes of an exported program that ONNX has and MegEngine has not, or neither: how an ONNX model gets them.

Loops and branches become Loop and If, dropout and batch normalization in training those of ONNX, operators with a
function of the user what that writes, and all others nodes of torch's own domain.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..base.errors import UnsupportedError, UsageError
from ..graph.dtypes import DType
from ..onnx.encode import GraphMessage, NodeMessage, TensorMessage, ValueMessage
from ..onnx.inserted import InsertedNode, InsertedOutput, ModuleParts, OpenSizes, inline
from ..onnx.model import Request, WritingOptions, write
from ..onnx.options import OperatorExportTypes
from ..onnx.tensors import ElemType
from ..onnx.writing.emitter import UnsupportedOprError
from ..onnx.writing.writer import OnnxWriter, elem_of
from ..tensors import Tensor
from ..tensors.access import dtype_of, stored, stored_shape, variable_of
from ..tensors.applying import apply1
from ..tensors.switches import exact_arithmetic
from ..tracing.recording import TraceOptions
from ..tracing.traced import Traced
from .against_torch import resizing
from .call import IN_NUMPY, narrow, ndarray
from .exporting import name_of_target, place_of
from .interpret import Constant, Interpreter, Port
from .left_out import Selection, given_results, graph_values, named_tensors, result_names, results_of
from .onnx_gru import has_open_steps, write_gru

ATEN = "org.pytorch.aten"
_ELEM = {dtype: ElemType.of(narrow(dtype)) for dtype in IN_NUMPY}
Write = Callable[[OnnxWriter, Sequence[str]], Sequence[str]]


def recordable(x: Any) -> Any:
    """Return a result as one of the recorded graph: a constant gets an operator that gives it."""
    return apply1("Identity", inputs=[x]) if isinstance(x, Tensor) and variable_of(x) is None else x


@dataclass(eq=False)
class InnerGraph:
    """A graph inside of a program, the body of a loop or a branch, recorded by itself.

    Args:
        interpreter: that of the graph around it.
        module: the graph.
        operands: values for its placeholders.
    """

    interpreter: Interpreter
    module: Any
    operands: Sequence[Any]
    selection: Selection

    def __post_init__(self) -> None:
        nodes = [n for n in self.module.graph.nodes if n.op == "call_function"]
        left_out = {n.name: n for n in nodes if self.selection.chosen(n)}
        fakes = [n.meta["val"] for n in self.module.graph.nodes if n.op == "placeholder"]
        inner = Interpreter(self.interpreter.program, self.interpreter.module, left_out, self.module)
        self.ends: list[str] = []

        def function(*inputs: Tensor) -> Any:
            waiting = iter(inputs)
            feeds = [next(waiting) for _ in fakes]
            with exact_arithmetic():
                outputs = inner.run_graph(feeds, given_results(left_out, waiting))
                self.ends = [f"result{i}" for i in range(len(outputs))]
                named = dict(zip(self.ends, map(recordable, outputs), strict=True))
            return named | {k: v for n in left_out for k, v in zip(*inner.read_by(n), strict=True)}

        seen = graph_values(self.module, self.operands)
        tensors = named_tensors((f"operand{i}", torch.as_tensor(v)) for i, v in enumerate(self.operands))
        results = results_of(left_out, seen)
        names = [f"operand{i}" for i in range(len(tensors))] + [
            k for n in left_out.values() for k in result_names(n)
        ]
        options = TraceOptions(symbolic=True, capture_as_const=True, without_host=True, exact=True)
        recording = Traced(function, options)
        recording(*tensors, *results)
        self.graph = recording.graph(names)
        reads = [key for name in left_out for key in inner.read_by(name)[0]]
        self.outputs = dict(zip([*self.ends, *reads], self.graph.outputs, strict=True))
        self.inputs = [(n, n, dtype_of(t), stored_shape(t)) for n, t in zip(names, tensors, strict=False)]
        self.examples = {n: stored(t) for n, t in zip(names, [*tensors, *results], strict=True)}
        self.inserted = inserted_nodes(inner, left_out, seen, results, self.selection)
        self.resized = {n: resizing(f, s) for (n, _, _, s), f in zip(self.inputs, fakes, strict=True)}
        sizes = [n for f in fakes for n in getattr(f, "shape", ()) if isinstance(n, torch.SymInt)]
        symbols = {s for n in sizes for s in n.node.expr.free_symbols}
        env = sizes[0].node.shape_env if sizes else None
        hints = getattr(env, "backed_var_to_val", None) or getattr(env, "var_to_val", {})
        self.symbols = {str(s): int(hints.get(s, 2)) for s in sorted(symbols, key=str)}

    def write(
        self, w: OnnxWriter, prefix: str, inputs: Sequence[str]
    ) -> tuple[list[NodeMessage], list[TensorMessage], list[str], list[DType]]:
        """Its nodes and constants, and the names and dtypes of its results."""
        request = Request(
            self.graph,
            self.inputs,
            {n: self.outputs[n] for n in self.ends},
            self.examples,
            WritingOptions(opset=w.opset, docs=bool(w.doc)),
            OpenSizes(symbols=self.symbols, resized=self.resized),
            ModuleParts(self.inserted),
            {n: v for n, v in self.outputs.items() if n not in self.ends},
        )
        graph = write(request).model.graph
        dtypes = [self.outputs[n].dtype or DType("Float32") for n in self.ends]
        return (*inline(graph, prefix, inputs), dtypes)


def inserted_nodes(
    interpreter: Interpreter,
    left_out: Mapping[str, Any],
    seen: Mapping[str, Any],
    results: Sequence[Tensor],
    selection: Any,
) -> list[InsertedNode]:
    """Return what an ONNX model gets for the nodes that are left out of a graph.

    Args:
        interpreter: what recorded the graph.
        left_out: the nodes, by name.
        seen: torch's values of all nodes.
        results: the inputs of the graph that stand for what the nodes give.
        selection: the options.
    """
    nodes = []
    waiting = iter(results)
    for name, node in left_out.items():
        fakes = [*node.meta["val"]] if isinstance(node.meta["val"], (tuple, list)) else [node.meta["val"]]
        outputs = []
        for key, fake in zip(result_names(node), fakes, strict=True):
            tensor = next(waiting)
            shape = stored_shape(tensor)
            outputs.append(InsertedOutput(key, dtype_of(tensor), shape, resizing(fake, shape)))
        keys, values = interpreter.read_by(name)
        where = f"{name_of_target(node.target)} in {place_of(node) or 'the module'}"
        call = _Call(interpreter, node, [dtype_of(v) for v in values], outputs, fakes, seen, selection)
        nodes.append(InsertedNode(keys, outputs, call.writer(), where))
    return nodes


@dataclass(eq=False)
class _Call:
    """One node that is left out, and what is known of it."""

    interpreter: Interpreter
    node: Any
    dtypes: Sequence[DType]
    outputs: Sequence[InsertedOutput]
    fakes: Sequence[Any]
    seen: Mapping[str, Any]
    selection: Any

    def writer(self) -> Write:
        """Choose what writes the node."""
        target = name_of_target(self.node.target)
        if target == "higher_order.cond":
            return self._branches()
        if target == "higher_order.while_loop":
            return self._loop()
        registered = self.selection.options.table.get(self.node.target)
        if registered is not None:
            return lambda w, names: self._by_table(w, names, registered)
        if has_open_steps(self.node) and self.selection.options.kind is not OperatorExportTypes.ONNX_ATEN:
            return self._gru
        if self.selection.in_training(self.node):
            return self._dropout if "dropout" in target else self._batch_norm
        return self._foreign

    @property
    def arguments(self) -> tuple[Any, Any]:
        """The arguments, with ports in the places of values."""
        return self.interpreter.arguments[self.node.name]

    def stored(self, w: OnnxWriter, names: Sequence[str], leaf: Any) -> str:
        """Name an argument as the graph holds it: what has no axes as a vector of one element."""
        if isinstance(leaf, Port):
            return names[leaf.number]
        value = leaf.value if isinstance(leaf, Constant) else ndarray(torch.as_tensor(leaf))
        return w.const(np.atleast_1d(value))

    def value(self, w: OnnxWriter, names: Sequence[str], leaf: Any, fake: Any) -> str:
        """Name an argument as torch has it, in its own dtype and rank."""
        if isinstance(leaf, Constant):
            constant = w.const(leaf.value, leaf.name) if leaf.name not in w.initializers else leaf.name
            w.params |= {constant} if leaf.name else set()
            return constant
        name = names[leaf.number]
        want = _ELEM.get(fake.dtype) if isinstance(fake, torch.Tensor) else ElemType.INT64
        if want is not None and elem_of(self.dtypes[leaf.number]) is not want:
            name = w.cast(name, want)
        scalar = not isinstance(fake, torch.Tensor) or not fake.ndim
        return w.reshape(name, []) if scalar else name

    def graph_results(self, w: OnnxWriter, names: Sequence[str]) -> Sequence[str]:
        """Results in torch's dtypes and ranks as the graph holds them."""
        results = []
        for name, output, fake in zip(names, self.outputs, self.fakes, strict=True):
            if name and _ELEM.get(fake.dtype) not in (None, elem_of(output.dtype)):
                name = w.cast(name, elem_of(output.dtype))
            results.append(w.reshape(name, [1]) if name and not fake.ndim else name)
        return results

    def fake_of(self, leaf: Any) -> Any:
        """Return what torch knows of an argument of the node."""
        return leaf.meta.get("val") if isinstance(leaf, torch.fx.Node) else leaf

    # Loops and branches

    def _pieces(self, operands: Sequence[Any]) -> list[InnerGraph]:
        arguments = self.node.args
        graphs = [a for a in arguments if isinstance(a, torch.fx.Node) and a.op == "get_attr"]
        owner = self.interpreter.root
        modules = [getattr(owner, str(a.target)) for a in graphs]
        modules = [m for m in modules if isinstance(m, torch.fx.GraphModule)]
        values = [self.seen[o.name] if isinstance(o, torch.fx.Node) else o for o in operands]
        return [InnerGraph(self.interpreter, m, values, self.selection) for m in modules]

    def _branches(self) -> Write:
        (predicate, _, _, *operands) = self.arguments[0]
        pieces = self._pieces([*self.node.args[3]] if len(self.node.args) > 3 else [])
        leaves = [*operands[0]] if operands else []

        def write(w: OnnxWriter, names: Sequence[str]) -> Sequence[str]:
            inputs = [self.stored(w, names, leaf) for leaf in leaves]
            flag = w.cast(self.stored(w, names, predicate), ElemType.BOOL)
            graphs = []
            for piece in pieces:
                nodes, constants, ends, dtypes = piece.write(w, w.fresh("branch"), inputs)
                ends = self._ends(w, nodes, ends, dtypes)
                outputs = [
                    ValueMessage(n, elem_of(o.dtype), None) for n, o in zip(ends, self.outputs, strict=True)
                ]
                graphs.append(GraphMessage(w.fresh("branch"), nodes, constants, [], outputs))
            return w.ops("If", flag, out=len(self.outputs), then_branch=graphs[0], else_branch=graphs[1])

        return write

    def _ends(
        self, w: OnnxWriter, nodes: list[NodeMessage], ends: Sequence[str], dtypes: Sequence[DType]
    ) -> list[str]:
        """Results of a graph under names of their own, in the dtypes of the node's results."""
        names = []
        for name, dtype, output in zip(ends, dtypes, self.outputs, strict=True):
            result = w.fresh("result")
            same = elem_of(dtype) is elem_of(output.dtype)
            to = {} if same else {"to": int(elem_of(output.dtype))}
            nodes.append(NodeMessage("Identity" if same else "Cast", [name], [result], to))
            names.append(result)
        return names

    def _loop(self) -> Write:
        (_, _, carried, more) = self.arguments[0]
        condition, body = self._pieces([*self.node.args[2], *self.node.args[3]])

        def write(w: OnnxWriter, names: Sequence[str]) -> Sequence[str]:
            first = [self.stored(w, names, leaf) for leaf in carried]
            fixed = [self.stored(w, names, leaf) for leaf in more]
            nodes, constants, (go,), _ = condition.write(w, w.fresh("loop"), [*first, *fixed])
            w.nodes += nodes
            w.initializers |= {t.name: t for t in constants}
            states = [w.fresh("state") for _ in first]
            nodes, constants, ends, dtypes = body.write(w, w.fresh("loop"), [*states, *fixed])
            ends = self._ends(w, nodes, ends, dtypes)
            again, besides, (flag,), _ = condition.write(w, w.fresh("loop"), [*ends, *fixed])
            flags = [w.fresh("go"), w.fresh("go")]
            nodes += [*again, NodeMessage("Cast", [flag], [flags[0]], {"to": int(ElemType.BOOL)})]
            elems = [elem_of(o.dtype) for o in self.outputs]
            inner = [
                ValueMessage(w.fresh("step"), ElemType.INT64, ()),
                ValueMessage(flags[1], ElemType.BOOL, None),
            ]
            inner += [ValueMessage(n, e, None) for n, e in zip(states, elems, strict=True)]
            outer = [ValueMessage(flags[0], ElemType.BOOL, None)]
            outer += [ValueMessage(n, e, None) for n, e in zip(ends, elems, strict=True)]
            graph = GraphMessage(w.fresh("body"), nodes, [*constants, *besides], inner, outer)
            return w.ops("Loop", "", w.cast(go, ElemType.BOOL), *first, out=len(first), body=graph)

        return write

    def _gru(self, w: OnnxWriter, names: Sequence[str]) -> Sequence[str]:
        x, state, params, _, layers, _, _, both, batch_first = self.arguments[0]
        fed = self.value(w, names, x, self.fake_of(self.node.args[0]))
        before = self.value(w, names, state, self.fake_of(self.node.args[1]))
        weights = [p.value for p in params]
        return self.graph_results(w, write_gru(w, fed, before, weights, layers, both, batch_first))

    # Operators in training

    def _dropout(self, w: OnnxWriter, names: Sequence[str]) -> Sequence[str]:
        w.need(12, "Dropout in training")
        args, kwargs = self.arguments
        x, rate = [*args, *kwargs.values()][:2]
        value = self.value(w, names, x, self.fake_of(self.node.args[0]))
        outputs = w.ops("Dropout", value, w.f32(float(rate)), w.const(np.bool_(True)), out=len(self.outputs))
        return self.graph_results(w, outputs)

    def _batch_norm(self, w: OnnxWriter, names: Sequence[str]) -> Sequence[str]:
        """Normalize by the batch's statistics; what the module's own become has no place in a model."""
        w.need(14, "BatchNormalization in training")
        arguments, fakes = [*self.arguments[0]], [self.fake_of(a) for a in self.node.args]
        momentum, eps = arguments[6], arguments[7]
        channels = fakes[0].shape[1]
        fills = (None, 1.0, 0.0, 0.0, 1.0)
        operands = [
            w.const(np.full(channels, fill, np.float32)) if leaf is None else self.value(w, names, leaf, fake)
            for leaf, fake, fill in zip(arguments, fakes, fills, strict=False)
        ]
        out, *_ = w.ops(
            "BatchNormalization",
            *operands,
            out=3,
            epsilon=float(eps),
            momentum=1.0 - float(momentum),
            training_mode=1,
        )
        return self.graph_results(w, [out, *[""] * (len(self.outputs) - 1)])

    # Operators that ONNX does not have

    def _foreign(self, w: OnnxWriter, names: Sequence[str]) -> Sequence[str]:
        """Write a node of torch's: arguments in the operator's order, numbers as constants, the rest as attributes."""
        schema = self.node.target._schema
        named = (
            dict(zip((a.name for a in schema.arguments), self.arguments[0], strict=False)) | self.arguments[1]
        )
        raw = dict(zip((a.name for a in schema.arguments), self.node.args, strict=False)) | dict(
            self.node.kwargs
        )
        inputs: list[str] = []
        attributes: dict[str, Any] = {}
        for argument in schema.arguments:
            if argument.name not in named and argument.has_default_value():
                named[argument.name] = raw[argument.name] = argument.default_value
            value = named.get(argument.name)
            if isinstance(value, (str, torch.dtype, torch.device, torch.layout, torch.memory_format)):
                attributes[argument.name] = str(value).removeprefix("torch.")
                continue
            inputs += self._inputs(w, names, value, raw.get(argument.name))
        space, _, operator = schema.name.partition("::")
        out = len(self.outputs)
        if self.selection.options.kind is OperatorExportTypes.ONNX_FALLTHROUGH:
            domain = ATEN if space == "aten" else space
            return self.graph_results(w, w.ops(operator, *inputs, out=out, domain=domain, **attributes))
        about = {"operator": operator, "overload_name": schema.overload_name, **attributes}
        return self.graph_results(w, w.ops("ATen", *inputs, out=out, domain=ATEN, **about))

    def _inputs(self, w: OnnxWriter, names: Sequence[str], value: Any, raw: Any) -> list[str]:
        """Name an argument as inputs of a node, a list of tensors as several."""
        if value is None:
            return [""]
        if isinstance(value, (Port, Constant)):
            return [self.value(w, names, value, self.fake_of(raw))]
        if isinstance(value, (list, tuple)):
            if any(isinstance(v, (Port, Constant)) for v in value):
                parts = [self._inputs(w, names, v, r) for v, r in zip(value, raw, strict=True)]
                return [name for part in parts for name in part]
            return [
                w.const(np.array(value, np.int64 if all(isinstance(v, int) for v in value) else np.float32))
            ]
        kind = np.bool_ if isinstance(value, bool) else np.int64 if isinstance(value, int) else np.float32
        return [w.const(kind(value))]

    def _by_table(self, w: OnnxWriter, names: Sequence[str], function: Callable[..., Any]) -> Sequence[str]:
        """Write what a function in ONNX Script calls."""
        args, kwargs = self.arguments
        pairs = zip(pytree.tree_leaves(args), pytree.tree_leaves(self.node.args), strict=True)
        fakes = {id(leaf): self.fake_of(raw) for leaf, raw in pairs}

        def named(leaf: Any) -> Any:
            if isinstance(leaf, (Port, Constant)):
                return ScriptValue(self.value(w, names, leaf, fakes.get(id(leaf))))
            return leaf

        try:
            results = by_script(w, function, *pytree.tree_map(named, (args, kwargs)))
        except (UnsupportedOprError, UsageError):
            raise
        except Exception as e:
            what = name_of_target(self.node.target)
            raise UsageError(f"the function for {what} in custom_translation_table fails: {e}") from e
        if len(results) != len(self.outputs):
            raise UnsupportedError(
                f"the function for {name_of_target(self.node.target)} returns {len(results)} values, expected "
                f"{len(self.outputs)}"
            )
        return self.graph_results(w, results)


@dataclass(frozen=True)
class ScriptValue:
    """A value of the model, by name, as functions in ONNX Script take and give it."""

    name: str


def by_script(
    w: OnnxWriter, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[str]:
    """Write what a function in ONNX Script calls; the names of its results.

    Raises:
        UsageError: onnxscript is not installed.
    """
    try:
        from onnxscript import evaluator  # optional
    except ImportError:
        raise UsageError("custom_translation_table needs onnxscript: pip install onnxscript") from None

    class Writer(evaluator.Evaluator):  # type: ignore[misc]
        def eval(self, schema: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
            if not schema.domain:
                w.need(schema.since_version, f"{schema.name} as the function has it")
            count = max(schema.min_output, 1)
            keywords = {
                k: float(v) if isinstance(v, np.floating) else v
                for k, v in attributes.items()
                if v is not None
            }
            outputs = w.ops(schema.name, *map(_name, inputs), out=count, domain=schema.domain, **keywords)
            return ScriptValue(outputs[0]) if count == 1 else tuple(map(ScriptValue, outputs))

        def eval_function(self, called: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            return called.function(*args, **kwargs)

        def use_graph_attribute(self, schema: Any) -> bool:
            return True

    def _name(value: Any) -> str:
        if value is None or isinstance(value, ScriptValue):
            return "" if value is None else value.name
        kind = {float: np.float32, int: np.int64, bool: np.bool_}.get(type(value))
        return w.const(np.asarray(value) if kind is None else kind(value))

    with evaluator.default_as(Writer()):
        result = function(*args, **kwargs)
    return [v.name for v in (result if isinstance(result, (list, tuple)) else [result])]
