"""Graphs of MegEngine's operators as ONNX models: sizes, the walk over the operators, inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..dtypes import Array
from ..errors import LoadRunError, UnsupportedError, UsageError
from ..graph import Graph, Opr, Var
from ..ops.infer import Inference, describe, infer_dtypes, infer_shapes
from ..ops.registry import Call, Shape, implementation
from .encode import GraphMessage, ModelMessage, TensorMessage, ValueMessage
from .writing import TRANSLATIONS, load_families, reason
from .writing.emitter import Refused
from .writing.writer import Writer, elem_of

__all__ = ["NEWEST_OPSET", "Written", "ir_version", "write"]

OLDEST_OPSET, NEWEST_OPSET = 7, 26
DEFAULT_OPSET = 18
_STORED = frozenset(
    {
        *("ImmutableTensor", "SharedDeviceTensor", "VolatileSharedDeviceTensor", "SharedDeviceTensorWithFormat"),
        *("MultipleDeviceTensorHolder", "MultipleDeviceTensorWithFormatHolder", "Host2DeviceCopy"),
    }
)


def ir_version(opset: int) -> int:
    """The version of the file format that goes with an opset and that today's runtimes read.

    >>> ir_version(7), ir_version(18), ir_version(20), ir_version(23)
    (8, 8, 9, 10)
    """
    return 8 if opset <= 18 else 9 if opset <= 20 else 10


@dataclass(eq=False)
class Written:
    """An ONNX model and what is known of how it came to be.

    Attributes:
        model: the model.
        opset: version of ONNX's operators.
        inputs: name in the graph and in the model, of every input in order.
        outputs: the same of every output.
        approximated: what is not exactly what the operators do, and where that is first the case.
        operators: how many operators of each type were written.
        dynamic: names of sizes by input name.
    """

    model: ModelMessage
    opset: int
    inputs: dict[str, str]
    outputs: dict[str, str]
    approximated: dict[str, str]
    operators: dict[str, int]
    dynamic: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


def write(
    graph: Graph,
    *,
    outputs: Mapping[str, Var] | None = None,
    shapes: Mapping[str, Shape] | None = None,
    example: Mapping[str, Array] | None = None,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    renamed: Mapping[str, str] | None = None,
    opset: int | None = None,
    export_params: bool = True,
    weights_are_inputs: bool = False,
    docs: bool = False,
    opsets: Mapping[str, int] | None = None,
) -> Written:
    """Translate a graph.

    Args:
        graph: a graph without checks; dtypes are inferred.
        outputs: the outputs by name, default those of the graph.
        shapes: the example's shapes by input name, default those of the graph.
        example: values of inputs, from which ranks follow that depend on values.
        dynamic: names of sizes that may change, by input name and axis.
        renamed: new names of inputs.
        opset: version of ONNX's operators; None takes 18, or the first one later that has all that is needed.
        export_params: whether the weights' values are stored.
        weights_are_inputs: whether weights are listed as inputs as well.
        docs: whether nodes say which operator they come from.
        opsets: versions of other domains.

    Raises:
        UnsupportedError: operators that cannot be written, all of them.
        UsageError: an opset that does not exist, or sizes that do not fit.
    """
    if opset is not None and not OLDEST_OPSET <= opset <= NEWEST_OPSET:
        raise UsageError(
            f"opset_version is {OLDEST_OPSET} to {NEWEST_OPSET}, found {opset}; older runtimes take 7 to 9, "
            "today's take all"
        )
    load_families()
    ends = dict(outputs) if outputs is not None else _named(graph.outputs)
    oprs = graph.needed(ends.values())
    infer_dtypes(oprs)
    plan = _Plan(graph, oprs, dict(shapes or {}), dynamic or {}, dict(example or {}))
    version = DEFAULT_OPSET if opset is None else opset
    while True:
        walk = _Walk(Writer(version, plan.known, plan.observed), graph, oprs, docs)
        refused = walk.run(dict(renamed or {}))
        newer = max((r.opset for _, r in refused if r.opset), default=0)
        if not refused:
            break
        if opset is None and newer > version and all(r.opset for _, r in refused):
            version = newer
            continue
        raise UnsupportedError(_listed(refused))
    return walk.finish(ends, plan, export_params, weights_are_inputs, dict(opsets or {}))


def _named(outputs: Iterable[Var]) -> dict[str, Var]:
    found: dict[str, Var] = {}
    for var in outputs:
        name, n = var.label, 2
        while name in found:
            name, n = f"{var.label}#{n}", n + 1
        found[name] = var
    return found


def _listed(refused: Sequence[tuple[Opr, Refused]]) -> str:
    lines = [f"{describe(opr)}: {why}" for opr, why in refused]
    count = f"{len(lines)} operator{'s' * (len(lines) > 1)}"
    return f"{count} cannot be written as ONNX:\n" + "\n".join(f"  {line}" for line in lines)


# Sizes


class _Plan:
    """What is known of shapes: for the example's sizes, and for other ones where axes are dynamic."""

    def __init__(
        self,
        graph: Graph,
        oprs: list[Opr],
        shapes: dict[str, Shape],
        dynamic: Mapping[str, Mapping[int, str]],
        example: dict[str, Array],
    ) -> None:
        self.graph, self.oprs = graph, oprs
        self.example = example
        self.dynamic = dynamic
        first = {}
        for opr in oprs:
            if opr.type != "Host2DeviceCopy":
                continue
            name, shape = opr.outputs[0].name or "", opr.tensors[0].shape
            given = shapes.get(name, shape)
            if given is None:
                raise UsageError(f"the file leaves the shape of input {name!r} open: give example inputs (args)")
            first[name] = tuple(given)
        self.first = first
        self.known = [infer_shapes(graph, oprs, first)]
        if any(dynamic.values()):
            self.known += self._others()
        self.observed = self._observe()

    def _others(self) -> list[Inference]:
        """Inference with other sizes of the dynamic axes, of which as many as make sense are tried."""
        found, why = [], None
        for change in (lambda n, i: 2 * n, lambda n, i: n + 1 + i, lambda n, i: 3 * n + i, lambda n, i: n + 32):
            numbers: dict[str, int] = {}
            sizes = dict(self.first)
            for name, axes in self.dynamic.items():
                shape = list(self.first[name])
                for axis, symbol in axes.items():
                    numbers.setdefault(symbol, change(shape[axis], len(numbers)))
                    shape[axis] = numbers[symbol]
                sizes[name] = tuple(shape)
            try:
                found.append(infer_shapes(self.graph, self.oprs, sizes))
            except LoadRunError as e:
                why = e
        if not found:
            raise UsageError(f"no other sizes of the dynamic axes fit the model: {why}")
        return found

    def _observe(self) -> dict[int, tuple[int, ...]]:
        """Shapes that follow from values alone, as one run on numbers gives them."""
        shapes = self.known[0].shapes
        unknown = [o for o in self.oprs if any(v.id not in shapes for v in o.outputs)]
        if not unknown or any(o.type.startswith("CondExec") for o in self.oprs):
            return {}
        values: dict[int, Array] = {}
        rng = np.random.default_rng(0)
        try:
            for opr in self.graph.needed(v for o in unknown for v in o.outputs):
                self._execute(opr, values, rng)
        except Exception:
            # Numbers at random may lie outside what an operator takes; what was seen until then is known.
            pass
        return {v.id: values[v.id].shape for o in unknown for v in o.outputs if v.id in values}

    def _execute(self, opr: Opr, values: dict[int, Array], rng: np.random.Generator) -> None:
        if opr.type == "Host2DeviceCopy":
            var = opr.outputs[0]
            assert var.dtype is not None
            given = self.example.get(var.name or "")
            values[var.id] = rng.random(self.first[var.name or ""]).astype(var.dtype.np) if given is None else given
            return
        if opr.tensors:
            for var, tensor in zip(opr.outputs, opr.tensors, strict=True):
                values[var.id] = tensor.value()
            return
        ins = tuple(v.dtype for v in opr.inputs)
        outs = tuple(v.dtype for v in opr.outputs)
        call = Call(opr, ins, outs)  # type: ignore[arg-type]
        with np.errstate(all="ignore"):
            found = implementation(opr.type).kernel(call, *(values[v.id] for v in opr.inputs))
        for var, value in zip(opr.outputs, found if isinstance(found, tuple) else (found,), strict=True):
            values[var.id] = value


