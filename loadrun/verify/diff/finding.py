"""Where two runs diverge: the first operator out of its tolerance, and the operators that are to blame."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isclose

from ...base.errors import UsageError
from ...engines.wide import computed_alike
from ...graph import Graph, Opr, Var, readers_of
from ...graph.dtypes import Array, DType, dequantized
from . import measuring
from .blaming import SuspectVar, blame, unexplained, with_counterpart, with_located
from .by_value import match_by_value
from .changes import ChangedConstant, changed_constants, changes
from .lone import with_lone
from .matching import Matching, extend, is_cast, is_constant, match
from .patching import Sketched, explains, locate
from .running import (
    AskedSide,
    Bisected,
    DiffSide,
    EngineSide,
    FileSide,
    GraphSide,
    Stop,
    bisect,
    computed,
    pairs,
)
from .stored import StoredValues, biases_behind
from .watching import Finding, Finiteness, overflowed

_OPTIMIZED = "it agrees as soon as every value is asked for, so an optimization of the engine changes it"
_Readers = Mapping[int, Sequence[Opr]]


@dataclass(eq=False)
class Differences:
    """The result of a comparison.

    Attributes:
        graph: the model under suspicion.
        rows: all compared variables in execution order.
        constants: stored tensors that differ.
        roots: rows whose operator got inputs that agree and gave a value that does not.
        matched: how many variables were matched in which way.
        stops: operators that could not run, of the model and of the reference.
        lonely: how many values that the model computes have no counterpart.
        matching: the partners of the variables.
        unjudged: how many values are float64 in the model, so that double precision is the same code once more.
        findings: where the model leaves the range of a dtype, and if an output is not finite, where that begins.
        complete: whether the model has all its outputs, none of them not finite on both sides, which says nothing.
        untouched: outputs of an engine's run that was asked for nothing else, where these agree or differ otherwise
            than in the run that gave every value: asking for values keeps an engine from fusing operators.
    """

    graph: Graph
    rows: list[SuspectVar]
    constants: list[ChangedConstant]
    roots: list[SuspectVar]
    matched: dict[str, int]
    stops: tuple[list[Stop], list[Stop]] = field(default_factory=lambda: ([], []))
    lonely: int = 0
    matching: Matching = field(default_factory=Matching)
    unjudged: int = 0
    findings: list[Finding] = field(default_factory=list)
    complete: bool = True
    untouched: list[SuspectVar] = field(default_factory=list)

    @property
    def optimized(self) -> bool:
        """Return whether an engine's optimization is to blame: its outputs differ, unless all values are asked for."""
        return any(not r.agrees for r in self.untouched)

    @property
    def first(self) -> SuspectVar | None:
        """The first variable that is out of its tolerance."""
        return next((r for r in self.rows if not r.agrees), None)

    @property
    def total(self) -> int:
        """How many variables the model has."""
        return len([*self.graph.vars()])

    @property
    def share(self) -> float:
        """The share of the model's variables that were matched."""
        return sum(self.matched.values()) / max(self.total, 1)

    @property
    def agree(self) -> bool:
        """Return whether everything that was compared agrees, and something was."""
        return bool(self.rows) and self.first is None and not self.roots and not any(self.stops)

    @property
    def outputs_agree(self) -> bool:
        """Return whether all outputs were compared and agree."""
        agreeing = {r.var.id for r in self.rows if r.agrees}
        return self.complete and all(v.id in agreeing for v in self.graph.outputs)

    @property
    def nearly(self) -> float:
        """The largest difference of a value, relative to the largest of its tensor; 0 where all are equal."""
        return max((r.distance.relative for r in self.rows if r.distance is not None), default=0.0)

    def tolerated(self) -> Iterator[tuple[SuspectVar, str]]:
        """Yield operators that are other ones in the reference, and whose values are so near that they agree."""
        for row in self.rows if self.matching.alike else ():
            partner = self.matching.pairs.get(row.var.id)
            if partner is None or row.distance is None or not row.distance.absolute or row.how == "value":
                continue
            if said := "; ".join(changes(row.opr, partner.owner, self.matching)):
                yield row, said

    def causes(self, row: SuspectVar) -> list[ChangedConstant]:
        """List the differing constants that an operator reads."""
        reads = {v.id for o in (row.opr, *row.between) for v in o.inputs}
        return [c for c in self.constants if c.var.id in reads]


