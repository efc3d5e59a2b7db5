"""What is written beside the operators of a graph: nodes that MegEngine has not, weights, sizes, names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..graph.dtypes import Array, DType
from ..ops.registry import Shape
from .encode import Attribute, GraphMessage, NodeMessage, TensorMessage
from .writing.emitter import free_names
from .writing.writer import OnnxWriter

Resized = Callable[[Mapping[str, int]], Shape]


@dataclass(frozen=True, eq=False)
class InsertedOutput:
    """A result of an inserted node, which the graph has as an input.

    Attributes:
        name: name of the graph's input.
        dtype, shape: what it is in the example.
        resized: its shape where sizes with these names have other values.
    """

    name: str
    dtype: DType
    shape: Shape
    resized: Resized


@dataclass(frozen=True, eq=False)
class InsertedNode:
    """Something between outputs and inputs of a graph that is written as ONNX nodes of its own.

    Attributes:
        inputs: names of the graph's outputs that it reads.
        outputs: what it gives.
        write: writes it, from the names of its inputs in the model to those of its outputs; a result that nothing
            reads may be "".
        where: what it is, and where it comes from.
    """

    inputs: Sequence[str]
    outputs: Sequence[InsertedOutput]
    write: Callable[[OnnxWriter, Sequence[str]], Sequence[str]]
    where: str


@dataclass(eq=False)
class OpenSizes:
    """Which sizes may change, and how shapes follow from them.

    Attributes:
        inputs, outputs: names of the sizes that may change, by input or output and axis.
        fitting: shapes that are known to fit, by input name.
        tied: names of sizes that are one and the same whatever `inputs` calls them, by input and axis.
        symbols: further sizes that may change, with what they are in the example.
        resized: shapes of inputs that follow from sizes, see `InsertedOutput`.
        invalid: says of shapes by input why the model does not hold for them, "" where it does.
        asked: `dynamic_shapes` by input, where it was given in the structure of nested arguments.
    """

    inputs: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    outputs: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    fitting: Sequence[Mapping[str, Shape]] = ()
    tied: Mapping[tuple[str, int], str] = field(default_factory=dict)
    symbols: Mapping[str, int] = field(default_factory=dict)
    resized: Mapping[str, Resized] = field(default_factory=dict)
    invalid: Callable[[Mapping[str, Shape]], str] = lambda _: ""
    asked: Any = None


@dataclass(eq=False)
class ModuleParts:
    """What a torch module has beside a graph of MegEngine's operators.

    Attributes:
        inserted: nodes beside the graph's operators, each behind those whose results it reads, which stand among the
            graph's outputs.
        parameters: weights that are inputs of the graph, and constants of the model, by name.
        weights: names of the parameters in the order of the module.
        places: source lines by the names of operators.
        save_program: writes torch's program of the module into a file.
    """

    inserted: Sequence[InsertedNode] = ()
    parameters: Mapping[str, Array] = field(default_factory=dict)
    weights: Sequence[str] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    save_program: Callable[[Any], None] | None = None


def rename(graph: GraphMessage, names: Mapping[str, str]) -> None:
    """Rename constants and values of a graph, in place."""
    if not names:
        return
    renamed = _renamed(graph, lambda name: names.get(name, name))
    graph.nodes, graph.initializers = renamed.nodes, renamed.initializers
    graph.inputs, graph.outputs = renamed.inputs, renamed.outputs


def inline(
    graph: GraphMessage, prefix: str, inputs: Sequence[str]
) -> tuple[list[NodeMessage], list[TensorMessage], list[str]]:
    """Return nodes and constants of a graph for use inside of another one: values get a prefix, inputs these names.

    Returns:
        nodes, constants, and the names of the outputs.
    """
    names = {v.name: n for v, n in zip(graph.inputs, inputs, strict=True)}
    renamed = _renamed(graph, lambda name: names.get(name, f"{prefix}/{name}") if name else "", prefix)
    return renamed.nodes, renamed.initializers, [v.name for v in renamed.outputs]


def _renamed(graph: GraphMessage, new: Callable[[str], str], prefix: str = "") -> GraphMessage:
    """Copy a graph with other names of its values; nodes get a prefix."""

    def attribute(value: Attribute) -> Attribute:
        return _renamed(value, new, prefix) if isinstance(value, GraphMessage) else value

    def node(one: NodeMessage) -> NodeMessage:
        return replace(
            one,
            inputs=[new(n) for n in one.inputs],
            outputs=[new(n) for n in one.outputs],
            attributes={k: attribute(v) for k, v in one.attributes.items()},
            name=f"{prefix}/{one.name}" if prefix and one.name else one.name,
        )

    return replace(
        graph,
        nodes=[node(n) for n in graph.nodes],
        initializers=[_named(t, new) for t in graph.initializers],
        inputs=[replace(v, name=new(v.name)) for v in graph.inputs],
        outputs=[replace(v, name=new(v.name)) for v in graph.outputs],
    )


def _named(tensor: TensorMessage, new: Callable[[str], str]) -> TensorMessage:
    """Copy a constant under its new name, or return the same object where it keeps its name."""
    name = new(tensor.name)
    return tensor if name == tensor.name else replace(tensor, name=name)


def merge_ends(graph: GraphMessage) -> None:
    """Name the nodes that compute outputs after these, where nothing else needs the nodes' own names."""
    makers = {name: node for node in graph.nodes for name in node.outputs}
    ends = {v.name for v in graph.outputs}
    inner = _captured(graph)
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
    graph.nodes = kept
    rename(graph, renamed)