# The walk over the operators


class _Walk:
    def __init__(self, writer: Writer, graph: Graph, oprs: list[Opr], docs: bool) -> None:
        self.w = writer
        self.oprs = oprs
        self.docs = docs
        self.inputs: dict[str, tuple[str, Var]] = {}
        self.operators: dict[str, int] = {}
        for opr in oprs:
            for var in opr.inputs:
                writer.readers.setdefault(var.id, []).append(opr)

    def run(self, renamed: dict[str, str]) -> list[tuple[Opr, Refused]]:
        """Write all operators; which ones cannot be, and why."""
        refused: list[tuple[Opr, Refused]] = []
        lost: set[int] = set()
        w = self.w
        for opr in self.oprs:
            if opr.type == "Host2DeviceCopy":
                self._input(opr.outputs[0], renamed)
        for opr in self.oprs:
            self.operators[opr.title] = self.operators.get(opr.title, 0) + (opr.type not in _STORED)
            if opr.type in _STORED or all(w.value(v) is not None for v in opr.outputs):
                continue
            if all(v.id in w.names for v in opr.outputs):
                continue
            if any(v.id in lost for v in opr.inputs):
                lost.update(v.id for v in opr.outputs)
                if opr.type in TRANSLATIONS:
                    continue
            w.doc = describe(opr) if self.docs else ""
            try:
                self._write(opr)
            except Refused as e:
                refused.append((opr, e))
                lost.update(v.id for v in opr.outputs)
        return refused

    def _write(self, opr: Opr) -> None:
        made = TRANSLATIONS.get(opr.type)
        if made is None:
            raise Refused(reason(opr.type))
        found = made(self.w, opr)
        names = [found] if isinstance(found, str) else list(found)
        for var, name in zip(opr.outputs, names, strict=False):
            self.w.names[var.id] = name

    def _input(self, var: Var, renamed: dict[str, str]) -> None:
        name = renamed.get(var.name or "", var.name or f"input_{var.id}")
        elem_of(self.w.dtype(var))
        made = self.w.claim(name)
        self.w.names[var.id] = made
        self.inputs[var.name or ""] = made, var

    def finish(
        self,
        ends: Mapping[str, Var],
        plan: _Plan,
        export_params: bool,
        weights_are_inputs: bool,
        opsets: dict[str, int],
    ) -> Written:
        """The model: outputs under their names, inputs in the graph's order."""
        w = self.w
        w.doc = ""
        outputs, named = [], {}
        for name, var in ends.items():
            own = w.claim(name)
            try:
                w.ops("Identity", w.name(var), out=[own])
            except Refused as e:
                raise UnsupportedError(f"output {name!r} cannot be written as ONNX: {e}") from None
            named[name] = own
            try:
                shape: tuple[int | str | None, ...] | None = self._symbols(w.shape(var), name)
            except Refused:
                shape = None
            outputs.append(ValueMessage(own, elem_of(w.dtype(var)), shape))
        inputs = []
        for name in sorted(self.inputs, key=str.encode):
            made, var = self.inputs[name]
            axes = plan.dynamic.get(name, {})
            shape = tuple(axes.get(i, n) for i, n in enumerate(plan.first[name]))
            inputs.append(ValueMessage(made, elem_of(w.dtype(var)), shape))
        order = {name: made for name, (made, _) in sorted(self.inputs.items(), key=lambda i: i[0].encode())}
        graph = w.graph("main_graph", inputs, outputs)
        _merge_ends(graph)
        if weights_are_inputs or not export_params:
            graph.inputs += [ValueMessage(t.name, t.elem, t.dims) for t in graph.initializers]
        if not export_params:
            graph.initializers = []
        used = {n.domain for n in graph.nodes if n.domain}
        for domain in sorted(used - set(opsets)):
            opsets[domain] = 1
        model = ModelMessage(graph, {"": w.opset, **opsets}, ir_version(w.opset))
        return Written(
            model,
            w.opset,
            order,
            named,
            dict(w.notes),
            {k: n for k, n in sorted(self.operators.items()) if n},
            plan.dynamic,
        )

    def _symbols(self, shape: tuple[int | None, ...], name: str) -> tuple[int | str | None, ...]:
        return tuple(f"{name}_dim_{i}" if n is None else n for i, n in enumerate(shape))


