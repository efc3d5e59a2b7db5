"""Variables of two graphs paired by their values, where neither names nor structure tell."""

from ...graph import Opr, Var
from ...graph.composite import Composite
from ...graph.params import Dimshuffle
from .matching import Matching, first_of
from .measuring import SketchIndex, sketches_agree
from .patching import Sketched


def match_by_value(a: Sketched, b: Sketched, matching: Matching, tolerance: float, ends: set[int]) -> None:
    """Match what is left by sketches of the values: optimized graphs compute the same by other operators.

    Pairs that say little, by place or of operators of other kinds, stand back where another value is the same: a fused
    operator keeps the name of one of its parts.

    Args:
        a, b: the two graphs.
        matching: gets the pairs.
        tolerance: how far a value may be off, relative to the largest value of its tensor.
        ends: ids of the first graph's outputs, which only outputs can stand for.
    """
    left = [
        v
        for o in a.graph.oprs
        if o.inputs
        for v in o.outputs
        if v.id not in ends and _is_doubtful(v, matching)
    ]
    doubted = {matching.pairs[v.id].id for v in left if v.id in matching.pairs}
    right = [
        v
        for o in b.graph.oprs
        if o.inputs
        for v in o.outputs
        if v.id not in matching.taken or v.id in doubted
    ]
    if not left or not right:
        return
    mine = [(v, values) for v in left if (values := a.sketch_of(v)) is not None]
    undone = []
    for var, values in mine:
        there = b.sketch_of(matching.pairs[var.id]) if var.id in matching.pairs else None
        if there is not None and not sketches_agree(values, there, tolerance):
            undone.append((var, *matching.part(var)))
    index = SketchIndex((v, values) for v in right if (values := b.sketch_of(v)) is not None)
    others: list[tuple[Var, list[Var]]] = []
    for var, values in mine:
        if var.id in matching.pairs:
            continue
        same = {v.id for v in b.in_order(values, tolerance)}
        like = index.like(values, tolerance)
        if first_of(matching, var, (v for v in like if v.id in same), "value"):
            continue
        # What the other graph has in the same order is not wrong for being in another order elsewhere, unless it
        # should have been moved.
        if not same or _moves_nothing(var.owner):
            others.append((var, like))
    for var, like in others:
        first_of(matching, var, like, "value")
    for var, other, how in undone:
        matching.add(var, other, how)


def _moves_nothing(opr: Opr) -> bool:
    """Return whether an operator that reorders axes leaves them as they are."""
    if opr.title == "Transpose" and isinstance(opr.param, Composite):
        return (perm := opr.param.attributes.get("perm")) == [*range(len(perm or ()))]
    return opr.type == "Dimshuffle" and (p := opr.get(Dimshuffle).pattern) == (*range(len(p)),)


def _is_doubtful(var: Var, matching: Matching) -> bool:
    """Tell whether a variable has no partner, or one that only its place speaks for or another operator computes."""
    other = matching.pairs.get(var.id)
    if other is not None and matching.how[var.id] == "name" and not matching.alike:
        # A conversion keeps names, for other operators too.
        return False
    return (
        other is None
        or matching.how[var.id] == "place"
        or (var.owner.title, len(var.owner.inputs)) != (other.owner.title, len(other.owner.inputs))
    )