def keep_names(graph: GraphMessage, names: Mapping[str, str | None], writer: OnnxWriter) -> None:
    """Call values what the graph calls them, so that a file and its conversion can be compared by name.

    Args:
        graph: the model.
        names: names in the graph by names in the model.
        writer: knows which names are taken.
    """
    fixed = {v.name for v in graph.outputs} | _captured(graph)
    internal = {name for node in graph.nodes for name in node.outputs} - fixed
    rename(
        graph,
        {old: writer.claim(new) for old, new in names.items() if new and old in internal and old != new},
    )


def number_names(graph: GraphMessage, writer: OnnxWriter) -> None:
    """Name nodes, and values and constants without a name, by their places, which another export has as well.

    Constants are put into the order in which nodes read them.
    """
    places = {n: i for i, n in reversed([*enumerate(n for node in graph.nodes for n in node.inputs)])}
    graph.initializers.sort(key=lambda t: places.get(t.name, len(places)))
    fixed = _captured(graph).union(*(_own_names(b) for node in graph.nodes for b in node.bodies))
    free = writer.automatic - fixed
    taken = {t.name for t in graph.initializers} | {n for node in graph.nodes for n in node.outputs}
    taken = {v.name for v in (*graph.inputs, *graph.outputs)} | fixed | (taken - free)
    new: dict[str, str] = {}

    def number(old: str, name: str) -> None:
        if old in free:
            while name in taken:
                name += "_"
            taken.add(name)
            new[old] = name

    for i, node in enumerate(graph.nodes):
        numbered = f"{node.op_type}_{i}"
        node.name = node.name or numbered
        for k, old in enumerate(node.outputs):
            number(old, f"{numbered}_{k}" if k else numbered)
    for i, tensor in enumerate(graph.initializers):
        number(tensor.name, f"const_{i}")
    rename(graph, new)
    writer.params = {new.get(n, n) for n in writer.params}


def _own_names(graph: GraphMessage) -> set[str]:
    """Return the names of values and constants of a graph and of those inside it."""
    names = {v.name for v in graph.inputs} | {t.name for t in graph.initializers}
    for node in graph.nodes:
        names.update(node.outputs, *map(_own_names, node.bodies))
    return names


def domains(graph: GraphMessage) -> set[str]:
    """Return the domains of a graph's nodes but ONNX's own."""
    inner = [domains(body) for node in graph.nodes for body in node.bodies]
    return {n.domain for n in graph.nodes if n.domain}.union(*inner)


def _captured(graph: GraphMessage) -> set[str]:
    """Return the names that the subgraphs of a graph's nodes take from it."""
    return {name for node in graph.nodes for body in node.bodies for name in free_names(body)}
