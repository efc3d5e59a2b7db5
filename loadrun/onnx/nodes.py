"""Facts of nodes that follow from the file alone: their order, which are needed, attributes and names."""

from collections.abc import Mapping
from heapq import heappop, heappush

from .messages import AttributeProto, GraphProto, NodeProto


def in_order(nodes: list[NodeProto]) -> list[NodeProto]:
    """Put nodes behind those whose results they read, as converters may leave them and ONNX Runtime does.

    Nodes that wait for each other stay where they are.
    """
    makers = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    reads = [{makers[n] for n in (*node.inputs, *names_captured(node)) if n in makers} for node in nodes]
    if all(j < i for i, sources in enumerate(reads) for j in sources):
        return nodes
    readers: dict[int, list[int]] = {}
    for i, sources in enumerate(reads):
        for j in sources:
            readers.setdefault(j, []).append(i)
    waits = [len(sources) for sources in reads]
    ready = [i for i, n in enumerate(waits) if not n]
    order = []
    while ready:
        order.append(heappop(ready))
        for i in readers.get(order[-1], ()):
            waits[i] -= 1
            if not waits[i]:
                heappush(ready, i)
    return [nodes[i] for i in order] if len(order) == len(nodes) else nodes


def nodes_needed(graph: GraphProto) -> set[int]:
    """Return the places of the nodes that the graph's outputs depend on."""
    wanted = {o.name for o in graph.outputs}
    needed = set()
    for i in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[i]
        if wanted.isdisjoint(n for n in node.outputs if n):
            continue
        needed.add(i)
        wanted.update(node.inputs)
        wanted.update(names_captured(node))
    return needed


def attributes_of(
    node: NodeProto, call_attributes: Mapping[str, AttributeProto]
) -> dict[str, AttributeProto]:
    """Return the attributes of a node by name.

    Args:
        call_attributes: those of the surrounding function's call, to which the node's own may refer.
    """
    attributes = {}
    for a in node.attributes:
        if a.ref:
            if a.ref in call_attributes:
                attributes[a.name] = call_attributes[a.ref]
        else:
            attributes[a.name] = a
    return attributes


def names_captured(node: NodeProto) -> set[str]:
    """Return the names that the subgraphs of a node read."""
    names: set[str] = set()
    for a in node.attributes:
        for graph in [*([a.g] if a.g is not None else []), *a.graphs]:
            for inner in graph.nodes:
                names.update(inner.inputs)
                names |= names_captured(inner)
            names.update(o.name for o in graph.outputs)
    return names


def title_of(node: NodeProto) -> str:
    """Return how messages call a node: its name or that of its first output, and its operator."""
    name = node.name or next((o for o in node.outputs if o), "")
    domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
    return f"{name!r} ({domain}{node.op})"
