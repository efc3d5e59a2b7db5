"""Facts about nodes of an ONNX file that follow from the file alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .messages import AttributeProto, GraphProto, NodeProto

__all__ = ["attributes_of", "names_captured", "nodes_needed", "title_of"]


def nodes_needed(graph: GraphProto, left: Collection[str] = ()) -> set[int]:
    """Return the places of the nodes that the graph's outputs depend on.

    Args:
        left: outputs that are not requested.
    """
    wanted = {o.name for o in graph.outputs if o.name not in left}
    needed = set()
    for i in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[i]
        if wanted.isdisjoint(n for n in node.outputs if n):
            continue
        needed.add(i)
        wanted.update(node.inputs)
        wanted.update(names_captured(node))
    return needed


def attributes_of(node: NodeProto, given: Mapping[str, AttributeProto]) -> dict[str, AttributeProto]:
    """Return the attributes of a node by name.

    Args:
        given: those of the surrounding function's call, to which the node's own may refer.
    """
    found = {}
    for a in node.attributes:
        if a.ref:
            if a.ref in given:
                found[a.name] = given[a.ref]
        else:
            found[a.name] = a
    return found


def names_captured(node: NodeProto) -> set[str]:
    """Return the names that the subgraphs of a node read."""
    found: set[str] = set()
    for a in node.attributes:
        for graph in [*([a.g] if a.g is not None else []), *a.graphs]:
            for inner in graph.nodes:
                found.update(inner.inputs)
                found |= names_captured(inner)
            found.update(o.name for o in graph.outputs)
    return found


def title_of(node: NodeProto) -> str:
    """Return how messages call a node: its name or that of its first output, and its operator."""
    name = node.name or next((o for o in node.outputs if o), "")
    domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
    return f"{name!r} ({domain}{node.op})"
