"""How many nodes a graph stands for, as far as the file says it: too many are refused before one is lowered."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from .messages import GraphProto
from .nodes import nodes_needed
from .tensors import array
from .values import BOOL, INT64

__all__ = ["least_unrolled", "takes_all_turns"]


def least_unrolled(graph: GraphProto, known: Mapping[str, int] | None = None) -> int:
    """Count the nodes of a graph, those of a loop once for each turn if the file holds the number of turns.

    Args:
        graph: the graph.
        known: numbers that are stored around it, by name.
    """
    own = {i.name for i in graph.inputs}
    numbers = {**{n: v for n, v in (known or {}).items() if n not in own}, **_stored_numbers(graph)}
    count = 0
    for i in nodes_needed(graph):
        node = graph.nodes[i]
        count += 1
        body = next((a.g for a in node.attributes if a.name == "body"), None)
        if node.op == "Loop" and body is not None and takes_all_turns(body, numbers):
            most, going = ([*node.inputs, "", ""])[:2]
            turns = numbers.get(most, 0) if not going or numbers.get(going) else 0
            count += max(turns, 0) * least_unrolled(body, numbers)
    return count


def takes_all_turns(body: GraphProto, known: Mapping[str, int] | None = None) -> bool:
    """Return whether a loop's condition remains what it was, or is stored as true."""
    passed = {o: n.inputs[0] for n in body.nodes if n.op == "Identity" and n.inputs for o in n.outputs}
    name = body.outputs[0].name if body.outputs else ""
    for _ in passed:
        name = passed.get(name, name)
    numbers = {**(known or {}), **_stored_numbers(body)}
    return bool(numbers.get(name)) or name in [i.name for i in body.inputs[1:2]]


def _stored_numbers(graph: GraphProto) -> dict[str, int]:
    """Return the whole numbers and booleans that a graph stores, by name, but for those that are inputs, too."""
    inputs = {i.name for i in graph.inputs}
    tensors = {t.name: t for t in graph.initializers if t.name not in inputs}
    for node in graph.nodes:
        if node.op == "Constant":
            tensors.update((o, a.t) for o in node.outputs for a in node.attributes if a.t is not None)
    return {
        name: int(array(t).reshape(-1)[0])
        for name, t in tensors.items()
        if t.data_type in (INT64, BOOL) and not t.location and len(t.dims) < 8 and prod(t.dims) == 1
    }
