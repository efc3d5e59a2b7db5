"""Graphs of MegEngine's operators as ONNX models: sizes, the walk over the operators, inputs and outputs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..base import __version__
from ..base.errors import LoadRunError, UnsupportedError, UsageError
from ..engines.reference import observed_shapes
from ..graph import Graph, Opr, Var, readers_of
from ..graph.dtypes import Array, DType
from ..ops.catalog import select
from ..ops.control import find_branches
from ..ops.infer import describe, infer_dtypes, infer_shapes
from ..ops.registry import Shape
from .encode import ModelMessage, NodeMessage, TensorMessage, ValueMessage
from .inserted import InsertedNode, ModuleParts, OpenSizes, domains, keep_names, merge_ends, number_names
from .tensors import ElemType
from .writing import TRANSLATIONS
from .writing.emitter import UnsupportedOprError
from .writing.io import requirements
from .writing.writer import OnnxWriter, elem_of

OLDEST_OPSET, NEWEST_OPSET = 7, 26
DEFAULT_OPSET = 18
_STORED = select(lambda op: op.category == "io")
_FLOATS = (ElemType.FLOAT16, ElemType.FLOAT, ElemType.DOUBLE)


def _constant(tensor: TensorMessage, opset: int) -> list[NodeMessage]:
    """Return the nodes that make a constant: one, or a Cast behind it before opset 9, where Constant takes floats."""
    plain = [NodeMessage("Constant", [], [tensor.name], {"value": tensor})]
    if opset >= 9 or tensor.elem in _FLOATS or tensor.value is None:
        return plain
    value = tensor.value.astype(np.float64)
    if (np.abs(value) >= 2**53).any():
        return plain
    source = f"{tensor.name}_float64"
    floats = TensorMessage(source, ElemType.DOUBLE, tensor.dims, value)
    return [
        NodeMessage("Constant", [], [source], {"value": floats}),
        NodeMessage("Cast", [source], [tensor.name], {"to": int(tensor.elem)}),
    ]


def ir_version(opset: int) -> int:
    """Return the file format version that goes with an opset and that today's runtimes read.

    >>> ir_version(7), ir_version(18), ir_version(20), ir_version(23)
    (8, 8, 9, 10)
    """
    return 8 if opset <= 18 else 9 if opset <= 20 else 10


@dataclass(eq=False)
class WrittenModel:
    """An ONNX model and the facts of its export.

    Attributes:
        model: the model.
        opset: version of ONNX's operators.
        inputs: name in the graph and in the model, of every input in order.
        outputs: the same of every output.
        approximated: deviations from the operators, and where each occurs first.
        operators: how many operators of each type were written.
        sizes: shapes of the inputs that were found to fit: the example's first.
        weights: the parameters among the initializers.
    """

    model: ModelMessage
    opset: int
    inputs: dict[str, str]
    outputs: dict[str, str]
    approximated: dict[str, str]
    operators: dict[str, int]
    sizes: Sequence[Mapping[str, Shape]]
    weights: list[TensorMessage]


@dataclass(frozen=True, kw_only=True)
class WritingOptions:
    """How a model is written.

    Attributes:
        opset: version of ONNX's operators; None takes 18, or the first one later that has all that is needed.
        export_params: whether the weights' values are stored.
        weights_are_inputs: whether weights are listed as inputs as well.
        docs: whether nodes say which operator they come from.
        opsets: versions of other domains.
    """

    opset: int | None = None
    export_params: bool = True
    weights_are_inputs: bool = False
    docs: bool = False
    opsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class Request:
    """A model to write.

    Attributes:
        graph: a graph without checks.
        inputs: name in the graph, name in the model, dtype and the example's shape of every input in order; inputs
            that nothing reads may be among them.
        outputs: the outputs by the names that they get.
        example: values of inputs, from which ranks follow that depend on values.
        options: how.
        sizes: which sizes may change.
        module: what is beside the graph's operators.
        reads: what inserted nodes read.
        scalars: inputs and outputs without axes, which the graph holds as vectors of one element.
    """

    graph: Graph
    inputs: Sequence[tuple[str, str, DType, Shape]]
    outputs: Mapping[str, Var]
    example: Mapping[str, Array] = field(default_factory=dict)
    options: WritingOptions = field(default_factory=WritingOptions)
    sizes: OpenSizes = field(default_factory=OpenSizes)
    module: ModuleParts = field(default_factory=ModuleParts)
    reads: Mapping[str, Var] = field(default_factory=dict)
    scalars: Collection[str] = ()


class NotWrittenError(UnsupportedError):
    """Operators that ONNX does not have.

    Attributes:
        refused: each with its place in the graph, and why.
    """

    refused: Sequence[tuple[str, str]] = ()


def _not_written(refused: Sequence[tuple[str, str]]) -> NotWrittenError:
    count = f"{len(refused)} operator{'s' * (len(refused) > 1)}"
    lines = "\n".join(f"  {operator}: {why}" for operator, why in refused)
    error = NotWrittenError(f"{count} cannot be written as ONNX:\n{lines}")
    error.refused = refused
    return error


def write(request: Request) -> WrittenModel:
    """Translate a graph.

    Raises:
        NotWrittenError: operators that cannot be written, all of them.
        UsageError: an opset that does not exist, or sizes that do not fit.
    """
    opset = request.options.opset
    if opset is not None and not OLDEST_OPSET <= opset <= NEWEST_OPSET:
        raise UsageError(
            f"opset_version must be from {OLDEST_OPSET} to {NEWEST_OPSET}, found {opset}; older runtimes support 7 to "
            "9, current ones all"
        )
    oprs = request.graph.needed([*request.outputs.values(), *request.reads.values()])
    infer_dtypes(oprs)
    plan = _KnownShapes(request, oprs)
    version = DEFAULT_OPSET if opset is None else opset
    while True:
        walk = _Walk(OnnxWriter(version, plan.known, plan.observed), request, oprs, plan.sizes)
        refused = walk.run()
        newer = max((r.opset for _, r in refused if r.opset), default=0)
        if not refused:
            break
        if opset is None and newer > version and all(r.opset for _, r in refused):
            version = newer
            continue
        raise _not_written(
            [(o.where if isinstance(o, InsertedNode) else describe(o), str(why)) for o, why in refused]
        )
    return walk.finish(plan)


# Sizes


class _KnownShapes:
    """Inferred shapes: for the example's sizes, and for other ones where axes are dynamic.

    Attributes:
        sizes: the inputs' shapes, one dict for each entry of `known`.
    """

    def __init__(self, request: Request, oprs: list[Opr]) -> None:
        self.request, self.graph, self.oprs = request, request.graph, oprs
        self.example, self.open = request.example, request.sizes
        self.ends = [*request.outputs.values(), *request.reads.values()]
        self.first = {name: shape for name, _, _, shape in request.inputs}
        self.first |= {o.name: o.shape for node in request.module.inserted for o in node.outputs}
        self.first |= {n: v.shape or (1,) for n, v in request.module.parameters.items()}
        self.sizes = [self.first]
        self.known = [infer_shapes(self.graph, oprs, self.first)]
        if any(self.open.inputs.values()) or self.open.symbols:
            self._add_others(self.open.fitting)
        self.observed: dict[int, Shape] = {}
        if not set(self.example) < set(self.first):
            # Shapes that follow from values alone are those of one run on the example's values.
            self.observed = observed_shapes(self.graph, self.ends, self.known[0].shapes, self.example)

    def _add_others(self, size_sets: Sequence[Mapping[str, Shape]]) -> None:
        """Infer with other sizes of the dynamic axes: those given, then as many of some more as make sense."""
        why: LoadRunError | None = None
        limited = False
        for sizes in size_sets:
            if {**self.first, **sizes} in self.sizes:
                continue
            self.sizes.append({**self.first, **sizes})
            self.known.append(infer_shapes(self.graph, self.oprs, self.sizes[-1]))
        changes: tuple[Callable[[int, int], int], ...] = (
            lambda n, i: 2 * n,
            lambda n, i: n + 1 + i,
            lambda n, i: 3 * n + i,
            lambda n, i: n + 32,
            lambda n, i: max(n // 2, 1),
            lambda n, i: max(n - 1 - i, 1),
            # A model that takes multiples alone takes these.
            lambda n, i: 3 * n,
            lambda n, i: 4 * n,
        )
        for change in changes:
            sizes = self._changed(change)
            if sizes in self.sizes:
                continue
            if said := self.open.invalid(sizes):
                why, limited = UsageError(said), True
                continue
            try:
                known = infer_shapes(self.graph, self.oprs, sizes)
            except LoadRunError as e:
                why = e
                continue
            self.sizes.append(sizes)
            self.known.append(known)
        self._check(why, limited)

    def _changed(self, change: Callable[[int, int], int]) -> dict[str, Shape]:
        """Change the numbers of the sizes that have names in the example's shapes."""
        numbers = {name: change(n, i) for i, (name, n) in enumerate(self.open.symbols.items())}
        sizes = dict(self.first)
        for name, axes in self.open.inputs.items():
            shape = list(self.first[name])
            for axis, named in axes.items():
                symbol = self.open.tied.get((name, axis), named)
                if symbol not in numbers:
                    numbers[symbol] = change(shape[axis], len(numbers))
                shape[axis] = numbers[symbol]
            sizes[name] = tuple(shape)
        sizes |= {name: resized(numbers) for name, resized in self.open.resized.items()}
        sizes |= {o.name: o.resized(numbers) for node in self.request.module.inserted for o in node.outputs}
        return sizes

    def _check(self, why: LoadRunError | None, limited: bool) -> None:
        for name, axes in self.open.inputs.items():
            for axis, symbol in axes.items():
                sizes = {s[name][axis] for s in self.sizes}
                if len(sizes) < 2 or (limited and len([n for n in sizes if n > self.first[name][axis]]) < 2):
                    raise UsageError(
                        f"axis {axis} of {name!r} ({symbol}) cannot be dynamic: the model accepts no other size. {why}"
                    )