def _merge_ends(graph: GraphMessage) -> None:
    """Let outputs' names stand at the nodes that make them, where nothing else has a claim to those."""
    makers = {name: node for node in graph.nodes for name in node.outputs}
    uses: dict[str, int] = {}
    for node in graph.nodes:
        for name in node.inputs:
            uses[name] = uses.get(name, 0) + 1
    ends = {v.name for v in graph.outputs}
    inner = {name for node in graph.nodes for name in _captured(node.attributes.values())}
    kept, renamed = [], {}
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else ""
        if (
            node.op_type == "Identity"
            and node.outputs[0] in ends
            and source in makers
            and source not in ends
            and source not in renamed
            and source not in inner
        ):
            renamed[source] = node.outputs[0]
        else:
            kept.append(node)
    for node in kept:
        node.inputs = [renamed.get(n, n) for n in node.inputs]
        node.outputs = [renamed.get(n, n) for n in node.outputs]
    graph.nodes = kept


def _captured(attributes: Iterable[object]) -> set[str]:
    from .writing.emitter import free_names

    found: set[str] = set()
    for value in attributes:
        if isinstance(value, GraphMessage):
            found |= free_names(value)
    return found


def weights(model: ModelMessage) -> list[TensorMessage]:
    """The initializers of a model."""
    return model.graph.initializers