def between(
    graph: Graph,
    against: Graph | StoredValues | FileSide | str,
    feeds: Mapping[str, Array],
    *,
    tolerance: float | None = None,
    seed: int = 0,
    whole: tuple[bool, bool] = (True, True),
) -> Differences:
    """Run a model beside something else on the same inputs and compare all variables that stand for each other.

    Args:
        graph: the model under suspicion, without checks.
        against: the baseline: another graph without checks, ``"float64"`` for itself in double precision,
            the name of an engine that runs it as well, the file that it was made of on a runtime, or stored values by
            variable name.
        feeds: arrays by input name, in storage dtype.
        tolerance: how far a value may be off, relative to the largest absolute value of its tensor (see `Tolerances`);
            quantized values may be off by one step.
        seed: seed of random operators on both sides.
        whole: whether the outputs of the two graphs are those of models; False for what can be expressed of one.

    Raises:
        UsageError: nothing of the two can be matched.
        EngineError: an engine gives no values and does not run the model.

    >>> import loadrun
    >>> from loadrun.passes.constants import bare
    >>> bundle = loadrun.load("fixtures/nets/mlp.mge")
    >>> found = between(bare(bundle), "float64", bundle.testcases[0].inputs)
    >>> found.agree, len(found.rows) > 10
    (True, True)
    """
    if isinstance(against, StoredValues):
        return _with_stored(graph, against, feeds, measuring.Tolerances(tolerance, graph), seed)
    wide = isinstance(against, str) and against == "float64"
    tolerances = measuring.Tolerances(
        tolerance, graph, against if isinstance(against, Graph) else graph, exactly=wide
    )
    finiteness = Finiteness(graph, wide=wide)
    side = GraphSide(graph, seed)
    matching, constants, alike = Matching(), [], False
    other: DiffSide
    if not isinstance(against, Graph):
        other, matching = _engine_side(graph, against, seed)
    else:
        other = GraphSide(against, seed)
        matching = match(graph, against, ordered=all(whole))
        constants = changed_constants(graph, matching)
        ends = {v.id for v in graph.outputs} if whole[0] else set[int]()
        sketched = Sketched(graph, feeds, seed), Sketched(against, feeds, seed)
        match_by_value(*sketched, matching, tolerances.exact, ends)
        extend(matching, graph, against)
        alike = True
    plain = not any(measuring.has_layouts(g) for g in (graph, against) if isinstance(g, Graph))
    readers = readers_of(graph.oprs), readers_of(against.oprs if isinstance(against, Graph) else ())
    outputs = {v.id for v in graph.outputs}
    rows: list[SuspectVar] = []
    equal: set[int] = {v.id for v in graph.vars() if v.owner.tensors}
    unlike: dict[int, Var] = {}
    sums = measuring.Sums(graph)
    kept: dict[int, Array] = {}
    mine = _keeping(side.values(feeds), outputs, kept)
    for var, actual, there, expected in pairs(mine, other.values(feeds), matching.pairs):
        sums.see(var, expected)
        finiteness.see(var, actual, expected)
        if var.owner.tensors:
            continue
        packed = measuring.is_packed_otherwise(var, there)
        exactly = alike and not packed and _computed_alike(var, there, matching, equal)
        how = matching.how[var.id]
        values = _in_one_unit((var, actual), (there, expected), readers)
        near = tolerances.of(var, there)
        apart = measuring.distance(*values, near, packed=packed)
        shapes = actual.shape, expected.shape
        fine = measuring.agree(apart, _granularity(var, there, equal, matching), near, exactly=exactly)
        fine = fine or sums.cancel(var, *values)
        strictly = exactly or (alike and matching.alike and plain and how in ("name", "structure"))
        fine &= _shapes_fit(shapes, strictly, plain and var.id in outputs)
        if how == "value" and not fine and not measuring.are_reordered(*values, near):
            # Their sketches are alike, but not their numbers.
            unlike[var.id] = there
            continue
        row = SuspectVar(var, there.label, how, apart, fine, shapes)
        rows.append(row)
        if row.distance is not None and row.distance.absolute == 0 and actual.shape == expected.shape:
            equal.add(var.id)
    if not rows and not (isinstance(other, GraphSide) and (side.stops or other.stops)):
        raise _unmatched(against, other, feeds)
    matching.part_all(unlike)
    rows = sorted([*rows, *_stopped(side, other, matching)], key=lambda r: r.var.id)
    stops = (side.stops, other.stops if isinstance(other, GraphSide) else [])
    over = overflowed(graph, rows, feeds)
    if isinstance(against, Graph):
        certain = unexplained(graph, rows, matching, constants) | outputs
        certain |= set(matching.pairs) - {r.var.id for r in rows} if any(stops) else set()
        every, rows = rows, with_counterpart(graph, rows, certain)
        roots = blame(graph, rows, matching, constants, every, over) or _stopped_alone(side)
        if not outputs <= {r.var.id for r in rows if r.agrees}:
            roots = _located(graph, roots, sketched, unlike, matching, tolerances)
            constants = changed_constants(graph, matching)
        roots = with_lone(roots, (graph, against), matching, constants, feeds, seed)
    else:
        roots = blame(graph, rows, None, constants, overflowed=over)
    lonely = len(computed(graph)) - len(rows) if alike else 0
    unjudged = sum(computed_alike(r.opr) for r in rows) if wide else 0
    findings = [] if any(stops) else finiteness.findings(feeds, seed)
    parts = constants, roots, matching.counts(), stops, lonely, matching, unjudged
    differences = Differences(graph, rows, *parts, findings, not over & outputs)
    if isinstance(other, AskedSide) and not isinstance(against, Graph):
        halve = partial(bisect, graph, against, feeds, tolerance=tolerance, seed=seed)
        differences = _as_used(differences, other.untouched(feeds), sums, kept, tolerances, halve)
    return differences


