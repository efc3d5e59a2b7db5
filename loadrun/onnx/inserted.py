"""Nodes that are in a model beside the operators of its graph: what ONNX has and MegEngine has not, or neither."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..graph.dtypes import DType
from ..ops.registry import Shape
from .encode import Attribute, GraphMessage, NodeMessage, TensorMessage

if TYPE_CHECKING:
    from .writing.writer import OnnxWriter


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
    resized: Callable[[Mapping[str, int]], Shape]


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
