"""Operators that one of two models has alone, such as an activation that was dropped before the suspect."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from ...base.errors import LoadRunError
from ...graph import Graph, Opr, Var
from ...graph.dtypes import Array
from .blaming import SuspectVar
from .changes import ChangedConstant
from .extracting import computed_values
from .matching import Matching, are_alike, is_constant
from .measuring import distance

_MOST = 16
"""Operators in a row that are looked through."""
_ROUNDING = 1e-6


def with_lone(
    roots: Sequence[SuspectVar],
    graphs: tuple[Graph, Graph],
    matching: Matching,
    constants: Sequence[ChangedConstant],
    feeds: Mapping[str, Array],
    seed: int,
) -> list[SuspectVar]:
    """Blame operators that one side has alone in place of the innocent one that reads what they would have computed.

    That is where a suspect and its partner are the same but for an input, and the one's input is computed from the
    other's by operators that have no partners and change the numbers.

    Args:
        roots: the suspects.
        graphs: the model under suspicion and the reference.
        matching: the partners of the variables.
        constants: those that differ.
        feeds: arrays by input name.
        seed: seed of random operators.
    """
    differing = {c.var.id for c in constants}
    told: dict[int, SuspectVar] = {}
    named: set[int] = set()
    for root in roots:
        partner = matching.pairs.get(root.var.id)
        new = None
        if partner is not None and not any(
            v.id in differing for o in (root.opr, *root.between) for v in o.inputs
        ):
            new = _of_root(root, partner, graphs, matching, feeds, seed)
        named.update([new.var.id] if new is not None else ())
        told.setdefault((new or root).var.id, new or root)
    # What reads the numbers of such an operator is no suspect for that.
    return [r for i, r in told.items() if not named or i in named or r.is_changed]


def _of_root(
    root: SuspectVar,
    partner: Var,
    graphs: tuple[Graph, Graph],
    matching: Matching,
    feeds: Mapping[str, Array],
    seed: int,
) -> SuspectVar | None:
    new = None if are_alike(root.opr, partner.owner) else _last(root, partner, matching)
    if new is not None or any(not t.startswith("input ") for t in root.changes):
        return new
    pairs = _operands(root.opr, partner.owner, matching)
    tried = (_lone(root, one, other, graphs, matching, feeds, seed) for one, other in pairs)
    return next((new for new in tried if new is not None), None)


def _operands(one: Opr, other: Opr, matching: Matching) -> list[tuple[Var, Var]]:
    """Pair what two operators read; nothing if they are others.

    One side may have in one operator what the other has in two, as a product with its bias.
    """
    mine, theirs = [*one.inputs], [*other.inputs]
    if not are_alike(one, other):
        if len(mine) == len(theirs) or min(len(mine), len(theirs)) < 2:
            return []
        _look_inside(mine, len(theirs), matching.pairs)
        _look_inside(theirs, len(mine), matching.taken)
    return [*zip(mine, theirs, strict=True)] if len(mine) == len(theirs) else []


def _look_inside(inputs: list[Var], count: int, with_partner: Container[int]) -> None:
    """Replace what operators without partners compute by what these read, up to a number of values."""
    while len(inputs) < count:
        inner = (i for i, v in enumerate(inputs) if len(v.owner.inputs) > 1 and v.id not in with_partner)
        at = next(inner, None)
        if at is None:
            break
        inputs[at : at + 1] = inputs[at].owner.inputs


def _lone(
    root: SuspectVar,
    mine: Var,
    theirs: Var,
    graphs: tuple[Graph, Graph],
    matching: Matching,
    feeds: Mapping[str, Array],
    seed: int,
) -> SuspectVar | None:
    mate = matching.pairs.get(mine.id)
    if mate is theirs or is_constant(mine) or is_constant(theirs):
        return None
    if mate is not None:
        path = _path(theirs, lambda v: v is mate, lambda v: v.id in matching.taken)
        if path and _changes_numbers(graphs[1], theirs, mate, feeds, seed):
            return replace(root, missing=path, changes=())
        return None
    start: list[Var] = []

    def reached(v: Var) -> bool:
        if matching.pairs.get(v.id) is theirs:
            start.append(v)
        return bool(start)

    path = _path(mine, reached, lambda v: v.id in matching.pairs)
    if path and _changes_numbers(graphs[0], mine, start[0], feeds, seed):
        return SuspectVar(
            mine, "", "", None, False, (), between=path[:-1], changes=("it is not in the reference",)
        )
    return None


def _last(root: SuspectVar, partner: Var, matching: Matching) -> SuspectVar | None:
    """Find an operator that one side has alone just before an output, where two others have one name."""

    def read_alike(one: Opr, other: Opr) -> bool:
        operands = _operands(one, other, matching)
        return bool(operands) and all(
            matching.pairs.get(x.id) is y or (is_constant(x) and is_constant(y)) for x, y in operands
        )

    before = _path(partner, lambda v: read_alike(root.opr, v.owner), lambda v: v.id in matching.taken)
    if before:
        return replace(root, missing=before, changes=())
    more = _path(root.var, lambda v: read_alike(v.owner, partner.owner), lambda v: v.id in matching.pairs)
    if more:
        return replace(root, between=more[:-1], changes=("it is not in the reference",))
    return None


def _path(end: Var, reached: Callable[[Var], bool], has_partner: Callable[[Var], bool]) -> tuple[Opr, ...]:
    """List the operators without partners from a value to another that it is computed from; none if it is not."""
    passed: dict[int, Opr] = {}
    todo, arrived = [end], False
    while todo and len(passed) <= _MOST:
        var = todo.pop()
        if reached(var):
            arrived = True
        elif (var is end or not has_partner(var)) and var.owner.inputs and var.owner.id not in passed:
            passed[var.owner.id] = var.owner
            todo += var.owner.inputs
    return tuple(passed[i] for i in sorted(passed)) if arrived and len(passed) <= _MOST else ()


def _changes_numbers(graph: Graph, one: Var, other: Var, feeds: Mapping[str, Array], seed: int) -> bool:
    """Return whether two values of one graph are not the same numbers; casts and reshapes leave them."""
    try:
        values = computed_values(graph, [one, other], feeds, seed)
    except LoadRunError:
        return False
    apart = distance(values[one.id], values[other.id])
    return apart is None or apart.relative > _ROUNDING