def _engine_side(graph: Graph, against: FileSide | str, seed: int) -> tuple[DiffSide, Matching]:
    """Give the side of an engine, a file on a runtime, or float64; its values are those of the model."""
    if isinstance(against, FileSide):
        return against, _itself(against.named)
    side = GraphSide(graph, seed, wide=True) if against == "float64" else EngineSide(graph, against, seed)
    return side, _itself(graph.vars())


def _located(
    graph: Graph,
    roots: list[SuspectVar],
    sketched: tuple[Sketched, Sketched],
    unlike: Mapping[int, Var],
    matching: Matching,
    tolerances: measuring.Tolerances,
) -> list[SuspectVar]:
    """Look for the operator that makes the reference's outputs the model's, and put it first among the suspects."""
    sketched[0].unlike.update(unlike)
    sketched[1].unlike.update(v.id for v in unlike.values())
    near = max(tolerances.of(v, matching.pairs.get(v.id, v)) for v in graph.outputs)
    suspect = roots[0].var if roots else None
    located = locate(*sketched, matching, suspect=suspect, tolerance=near)
    roots = with_located(graph, roots, located, matching)
    if len(roots) > 1 and explains(*sketched, matching, roots[0].var, near):
        # Optimized graphs have other values at a place, which are none to blame.
        roots[1:] = [r for r in roots[1:] if r.is_changed]
    return roots


def _keeping(
    values: Iterator[tuple[Var, Array]], wanted: set[int], kept: dict[int, Array]
) -> Iterator[tuple[Var, Array]]:
    """Pass values on, and keep copies of some."""
    for var, value in values:
        if var.id in wanted:
            kept[var.id] = value.copy()
        yield var, value


def _as_used(
    observed: Differences,
    untouched: Iterable[tuple[Var, Array]],
    sums: measuring.Sums,
    kept: Mapping[int, Array],
    tolerances: measuring.Tolerances,
    halve: Callable[[], Bisected],
) -> Differences:
    """Compare the outputs of an engine's run as users have it, in place of those of the run that gave every value.

    Where nothing else is to blame for a difference, `halve` finds the operator.
    """
    rows = {r.var.id: r for r in observed.rows}
    otherwise = []
    for var, expected in untouched:
        if var.id not in kept:
            continue
        row = _row(var, kept[var.id], expected, var.label, "name", tolerances.of(var))
        row = replace(row, agrees=row.agrees or sums.cancel(var, kept[var.id], expected))
        before = rows.get(var.id)
        if before is None or before.agrees != row.agrees:
            rows[var.id] = row
            otherwise.append(row)
    differences = replace(observed, rows=[rows[i] for i in sorted(rows)], untouched=otherwise)
    if differences.optimized and not differences.roots:
        differences.roots = _bisected(halve(), differences)
    return differences


