"""Where two runs diverge: the first operator out of its tolerance, and the operators that are to blame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...base.errors import UsageError
from ...graph import Graph, Opr, Var
from ...graph.dtypes import Array
from .matching import Matching, match
from .measuring import Distance, Sketch, agree, distance, sketch, sketches_agree
from .running import DiffSide, EngineSide, FileSide, GraphSide, pairs
from .stored import StoredValues

__all__ = ["TOLERANCE", "Constant", "Differences", "SuspectVar", "between"]

TOLERANCE = 1e-4
"""How far a value may be off, relative to the largest value of its tensor."""


@dataclass(frozen=True)
class Constant:
    """A stored tensor that is not the same on both sides.

    Attributes:
        var: the variable of the model under suspicion.
        count: how many elements differ.
        size: how many there are.
        index: where the difference is largest.
        found, expected: the two values there.
    """

    var: Var
    count: int
    size: int
    index: tuple[int, ...]
    found: float
    expected: float


@dataclass(frozen=True)
class SuspectVar:
    """One variable of the model under suspicion beside its partner.

    Attributes:
        var: the variable.
        label: its partner's name.
        how: how they were matched.
        distance: how far they are apart; None where their numbers of elements differ.
        agrees: whether they are within the tolerance.
        shapes: the shapes of both.
        between: for a row that is to blame, the operators before it that have no counterpart, back to values that
            agree.
    """

    var: Var
    label: str
    how: str
    distance: Distance | None
    agrees: bool
    shapes: tuple[tuple[int, ...], tuple[int, ...]]

    between: tuple[Opr, ...] = ()

    @property
    def opr(self) -> Opr:
        """The operator that makes the variable."""
        return self.var.owner


@dataclass(eq=False)
class Differences:
    """What a comparison found.

    Attributes:
        rows: all compared variables in execution order.
        constants: stored tensors that differ.
        roots: rows whose operator got inputs that agree and gave a value that does not.
        matched: how many variables were matched in which way.
        total: how many variables the model has.
    """

    rows: list[SuspectVar]
    constants: list[Constant]
    roots: list[SuspectVar]
    matched: dict[str, int]
    total: int
    outputs: set[int] = field(default_factory=set)

    @property
    def first(self) -> SuspectVar | None:
        """The first variable that is out of its tolerance."""
        return next((r for r in self.rows if not r.agrees), None)

    @property
    def agree(self) -> bool:
        """Whether everything that was compared agrees, and something was."""
        return bool(self.rows) and self.first is None

    def causes(self, row: SuspectVar) -> list[Constant]:
        """List the differing constants that an operator reads."""
        reads = {v.id for o in (row.opr, *row.between) for v in o.inputs}
        return [c for c in self.constants if c.var.id in reads]


def between(
    graph: Graph,
    against: Graph | StoredValues | FileSide | str,
    feeds: Mapping[str, Array],
    *,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> Differences:
    """Run a model beside something else on the same inputs and compare all variables that stand for each other.

    Args:
        graph: the model under suspicion, without checks.
        against: what it is held against: another graph without checks, ``"float64"`` for itself in double precision,
            the name of an engine that runs it as well, the file that it was made of on a runtime, or stored values by
            variable name.
        feeds: arrays by input name, in storage dtype.
        tolerance: how far a value may be off, relative to the largest absolute value of its tensor; quantized values
            may be off by one step.
        seed: seed of random operators on both sides.

    Raises:
        UsageError: nothing of the two can be matched.

    >>> import loadrun
    >>> from loadrun.passes.copies import bare
    >>> bundle = loadrun.load("fixtures/nets/mlp.mge")
    >>> found = between(bare(bundle), "float64", bundle.testcases[0].inputs)
    >>> found.agree, len(found.rows) > 10
    (True, True)
    """
    if isinstance(against, StoredValues):
        return _with_stored(graph, against, feeds, tolerance, seed)
    other: DiffSide
    constants: list[Constant] = []
    if isinstance(against, FileSide):
        other = against
        matching = _itself(against.named)
    elif isinstance(against, str):
        wide = against == "float64"
        other = GraphSide(graph, seed, wide=True) if wide else EngineSide(graph, against, seed)
        matching = _itself(graph.vars())
    else:
        other = GraphSide(against, seed)
        matching = match(graph, against)
        constants = _differing(graph, matching)
        _by_value(graph, against, matching, feeds, tolerance, seed)
    rows = []
    for var, found, there, expected in pairs(
        GraphSide(graph, seed).values(feeds), other.values(feeds), matching.pairs
    ):
        if var.owner.tensors:
            continue
        rows.append(_row(var, found, there.label, expected, matching.how[var.id], tolerance))
    if not rows:
        raise UsageError(
            f"{against} gives no intermediate value"
            if not isinstance(against, Graph)
            else "nothing of the two models can be matched: neither names nor structure are alike"
        )
    outputs = {v.id for v in graph.outputs}
    rows = _meant(graph, rows, outputs)
    roots = _roots(graph, rows, {c.var.id for c in constants})
    return Differences(rows, constants, roots, matching.counts(), len([*graph.vars()]), outputs)


def _itself(variables: Iterable[Var]) -> Matching:
    m = Matching()
    for var in variables:
        m.add(var, var, "name")
    return m


def _row(var: Var, found: Array, label: str, expected: Array, how: str, tolerance: float) -> SuspectVar:
    apart = distance(found, expected)
    return SuspectVar(
        var, label, how, apart, agree(apart, var.dtype, tolerance), (found.shape, expected.shape)
    )


def _differing(graph: Graph, matching: Matching) -> list[Constant]:
    """List matched constants whose values are not the same."""
    found: list[Constant] = []
    for opr in graph.oprs:
        if opr.type == "Host2DeviceCopy":
            continue
        for var, tensor in zip(opr.outputs, opr.tensors, strict=False):
            other = matching.pairs.get(var.id)
            if other is None or tensor.data is None or other.index >= len(other.owner.tensors):
                continue
            there = other.owner.tensors[other.index]
            if there.data is not None and there.shape == tensor.shape and there.dtype == tensor.dtype:
                found += _unequal(var, tensor.value(), there.value())
    return found


def _unequal(var: Var, x: Array, y: Array) -> Iterator[Constant]:
    a, b = x.astype(np.float64), y.astype(np.float64)
    wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not wrong.any():
        return
    with np.errstate(all="ignore"):
        apart = np.where(wrong, np.nan_to_num(np.abs(a - b), nan=np.inf), -1.0)
    at = np.unravel_index(int(np.argmax(apart)), a.shape)
    yield Constant(
        var,
        int(np.count_nonzero(wrong)),
        a.size,
        tuple(int(i) for i in at),
        float(a[at]),
        float(b[at]),
    )


def _by_value(
    a: Graph, b: Graph, matching: Matching, feeds: Mapping[str, Array], tolerance: float, seed: int
) -> None:
    """Match what is left by sketches of the values: optimized graphs compute the same by other operators."""
    left = [v for o in a.oprs if o.inputs for v in o.outputs if v.id not in matching.pairs]
    right = [v for o in b.oprs if o.inputs for v in o.outputs if v.id not in matching.taken]
    if not left or not right:
        return
    mine = _sketches(GraphSide(a, seed), feeds, left)
    theirs = _sketches(GraphSide(b, seed), feeds, right)
    by_size: dict[int, list[tuple[Var, Sketch]]] = {}
    for var, values in theirs:
        by_size.setdefault(values[0], []).append((var, values))
    for var, values in mine:
        for other, there in by_size.get(values[0], []):
            if other.id not in matching.taken and sketches_agree(values, there, tolerance):
                matching.add(var, other, "value")
                break


def _sketches(side: DiffSide, feeds: Mapping[str, Array], of: Sequence[Var]) -> list[tuple[Var, Sketch]]:
    wanted = {v.id for v in of}
    return [(var, sketch(value)) for var, value in side.values(feeds) if var.id in wanted]


def _meant(graph: Graph, rows: list[SuspectVar], outputs: set[int]) -> list[SuspectVar]:
    """Drop rows that were matched by their place alone and whose difference has no effect.

    An optimized graph computes the same by other intermediate values: a factor that comes later, say. Where everything
    that is computed from a value agrees again, its partner was another value and not a wrong one.
    """
    state = {r.var.id: r for r in rows}
    matters: set[int] = set()
    dropped: set[int] = set()
    for opr in reversed(graph.oprs):
        for var in opr.outputs:
            row = state.get(var.id)
            if row is not None and row.agrees:
                continue
            if row is not None and row.how == "place" and var.id not in outputs and var.id not in matters:
                dropped.add(var.id)
                continue
            if row is not None or var.id in matters:
                matters.update(v.id for v in opr.inputs)
    return [r for r in rows if r.var.id not in dropped]


def _roots(graph: Graph, rows: Sequence[SuspectVar], differing: set[int]) -> list[SuspectVar]:
    """Rows that do not agree although all that they are computed from does."""
    state = {r.var.id: r.agrees for r in rows}
    clean: dict[int, bool] = {}
    for opr in graph.oprs:
        # Whether everything behind the operator's inputs agrees, as far as it was compared.
        behind = all(state.get(v.id, clean.get(v.id, True)) for v in opr.inputs)
        for var in opr.outputs:
            clean[var.id] = behind
    roots = [r for r in rows if not r.agrees and clean[r.var.id] and r.var.id not in differing]
    return [replace(r, between=_uncompared(r.opr, state)) for r in roots]


def _uncompared(opr: Opr, state: Mapping[int, bool]) -> tuple[Opr, ...]:
    """List the operators without counterpart between an operator and the compared values before it."""
    found: dict[int, Opr] = {}
    todo = [opr]
    while todo:
        for var in todo.pop().inputs:
            owner = var.owner
            if var.id not in state and owner.inputs and owner.id not in found:
                found[owner.id] = owner
                todo.append(owner)
    return tuple(found[i] for i in sorted(found))


def _with_stored(
    graph: Graph, stored: StoredValues, feeds: Mapping[str, Array], tolerance: float, seed: int
) -> Differences:
    rows = []
    for var, found in GraphSide(graph, seed).values(feeds):
        if var.owner.tensors:
            continue
        expected = stored.of(var)
        if expected is not None:
            rows.append(_row(var, found, var.label, expected, "name", tolerance))
    if not rows:
        raise UsageError(
            f"none of the {len(stored)} stored values has the name of a variable; "
            f"they are called {', '.join(stored.names()[:5])}"
        )
    return Differences(
        rows,
        [],
        _roots(graph, rows, set()),
        {"name": len(rows)},
        len([*graph.vars()]),
        {v.id for v in graph.outputs},
    )
