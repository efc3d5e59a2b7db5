"""Names in a graph that is written: those of the outputs, those of the source, and the domains of its nodes."""

from __future__ import annotations

from collections.abc import Mapping

from .encode import GraphMessage
from .inserted import rename
from .writing.emitter import free_names
from .writing.writer import OnnxWriter


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
