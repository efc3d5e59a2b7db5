"""Knowledge that one pass hands to the next: facts inferred about a graph, and rules that found nothing to do in it."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from ..graph import Graph, Opr, Var
from ..ops.infer import Inference

__all__ = ["has_same_ends", "is_settled", "remember", "remembered", "renumber", "settle"]

_KNOWN: WeakKeyDictionary[Graph, tuple[Inference, tuple[Opr, ...]]] = WeakKeyDictionary()
"""Knowledge of passes about the graphs that they made, for the next pass, and the operators that it is about."""
_ENDS: WeakKeyDictionary[Graph, list[tuple[Var, str | None]]] = WeakKeyDictionary()
"""The outputs that graphs had when passes made them, and their names."""
_SETTLED: WeakKeyDictionary[Graph, set[object]] = WeakKeyDictionary()
"""The rules that left a graph as it is, so that a pass with that rule need not go through it again."""


def remember(graph: Graph, known: Inference) -> None:
    """Keep what is known of a graph that a pass made; later changes of its operators are noticed."""
    _KNOWN[graph] = (known, tuple(graph.oprs))
    _ENDS[graph] = [(v, v.name) for v in graph.outputs]


def renumber(graph: Graph, known: Inference, named: Mapping[int, str]) -> None:
    """Set the numbers of a new graph's operators and variables by their places, and remember what is known of them.

    Args:
        graph: the graph; operators that nothing reads are dropped.
        known: shapes and values by the ids that its variables have so far.
        named: the names of outputs by their `id()`; no inner variable goes by one of them afterwards.
    """
    taken = set(named.values())
    oprs = graph.needed()
    numbered = Inference()
    count = 0
    for i, opr in enumerate(oprs):
        opr.id = i
        for var in opr.outputs:
            shape, value = known.shapes.get(var.id), known.values.get(var.id)
            if shape is not None and opr.type != "Host2DeviceCopy":
                var.shape = shape
            if id(var) not in named and var.name in taken and opr.type != "Host2DeviceCopy":
                var.name = None
            if shape is not None:
                numbered.shapes[count] = shape
            if value is not None:
                numbered.values[count] = value
            var.id = count
            count += 1
    graph.oprs = oprs
    remember(graph, numbered)


def remembered(graph: Graph) -> Inference | None:
    """Return what is known of a graph that a pass made, unless somebody changed it since."""
    known, oprs = _KNOWN.get(graph, (None, ()))
    if known is None or [*map(id, oprs)] != [*map(id, graph.oprs)]:
        return None
    fed = (o for o in oprs if o.type == "Host2DeviceCopy")
    same = all(known.shapes.get(o.outputs[0].id) == o.tensors[0].shape for o in fed)
    return known if same else None


def has_same_ends(graph: Graph) -> bool:
    """Tell whether a graph has the outputs that it had when a pass made it."""
    return _ENDS.get(graph) == [(v, v.name) for v in graph.outputs]


def is_settled(graph: Graph, rule: object, *types: str) -> bool:
    """Tell whether a pass with that rule would give back an equal graph.

    That is so for a graph that a pass made, so that equal operators are one already, where the rule found nothing to do
    before or no operator is of the types that it is for.

    Args:
        rule: what `settle` was called with.
        types: the types of the operators that the rule looks at; none for a rule that looks at all.
    """
    if remembered(graph) is None:
        return False
    return rule in _SETTLED.get(graph, ()) or bool(types and not any(opr.type in types for opr in graph.oprs))


def settle(graph: Graph, rule: object) -> bool:
    """Note that a rule finds nothing to do in a graph; tell whether a pass made it, so that it may stand as it is."""
    if remembered(graph) is None:
        return False
    _SETTLED.setdefault(graph, set()).add(rule)
    return True