def _bisected(halved: Bisected, differences: Differences) -> list[SuspectVar]:
    """Blame what halving found, or else the first output that differs."""
    first = next(r for r in differences.untouched if not r.agrees)
    if halved.var is not None and halved.var.id != first.var.id:
        there = differences.matching.pairs.get(halved.var.id, halved.var)
        first = SuspectVar(halved.var, there.label, "name", halved.distance, False, ())
    return [replace(first, changes=(_OPTIMIZED,))]


def _unmatched(against: Graph | FileSide | str, other: DiffSide, feeds: Mapping[str, Array]) -> UsageError:
    """Say why nothing was compared."""
    if isinstance(against, Graph):
        return UsageError("the two models cannot be matched: neither names nor structure agree")
    if isinstance(other, AskedSide):
        other.require_runs(feeds)
    return UsageError(f"{against} returns no intermediate values")


def _shapes_fit(shapes: tuple[tuple[int, ...], ...], strictly: bool, is_output: bool) -> bool:
    """Return whether a variable may have two shapes: inside, other formats and layouts have their own."""
    if strictly:
        return shapes[0] == shapes[1]
    # Of scalars, a dump has one axis.
    return not is_output or [n for n in shapes[0] if n > 1] == [n for n in shapes[1] if n > 1]


def _stopped(side: GraphSide, other: DiffSide, matching: Matching) -> list[SuspectVar]:
    """Give rows for the operators that could run on one side only."""
    alone = {s.opr.outputs[0].id: s.opr.outputs[0] for s in side.stops}
    if isinstance(other, GraphSide) and other.stops:
        mine = {matching.pairs[v.id].id: v for v in side.graph.vars() if v.id in matching.pairs}
        for stop in other.stops:
            var = mine.get(stop.opr.outputs[0].id)
            if var is not None and alone.pop(var.id, None) is None:
                alone[var.id] = var
    return [
        SuspectVar(v, matching.pairs[v.id].label, matching.how[v.id], None, False, (), is_stop=True)
        for v in alone.values()
        if v.id in matching.pairs
    ]


def _stopped_alone(side: GraphSide) -> list[SuspectVar]:
    """Blame the operator that could not run, where it has no partner."""
    variables = [s.opr.outputs[0] for s in side.stops]
    return [SuspectVar(v, "", "", None, False, (), is_stop=True) for v in variables[:1]]


def _computed_alike(var: Var, there: Var, matching: Matching, equal: set[int]) -> bool:
    """Return whether two operators of one type read the same bits, but for constants."""
    a, b = var.owner, there.owner
    return (
        a.type == b.type
        and len(a.inputs) == len(b.inputs)
        and all(
            (is_constant(x) and is_constant(y)) or (x.id in equal and matching.pairs.get(x.id) is y)
            for x, y in zip(a.inputs, b.inputs, strict=True)
        )
    )


def _itself(variables: Iterable[Var]) -> Matching:
    m = Matching()
    for var in variables:
        m.add(var, var, "name")
    return m


def _in_one_unit(
    mine: tuple[Var, Array], other: tuple[Var, Array], readers: tuple[_Readers, _Readers]
) -> tuple[Array, Array]:
    """Take integers for quantized values where those on the other side are: ONNX's types hold no scale."""
    (var, actual), (there, expected) = mine, other
    if var.dtype is None or there.dtype is None or var.dtype.is_quantized == there.dtype.is_quantized:
        return actual, expected
    if var.dtype.is_quantized and there.dtype.np.kind in "iu":
        return actual, _scaled_like(there, expected, var.dtype, readers[1])
    if there.dtype.is_quantized and var.dtype.np.kind in "iu":
        return _scaled_like(var, actual, there.dtype, readers[0]), expected
    return actual, expected