# The walk over the operators


class _Walk:
    def __init__(
        self, writer: OnnxWriter, request: Request, oprs: list[Opr], sizes: Sequence[Mapping[str, Shape]]
    ) -> None:
        self.w = writer
        self.sizes = sizes
        self.request = request
        self.oprs = oprs
        writer.reserved = frozenset(v.name for o in oprs for v in o.outputs if v.name)
        branches = find_branches(oprs)
        writer.merged = branches.merged
        self.inputs: dict[str, str] = {}
        self.operators: dict[str, int] = {}
        writer.described = self._doc
        writer.ends = {v.id for v in (*request.outputs.values(), *request.reads.values())}
        writer.readers = readers_of(oprs)
        for opr in oprs:
            writer.decide(opr)
        writer.required = requirements(oprs, writer.readers, writer.ends)
        self.inside = {*branches.guard}.union(*writer.required.values())

    def run(self) -> list[tuple[Opr | InsertedNode, UnsupportedOprError]]:
        """Write all operators; which ones cannot be, and why."""
        refused: list[tuple[Opr | InsertedNode, UnsupportedOprError]] = []
        lost: set[int] = set()
        w = self.w
        self._name_inputs(refused, lost)
        for opr in self.oprs:
            self.operators[opr.title] = self.operators.get(opr.title, 0) + (opr.type not in _STORED)
            written = all(w.value(v) is not None for v in opr.outputs) or all(
                v.id in w.names for v in opr.outputs
            )
            if opr.id in self.inside or opr.type in _STORED or written:
                continue
            if any(v.id in lost for v in opr.inputs):
                lost.update(v.id for v in opr.outputs)
                if opr.type in TRANSLATIONS:
                    continue
            w.doc = self._doc(opr)
            try:
                w.translate(opr)
            except UnsupportedOprError as e:
                refused.append((e.opr or opr, e))
                lost.update(v.id for v in opr.outputs)
        return refused

    def _name_inputs(
        self, refused: list[tuple[Opr | InsertedNode, UnsupportedOprError]], lost: set[int]
    ) -> None:
        """Name the graph's inputs: the model's, its weights, and what inserted nodes give, which are written here."""
        w = self.w
        by_name = {o.outputs[0].name or "": o for o in self.oprs if o.type == "Host2DeviceCopy"}
        for name, new, dtype, _ in self.request.inputs:
            self.inputs[name] = w.claim(new)
            opr = by_name.get(name)
            if opr is None:
                continue
            info = self.inputs[name]
            w.names[opr.outputs[0].id] = w.reshape(info, [1]) if name in self.request.scalars else info
            try:
                elem_of(dtype)
            except UnsupportedOprError as e:
                refused.append((opr, e))
                lost.add(opr.outputs[0].id)
        for name, value in self.request.module.parameters.items():
            parameter = w.const(value, name)
            w.params.add(parameter)
            if name in by_name:
                w.names[by_name[name].outputs[0].id] = parameter if value.ndim else w.reshape(parameter, [1])
        for node in self.request.module.inserted:
            try:
                self._insert(node, by_name)
            except UnsupportedOprError as e:
                refused.append((e.opr or node, e))
                # What reads its results is looked at, too.
                gone = [by_name[o.name].outputs[0].id for o in node.outputs if o.name in by_name]
                w.names.update((i, w.fresh("lost")) for i in gone)

    def _doc(self, opr: Opr) -> str:
        """Return what the nodes of an operator say of it."""
        if not self.request.options.docs:
            return ""
        place = self.request.module.places.get(opr.name or "", "")
        return f"{describe(opr)}, in {place}" if place else describe(opr)

    def _insert(self, node: InsertedNode, by_name: Mapping[str, Opr]) -> None:
        """Write an inserted node behind what it reads.

        Raises:
            UnsupportedOprError: it, or an operator before it, cannot be written.
        """
        w, read = self.w, [self.request.reads[n] for n in node.inputs]
        w.translate_for(read)
        w.doc = node.where if self.request.options.docs else ""
        names = node.write(w, [w.name(v) for v in read])
        for output, name in zip(node.outputs, names, strict=True):
            if name and output.name in by_name:
                w.names[by_name[output.name].outputs[0].id] = name

    def finish(self, plan: _KnownShapes) -> WrittenModel:
        """Build the model: outputs under their names, inputs in order."""
        w, request = self.w, self.request
        w.doc = ""
        outputs, named = [], {}
        for name, var in request.outputs.items():
            claimed = named[name] = w.claim(name)
            try:
                if name in request.scalars:
                    w.ops("Reshape", w.name(var), w.const(np.zeros(0, np.int64)), out=[claimed])
                else:
                    w.ops("Identity", w.name(var), out=[claimed])
            except UnsupportedOprError as e:
                raise _not_written([(describe(var.owner), f"output {name!r}: {e}")]) from None
            sizes = () if name in request.scalars else self._output_shape(name, var)
            outputs.append(ValueMessage(claimed, elem_of(w.dtype(var)), sizes))
        inputs = []
        for name, _, dtype, shape in request.inputs:
            axes = request.sizes.inputs.get(name, {})
            sized = () if name in request.scalars else tuple(axes.get(i, n) for i, n in enumerate(shape))
            inputs.append(ValueMessage(self.inputs[name], elem_of(dtype), sized))
        graph = w.graph("main_graph", inputs, outputs)
        merge_ends(graph)
        # What operators compute, the last one first.
        computed = [v for o in reversed(self.oprs) if o.inputs for v in o.outputs]
        keep_names(graph, {w.names[v.id]: v.name for v in computed if v.name and v.id in w.names}, w)
        number_names(graph, w)
        weights = [t for t in graph.initializers if t.name in w.params]
        if request.options.weights_are_inputs or not request.options.export_params:
            graph.inputs += [ValueMessage(t.name, t.elem, t.dims) for t in weights]
            # All initializers are inputs then: other constants stand in nodes.
            rest = [t for t in graph.initializers if t.name not in w.params]
            graph.nodes[:0] = [node for t in rest for node in _constant(t, w.opset)]
            graph.initializers = weights
        if not request.options.export_params:
            graph.initializers = [t for t in graph.initializers if t.name not in w.params]
        opsets = {**dict.fromkeys(domains(graph), 1), **request.options.opsets}
        model = ModelMessage(
            graph, {"": w.opset, **opsets}, ir_version(w.opset), producer_version=__version__
        )
        return WrittenModel(
            model,
            w.opset,
            dict(self.inputs),
            named,
            dict(w.notes),
            {k: n for k, n in sorted(self.operators.items()) if n},
            plan.sizes,
            weights,
        )

    def _output_shape(self, name: str, var: Var) -> tuple[int | str | None, ...] | None:
        try:
            shape = self.w.shape(var)
        except UnsupportedOprError:
            return None
        named_axes = self.request.sizes.outputs.get(name, {})
        rank = len(shape)
        symbols = {}
        for axis, symbol in named_axes.items():
            if not -rank <= axis < rank:
                raise UsageError(f"output {name!r} has {rank} axes, dynamic_axes names axis {axis}")
            if shape[axis] is not None:
                raise UsageError(
                    f"axis {axis} of output {name!r} does not change with the inputs' sizes: it is {shape[axis]}"
                )
            symbols[axis % rank] = symbol
        declared = self._symbols_of_inputs(var)
        return tuple(
            symbols.get(i) or declared.get(i) or f"{name}_dim_{i}" if n is None else n
            for i, n in enumerate(shape)
        )

    def _symbols_of_inputs(self, var: Var) -> dict[int, str]:
        """Return the axes of an output that always have the size of an input's named axis."""
        shapes = [k.shapes.get(var.id) for k in self.w.known]
        symbols: dict[int, str] = {}
        for name, axes in self.request.sizes.inputs.items():
            for axis, symbol in axes.items():
                sizes = [s[name][axis] for s in self.sizes]
                for i in range(len(shapes[0] or ())):
                    if [s[i] if s is not None else None for s in shapes] == sizes:
                        symbols.setdefault(i, symbol)
        return symbols
