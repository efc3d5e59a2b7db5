"""Operators to blame: those where a difference starts, and which explain the rest."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ...graph import Graph, Opr, Var
from ...ops.catalog import types
from ...ops.op import Trait
from ...passes.arithmetic.terms import is_step
from .changes import ChangedConstant, changed_constants, changes
from .matching import Matching, is_constant, kind_of, operators_before
from .measuring import Distance
from .patching import Located

_SHAPE_ONLY = types(Trait.SHAPE_ONLY)

_MASKED = -1e4
_OVERFLOWED = "it is not finite on both sides, so what follows cannot be compared"
_MOST = 64
"""Suspects among which the one is looked for that explains most."""


@dataclass(frozen=True)
class SuspectVar:
    """A variable of the model under suspicion compared with its partner.

    Attributes:
        var: the variable.
        label: its partner's name.
        how: how they were matched.
        distance: how far they are apart; None if their numbers of elements differ.
        agrees: whether they are within the tolerance.
        shapes: the shapes of both; none if one of them has no value.
        between: for a row that is to blame, the operators before it that have no counterpart, back to values that
            agree.
        changes: how the operator differs from its partner before anything is computed.
        is_changed: whether it does, or reads a constant that does.
        is_stop: whether the operator could not run on one of the sides.
        missing: for a row that is to blame, operators of the reference before its partner that the model lacks.
    """

    var: Var
    label: str
    how: str
    distance: Distance | None
    agrees: bool
    shapes: tuple[tuple[int, ...], ...]

    between: tuple[Opr, ...] = ()
    changes: tuple[str, ...] = ()
    is_changed: bool = False
    is_stop: bool = False
    missing: tuple[Opr, ...] = ()

    @property
    def opr(self) -> Opr:
        """The operator that produces the variable."""
        return self.var.owner


def with_counterpart(graph: Graph, rows: list[SuspectVar], certain: set[int]) -> list[SuspectVar]:
    """Drop rows that differ without effect, where their partner was another value and not a wrong one.

    An optimized graph computes the same by other intermediate values: a factor that comes later, a batch norm in the
    weights. A value counts where a difference that it has reaches one that is certain.

    Args:
        graph: the model under suspicion.
        rows: what was compared.
        certain: ids of values that count: the model's outputs, what could not be computed on one of the sides, and
            values whose partner cannot be another value (`unexplained`).
    """
    state = {r.var.id: r for r in rows}
    matters: set[int] = set()
    dropped: set[int] = set()
    sizes = _sizes(graph)
    for opr in reversed(graph.oprs):
        for var in opr.outputs:
            row = state.get(var.id)
            if row is not None and row.agrees:
                continue
            if row is not None and (_is_step(row, sizes) or not (var.id in certain or var.id in matters)):
                dropped.add(var.id)
            elif row is not None or var.id in matters or var.id in certain:
                matters.update(v.id for v in opr.inputs)
    return [r for r in rows if r.var.id not in dropped]


def _sizes(graph: Graph) -> set[int]:
    """List the variables that are computed from shapes and constants alone."""
    sizes: set[int] = set()
    for opr in graph.oprs:
        if opr.type in _SHAPE_ONLY or (
            opr.inputs and all(v.id in sizes or is_constant(v) for v in opr.inputs)
        ):
            sizes.update(v.id for v in opr.outputs)
    return sizes


def _is_step(row: SuspectVar, sizes: set[int]) -> bool:
    """Return whether a row is arithmetic of sizes, which other formats do in other steps."""
    return row.var.id in sizes and row.how in ("place", "value")


def unexplained(
    graph: Graph, rows: Sequence[SuspectVar], matching: Matching, constants: Sequence[ChangedConstant]
) -> set[int]:
    """List values that differ for no reason that an optimization has.

    Those are the ones that an operator reads which is the same on both sides and gives values that agree, since it
    hides the difference, and those computed with a weight that differs by more than a factor for each channel. What a
    rounding before a step (FLOOR, LT) changed is no such value, nor what is computed from it.

    Args:
        graph: the model under suspicion.
        rows: what was compared.
        matching: the partners.
        constants: those that differ.
    """
    state = {r.var.id: r for r in rows}
    changed = {c.var.id for c in constants}
    weights = {c.var.id for c in constants if c.is_weight and not c.is_scaled}
    certain = {r.var.id for r in rows if not r.agrees and any(v.id in weights for v in r.opr.inputs)}
    misplaced: set[int] = set()
    flipped: set[int] = set()
    for opr in graph.oprs:
        off = {v.id for v in opr.inputs if v.id in state and _is_off(state[v.id])}
        # Optimized graphs have other operators at a place, and what is computed from these is another value as well.
        misplaced.update(
            v.id
            for v in opr.outputs
            if v.id in state
            and _is_off(state[v.id])
            and matching.how[v.id] == "place"
            and (
                not misplaced.isdisjoint(off) or _read_other_values(opr, matching.pairs[v.id].owner, matching)
            )
        )
        row = state.get(opr.outputs[0].id) if opr.outputs else None
        if row is None or (row.agrees and len(off) != 1) or not _is_same(opr, matching, changed):
            continue
        if not row.agrees and (off <= flipped if off else is_step(opr) and _has_rounded(opr, state)):
            flipped.add(row.var.id)
        # Two of them may make up for each other, like a factor that is at the other operand of a product.
        if row.agrees and misplaced.isdisjoint(off):
            certain.update(i for i in off - flipped if not _is_masked(state[i]))
    return certain


def _is_same(opr: Opr, matching: Matching, changed: set[int]) -> bool:
    """Return whether an operator and its partner are alike and read the same, constants included."""
    other = matching.pairs[opr.outputs[0].id].owner
    return (
        kind_of(opr) == kind_of(other)
        and not any(True for _ in changes(opr, other, matching))
        and all(
            matching.pairs.get(x.id) is y and x.id not in changed
            for x, y in zip(opr.inputs, other.inputs, strict=False)
        )
    )


def _has_rounded(opr: Opr, state: Mapping[int, SuspectVar]) -> bool:
    """Return whether what an operator reads differs within the tolerance."""
    return any(v.id in state and state[v.id].agrees and not _is_equal(state[v.id]) for v in opr.inputs)


def _is_masked(row: SuspectVar) -> bool:
    """Return whether both values are far below 0: masks are minus infinity, -1e9, or the least number of a type."""
    apart = row.distance
    return apart is not None and max(apart.found, apart.expected) <= _MASKED


def _read_other_values(opr: Opr, other: Opr, matching: Matching) -> bool:
    """Return whether two operators of one place read values that do not stand for each other."""
    pairs = zip(opr.inputs, other.inputs, strict=False)
    return len(opr.inputs) != len(other.inputs) or any(
        matching.pairs.get(x.id) is not y for x, y in pairs if not is_constant(x)
    )


def _is_off(row: SuspectVar) -> bool:
    """Return whether a row differs in more than its layout, of which its shape is a part."""
    apart = row.distance
    return not row.agrees and row.opr.type != "GetVarShapeV1" and not (apart and apart.count == 0)


def blame(
    graph: Graph,
    rows: Sequence[SuspectVar],
    matching: Matching | None,
    constants: Sequence[ChangedConstant],
    every: Sequence[SuspectVar] = (),
    overflowed: Collection[int] = (),
) -> list[SuspectVar]:
    """List the rows that do not agree although all that they are computed from does, the likeliest first.

    A difference within the tolerance may grow beyond it later: where an operator or constant before it differs, that is
    where it began. Operators that differ by themselves come first, then those that explain most of what follows, then
    the earlier ones.

    Args:
        graph: the model under suspicion.
        rows: what was compared.
        matching: the partners of its variables; None if the other side runs the same graph.
        constants: those that differ.
        every: these rows, and those that were left out since what reads them agrees.
        overflowed: ids of values that are not finite on both sides: what is computed from them is no reason to blame
            an operator. If nothing else is, they are to blame themselves.
    """
    state = {r.var.id: r for r in rows}
    differing = {c.var.id for c in constants}
    clean: dict[int, bool] = {}
    for opr in graph.oprs:
        # Whether everything behind the operator's inputs agrees, as far as it was compared.
        behind = all(state[v.id].agrees if v.id in state else clean.get(v.id, True) for v in opr.inputs)
        for var in opr.outputs:
            clean[var.id] = behind
    roots = [r for r in rows if not r.agrees and clean[r.var.id] and r.var.id not in differing]
    if overflowed and roots:
        certain = [r for r in roots if not _reads(r, overflowed) or _is_other(r, matching, differing)]
        begun = [r for r in rows if r.var.id in overflowed and not _reads(r, overflowed)]
        roots = certain or [replace(r, changes=(_OVERFLOWED,)) for r in begun]
        if not certain:
            return roots
    # Each of many suspects may have the whole model before it.
    roots[:_MOST] = [replace(r, between=_uncompared(r.opr, state)) for r in roots[:_MOST]]
    if matching is None:
        return roots
    # What fusing leaves of a value may have its name; conversions keep names for what they are.
    known = state
    if not matching.alike:
        sizes = _sizes(graph)
        known = {r.var.id: r for r in every or rows if not _is_step(r, sizes)}
    seen: dict[int, SuspectVar] = {}
    for i, root in enumerate(roots):
        told = _told(root, matching, differing)
        if not told.is_changed and i < _MOST:
            told = _beginning(told, known, matching, differing) or told
        seen.setdefault(told.var.id, told)
    return _ordered(graph, state, list(seen.values()))


def _reads(row: SuspectVar, values: Collection[int]) -> bool:
    return any(v.id in values for v in row.opr.inputs)


def _is_other(row: SuspectVar, matching: Matching | None, differing: set[int]) -> bool:
    """Return whether an operator is another one than its partner, whatever it reads."""
    return matching is not None and _told(row, matching, differing).is_changed


def with_located(
    graph: Graph, roots: list[SuspectVar], located: Located | None, matching: Matching
) -> list[SuspectVar]:
    """Put the suspect first that was located by its effect, unless the first one is part of the same place.

    Args:
        graph: the model under suspicion.
        roots: the suspects.
        located: what was located, if anything was.
        matching: the partners of the variables, which gets those of the located one.
    """
    if located is None:
        return roots
    first = roots[0] if roots else None
    changed = changed_constants(graph, matching)
    # Between formats, factors of one number stand at other places.
    weights = {c.var.id for c in changed if c.size > 1}
    there = list(located.between)
    if first is not None and (
        (_is_reshaped(first) and (first.changes or not _is_off(first)))
        or (first.how in ("name", "structure") and _has_other_scale(first, matching))
        or (first.changes and matching.alike and matching.named)
    ):
        # The reference cannot take over another shape or scale, and the same numbers have no effect; nor does one value
        # where the same fault is in several operators, as in every turn of a loop.
        there = graph.needed([located.var])
    elif first is not None and not (first.changes or any(v.id in weights for v in first.opr.inputs)):
        there = []
    if first is not None and any(o.id == first.opr.id for o in (*there, located.var.owner)):
        return roots
    var = located.var
    if matching.pairs.get(var.id) is not located.partner:
        matching.replace(var, located.partner, "effect")
        changed = changed_constants(graph, matching)
    row = SuspectVar(
        var,
        located.partner.label,
        matching.how[var.id],
        located.distance,
        False,
        located.shapes,
        located.between,
    )
    differing = {c.var.id for c in changed}
    return [_told(row, matching, differing), *(r for r in roots if r.var.id != var.id)]


def _told(row: SuspectVar, matching: Matching, differing: set[int]) -> SuspectVar:
    """Add how an operator differs from its partner; one that was matched by its values is another operator."""
    partner = matching.pairs[row.var.id].owner
    said = () if row.how == "value" else tuple(changes(row.opr, partner, matching))
    shown = said
    if row.how == "effect":
        # It stands elsewhere: what it reads there says nothing, nor that it is another operator.
        elsewhere = ("input ", "constant ", f"{row.opr.title} against ")
        others = row.opr.type != partner.type
        shown = tuple(t for t in said if not t.startswith(elsewhere[: 2 + others]))
    reads = any(v.id in differing for o in (row.opr, *row.between) for v in o.inputs)
    # Files of other formats may hold the same in other parameters.
    return replace(row, changes=shown, is_changed=(bool(said) and matching.alike) or reads)


def _beginning(
    root: SuspectVar, state: Mapping[int, SuspectVar], matching: Matching, differing: set[int]
) -> SuspectVar | None:
    """Find the first operator before a root that differs by itself, whose difference the root makes greater."""
    before = [_told(r, matching, differing) for r in _before(root, state)]
    reshaped = [r for r in before if _is_reshaped(r)]
    changed = [r for r in before if r.is_changed] or (reshaped if root.distance is None else [])
    if not changed and root.is_stop:
        # The same numbers in another shape, which the root takes for others.
        changed = reshaped
    return min(changed, key=lambda r: r.var.id, default=None)


def _before(root: SuspectVar, state: Mapping[int, SuspectVar]) -> list[SuspectVar]:
    """List what was compared and differs, if within the tolerance, between a root and values that are equal."""
    todo, seen = [root.opr, *root.between], {root.opr.id}
    before: list[SuspectVar] = []
    while todo:
        for var in todo.pop().inputs:
            row = state.get(var.id)
            same = row is not None and _is_equal(row) and not _is_reshaped(row)
            if same or is_constant(var) or var.owner.id in seen:
                continue
            seen.add(var.owner.id)
            todo.append(var.owner)
            if row is not None:
                before.append(replace(row, between=_uncompared(row.opr, state)))
    return before


def _is_reshaped(row: SuspectVar) -> bool:
    return len(set(row.shapes)) > 1


def _has_other_scale(row: SuspectVar, matching: Matching) -> bool:
    """Return whether values may be quantized by another scale, in a dtype or in constants of one format."""
    pair = row.var, matching.pairs[row.var.id]
    is_quantized = any(v.dtype is not None and v.dtype.is_quantized for v in pair)
    return (is_quantized and _is_off(row)) or (matching.alike and matching.named and row.is_changed)


def _is_equal(row: SuspectVar) -> bool:
    return row.distance is not None and row.distance.absolute == 0


def _ordered(graph: Graph, state: Mapping[int, SuspectVar], roots: list[SuspectVar]) -> list[SuspectVar]:
    """Sort suspects: changed ones first, then by how many differing values come from them, then by place."""
    if len(roots) < 2:
        return roots
    # One bit for each suspect, carried along the graph.
    bits = {r.var.id: 1 << i for i, r in enumerate(roots[:_MOST])}
    carried: dict[int, int] = {}
    explained = [0] * len(roots)
    for opr in graph.oprs:
        before = 0
        for var in opr.inputs:
            before |= carried.get(var.id, 0)
        for var in opr.outputs:
            mask = carried[var.id] = before | bits.get(var.id, 0)
            if mask and var.id in state and not state[var.id].agrees:
                for i in range(len(bits)):
                    explained[i] += mask >> i & 1
    order = sorted(
        range(len(roots)),
        key=lambda i: (
            not roots[i].is_changed,
            roots[i].how == "place" and not roots[i].changes,
            -explained[i],
            i,
        ),
    )
    return [roots[i] for i in order]


def _uncompared(opr: Opr, state: Mapping[int, SuspectVar]) -> tuple[Opr, ...]:
    """List the operators without counterpart between an operator and the compared values before it."""
    return operators_before([opr], lambda v: v.id not in state and bool(v.owner.inputs))