def _scaled_like(var: Var, value: Array, dtype: DType, readers: _Readers) -> Array:
    """Scale integers as a quantized dtype does, or as their own graph does behind them where that is known."""
    while len(behind := readers.get(var.id, ())) == 1:
        (opr,) = behind
        constants = [v.owner.tensors[v.index].value() for v in opr.inputs if is_constant(v)]
        shifted = any(c.any() for c in constants[1:])
        if (
            opr.title in ("MUL", "Mul", "DequantizeLinear")
            and constants
            and constants[0].size == 1
            and not shifted
        ):
            factor = float(constants[0].item())
            return dequantized(value, dtype) if isclose(factor, dtype.scale, rel_tol=1e-6) else value * factor
        # A bias may be added before.
        if not is_cast(opr) and not (opr.title in ("ADD", "Add") and constants):
            break
        var = opr.outputs[0]
    return dequantized(value, dtype)


def _granularity(var: Var, there: Var, equal: set[int], matching: Matching) -> DType | None:
    """Return the dtype by whose step a value may be off: what fusing made a step off before a cast stays so."""
    if there.dtype is not None and there.dtype.is_quantized:
        return there.dtype
    if matching.alike and is_cast(var.owner) and var.owner.inputs[0].id not in equal:
        before = var.owner.inputs[0].dtype
        if before is not None and before.is_quantized:
            return before
    return var.dtype


def _row(var: Var, actual: Array, expected: Array, label: str, how: str, tolerance: float) -> SuspectVar:
    apart = measuring.distance(actual, expected, tolerance)
    fine = measuring.agree(apart, var.dtype, tolerance)
    return SuspectVar(var, label, how, apart, fine, (actual.shape, expected.shape))


def _with_stored(
    graph: Graph,
    stored: StoredValues,
    feeds: Mapping[str, Array],
    tolerances: measuring.Tolerances,
    seed: int,
) -> Differences:
    rows = []
    finiteness = Finiteness(graph)
    modules = stored.modules(graph)
    unplaced, readers = stored.unplaced(graph, modules), readers_of(graph.oprs)
    side = GraphSide(graph, seed)
    for var, actual in side.values(feeds):
        if var.owner.tensors:
            continue
        finiteness.see(var, actual, actual)
        expected = stored.of(var)
        if expected is None and var.id in modules:
            module = modules[var.id]
            there = stored.named(module.name)
            values = module.candidates(actual)
            tried = [_row(var, v, there, module.name, "module", tolerances.of(var)) for v in values]
            rows.append(min(tried, key=lambda r: inf if r.distance is None else r.distance.relative))
        elif expected is not None:
            rows.append(_row(var, actual, expected, var.label, "name", tolerances.of(var)))
        else:
            near = tolerances.of(var)
            biases = (v.owner.tensors[v.index].value() for v in biases_behind(readers.get(var.id, ())))
            if (place := unplaced.take(actual, biases, near)) is not None:
                name, expected, value = place
                rows.append(_row(var, value, expected, name, "value", near))
    if not rows and not side.stops:
        raise UsageError(
            f"none of the {len(stored)} stored values has the name of a variable; the first names are "
            f"{', '.join(stored.names()[:5])}"
        )
    outputs = {v.id for v in graph.outputs}
    # Where operators were folded, the last one that is left of a module need not give what the module gives, but then
    # in most elements. Such a difference counts where it reaches a value that is certain, or the last ones known.
    certain = outputs | {r.var.id for r in rows if r.how == "name" or _is_partly_off(r)} | _last(graph, rows)
    rows = with_counterpart(graph, rows, certain)
    matched = dict(Counter(r.how for r in rows))
    stops: tuple[list[Stop], list[Stop]] = (side.stops, [])
    over = overflowed(graph, rows, feeds)
    roots = blame(graph, rows, None, [], overflowed=over) or _stopped_alone(side)
    findings = [] if side.stops else finiteness.findings(feeds, seed)
    return Differences(graph, rows, [], roots, matched, stops, findings=findings, complete=not over & outputs)


def _is_partly_off(row: SuspectVar) -> bool:
    return row.distance is not None and 2 * row.distance.count <= row.distance.size


def _last(graph: Graph, rows: Sequence[SuspectVar]) -> set[int]:
    """List the variables of rows from which no other row is computed."""
    compared = {r.var.id for r in rows}
    read: set[int] = set()
    for opr in reversed(graph.oprs):
        if any(v.id in compared or v.id in read for v in opr.outputs):
            read.update(v.id for v in opr.inputs)
    return compared - read
