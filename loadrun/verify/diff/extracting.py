"""Parts of a model as testcases that fail on their own: one operator, or the fewest that fail for the same reason.

Inner values are frozen from the good run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from ...base.errors import EngineError, LoadRunError, UsageError
from ...base.stages import tell
from ...compare.results import Verdict
from ...engines import make_engine
from ...engines.wide import WideEngine
from ...graph import Graph, Opr, Var, readers_of
from ...graph.dtypes import Array, DType, dtype_of
from ...graph.excerpts import excerpt
from ...ops.infer import infer_dtypes
from ...runner import Runner
from ...testcase import Bundle, Testcase
from ..pack.capture import embed
from .matching import Matching, is_constant, match, operators_before
from .running import FileSide, GraphSide, taken


def extract(
    graph: Graph,
    opr: Opr,
    against: Graph | FileSide | str,
    feeds: Mapping[str, Array],
    *,
    before: Sequence[Opr] = (),
    matching: Matching | None = None,
    seed: int = 0,
) -> Bundle:
    """Make a bundle of one operator: its inputs and expected outputs are the reference's.

    Constants that the operator reads stay those of the model under suspicion, so that a wrong weight shows. An input
    that the reference does not have is the model's own.

    Args:
        graph: the model under suspicion, without checks.
        opr: one of its operators.
        against: the reference: a graph without checks, ``"float64"``, the name of an engine, or the file that the graph
            was made of on a runtime.
        feeds: arrays by input name.
        before: operators before it that go along, since the reference has no values between them.
        matching: the partners of the variables in another graph, where they are known.
        seed: seed of random operators.

    Raises:
        UsageError: the reference has no value for an output of the operator.
    """
    infer_dtypes(graph.needed(opr.outputs))
    inside = {v.id for o in (*before, opr) for v in o.outputs}
    border = {v.id: v for o in (*before, opr) for v in o.inputs if v.id not in inside and not is_constant(v)}
    known = reference_values(graph, [*border.values(), *opr.outputs], against, feeds, seed, matching)
    targets = [v for v in opr.outputs if v.id in known]
    if not targets:
        raise UsageError("the reference has no value for the operator's outputs")
    values = computed_values(graph, list(border.values()), feeds, seed)
    for number in border:
        value = known.get(number)
        if value is None or (number in values and value.shape != values[number].shape):
            # The reference has another layout.
            known.update({number: values[number]} if number in values else {})
    dtypes = reference_dtypes(border.values(), matching)
    return as_testcase(graph, border.values(), targets, known, dtypes)


def reference_dtypes(variables: Iterable[Var], matching: Matching | None) -> dict[int, DType]:
    """List the quantized dtypes of the reference, by the model's variable ids, where scales or zero points differ."""
    dtypes = {}
    for var in variables:
        other = matching.pairs.get(var.id) if matching is not None else None
        mine, there = var.dtype, other.dtype if other is not None else None
        if mine is not None and there is not None and mine != there and mine.name == there.name:
            dtypes[var.id] = there
    return dtypes


def as_testcase(
    graph: Graph,
    border: Iterable[Var],
    targets: Sequence[Var],
    values: Mapping[int, Array],
    dtypes: Mapping[int, DType] | None = None,
    *,
    maxerr: float | None = None,
) -> Bundle:
    """Make a bundle of what is between some variables, with values for them as its testcase.

    Args:
        graph: the model, whose dtypes are inferred.
        border: the variables that become inputs.
        targets: the variables that are checked.
        values: arrays by id for all of them, in storage form.
        dtypes: dtypes of inputs that are not the model's, by id.
        maxerr: tolerance of the checks, by MegEngine's measure.

    Raises:
        UsageError: a variable has no value.
    """
    names: dict[int, str] = {}
    arrays: dict[str, Array] = {}
    for var in border:
        if var.id not in values:
            raise UsageError(f"there is no value for the operator's input {var.label!r}")
        name = var.name or f"input{len(names)}"
        names[var.id] = name = f"{name}.{len(names)}" if name in arrays else name
        arrays[name] = values[var.id]
    for var in targets:
        if var.id not in values:
            raise UsageError(
                f"there is no value for {var.label!r}, since the model stops before it; give inputs that it takes"
            )
    alone, copies = excerpt(graph, targets, names)
    others = {names[i]: d for i, d in (dtypes or {}).items() if i in names}
    for var in alone.inputs:
        var.shape = arrays[var.name or ""].shape
        var.owner.tensors[0].shape = var.shape
        var.dtype = var.owner.tensors[0].dtype = others.get(var.name or "", var.owner.tensors[0].dtype)
    for var in targets:
        copies[var.id].name = var.name or f"output{var.id}"
    expects = {f"{copies[v.id].name}:expect": values[v.id] for v in targets}
    kinds = {v.name or "": v.owner.tensors[0].dtype for v in alone.inputs}
    kinds |= {f"{copies[v.id].name}:expect": v.dtype for v in targets if v.dtype is not None}
    used = {v.name for v in alone.inputs}
    inputs = {n: a for n, a in arrays.items() if n in used}
    # What has no elements compares nothing, as the verdict says.
    case = Testcase({**inputs, **expects}, kinds)
    return embed(Bundle(alone), [case], maxerr=maxerr, warn=lambda _: None)


def fails_alone(bundle: Bundle) -> bool:
    """Return whether an extracted operator gives other values than the reference's on the reference's inputs."""
    return Runner(bundle).replay_one(0).verdict is not Verdict.PASS


_KEPT = 1 << 26
"""Bytes of values of the reference that are kept."""


def computed_values(
    graph: Graph, variables: Sequence[Var], feeds: Mapping[str, Array], seed: int
) -> dict[int, Array]:
    """Compute values in the model itself, as far as it goes."""
    fed = _fed(variables, feeds)
    wanted = {v.id for v in variables} - fed.keys()
    run = ((v, a) for v, a in GraphSide(graph, seed).values(feeds) if v.id in wanted)
    return fed | {v.id: stored_as(a, v.dtype, v) for v, a in islice(run, len(wanted))}


def _fed(variables: Sequence[Var], feeds: Mapping[str, Array]) -> dict[int, Array]:
    return {v.id: feeds[v.name] for v in variables if v.name and v.name in feeds and not v.owner.inputs}


def stored_as(value: Array, dtype: DType | None, var: Var) -> Array:
    """Return numbers in the storage dtype of a variable.

    Args:
        value: the numbers that a variable of the reference stands for.
        dtype: that variable's dtype; the integers of quantized values stay what they are, whatever the scale.
        var: the variable of the model under suspicion.
    """
    # An operator that failed has outputs without dtype.
    mine = var.dtype or dtype_of(value)
    source = dtype if dtype is not None and dtype.is_quantized else mine
    if source.is_quantized and (value.dtype.kind == "f") and (mine.is_quantized or mine.np.kind in "iu"):
        limits = np.iinfo(mine.np)
        value = np.clip(np.rint(value / float(source.scale)) + source.zero_point, limits.min, limits.max)
    with np.errstate(all="ignore"):
        return value.astype(mine.np)


def reference_values(
    graph: Graph,
    wanted: Sequence[Var],
    against: Graph | FileSide | str,
    feeds: Mapping[str, Array],
    seed: int,
    matching: Matching | None = None,
    kept: dict[int, Array] | None = None,
) -> dict[int, Array]:
    """Compute values in the reference, in storage form, by the model's variable ids.

    Args:
        kept: small values of a reference graph by its own variable ids, of the same data; they are not computed again.
    """
    fed = _fed(wanted, feeds)
    if isinstance(against, FileSide):
        asked = [(v, against.value(v, feeds)) for v in wanted if v.id not in fed]
        return fed | {v.id: stored_as(a, v.dtype, v) for v, a in asked if a is not None}
    if isinstance(against, Graph):
        pairs = (matching or match(graph, against)).pairs
        mine = {pairs[v.id].id: v for v in wanted if v.id in pairs and v.id not in fed}
        kept = {} if kept is None else kept
        if not mine.keys() <= kept.keys():
            left, room = len(mine), _KEPT
            kept.clear()
            for var, value in GraphSide(against, seed).values(feeds):
                room -= value.nbytes
                if room >= 0 or var.id in mine:
                    kept[var.id] = value.copy()
                left -= var.id in mine
                if not left and room < 0:
                    break
        found = {v: kept[i] for i, v in mine.items() if i in kept}
        return fed | {v.id: stored_as(a, pairs[v.id].dtype, v) for v, a in found.items()}
    targets = [v for v in wanted if v.id not in fed]
    engine = (
        WideEngine(graph, targets, seed=seed)
        if against == "float64"
        else make_engine(against, graph, targets, seed=seed)
    )
    values = engine.run(taken(engine.inputs, feeds))
    return fed | {v.id: a.astype(_np(v), copy=False) for v, a in zip(targets, values, strict=True)}


def _np(var: Var) -> np.dtype[Any]:
    assert var.dtype is not None
    return var.dtype.np


Judge = Callable[[Bundle], str | None]
"""Tells why a candidate fails, None if it passes; the same reason is the same text."""


@dataclass(frozen=True)
class Reduced:
    """The result of a reduction.

    Attributes:
        bundle: the smallest model that fails, with its testcase.
        operators: how many operators it has, without constants and inputs.
        total: how many the whole model has.
        runs: how many candidates were tried, the whole model among them.
        reason: why it fails, and the whole model did.
        is_interrupted: whether there was more to try.
    """

    bundle: Bundle
    operators: int
    total: int
    runs: int
    reason: str
    is_interrupted: bool = False


class _OutOfRunsError(Exception):
    """The reduction used up its runs."""


class _Search:
    def __init__(
        self,
        graph: Graph,
        good: Callable[[Sequence[Var]], Mapping[int, Array]],
        known: set[int],
        judge: Judge,
        maxerr: float,
        dtypes: Mapping[int, DType],
        runs: int,
    ) -> None:
        self._graph, self._good, self._judge = graph, good, judge
        self._maxerr, self._most = maxerr, runs
        self._dtypes = dtypes
        self.oprs = [o for o in graph.needed() if o.inputs]
        self._ends = {v.id for v in graph.outputs}
        self._readers = readers_of(self.oprs)
        self.known = known
        self.runs = 0
        self.reason: str | None = None
        self.best: tuple[list[Opr], Bundle] | None = None

    def fails(self, oprs: Sequence[Opr], rows: slice | None = None) -> bool:
        """Try some operators alone; those that fail for the reason of the whole model are kept as the best."""
        if self.runs >= self._most:
            raise _OutOfRunsError
        oprs = self._closed(oprs)
        inside = {v.id for o in oprs for v in o.outputs}
        border = {v.id: v for o in oprs for v in o.inputs if v.id not in inside and not is_constant(v)}
        chosen = {o.id for o in oprs}
        targets = [v for o in oprs for v in o.outputs if v.id in self.known and self._leaves(v, chosen)]
        if not targets:
            return False
        values = dict(self._good([*border.values(), *targets]))
        if rows is not None:
            count = values[targets[0].id].shape[:1]
            values = {i: a[rows] if a.shape[:1] == count else a for i, a in values.items()}
        self.runs += 1
        tell(f"run {self.runs}, {len(self.best[0] if self.best else self.oprs)} operators left")
        try:
            bundle = as_testcase(
                self._graph, border.values(), targets, values, self._dtypes, maxerr=self._maxerr
            )
            reason = self._judge(bundle)
        except LoadRunError as e:
            if len(oprs) == len(self.oprs):
                raise UsageError(f"the whole model cannot be a testcase: {e}") from e
            # Nothing that can be written as a testcase.
            return False
        if reason is None or (self.reason is not None and reason != self.reason):
            return False
        self.reason = reason
        self.best = [*oprs], bundle
        return True

    def _leaves(self, var: Var, chosen: set[int]) -> bool:
        """Return whether a value is an output, or read outside of the chosen operators."""
        readers = self._readers.get(var.id, [])
        return var.id in self._ends or not readers or any(o.id not in chosen for o in readers)

    def _closed(self, oprs: Sequence[Opr]) -> list[Opr]:
        """Add the operators before whose outputs the good run has no values."""
        before = operators_before(oprs, lambda v: bool(v.owner.inputs) and v.id not in self.known)
        return sorted({*oprs, *before}, key=lambda o: o.id)

    def reduce(self) -> None:
        """Cut from behind, cut from before, then leave out what is left piece by piece, then rows."""
        self._cut()
        assert self.best is not None
        self._needed()
        self._pieces()
        self._rows()

    def _cut(self) -> None:
        passing, failing = 0, len(self.oprs)
        while failing - passing > 1:
            middle = (passing + failing) // 2
            if self.fails(self.oprs[:middle]):
                failing = middle
            else:
                passing = middle
        end, first, beyond = failing, 0, failing
        while beyond - first > 1:
            middle = (first + beyond) // 2
            if self.fails(self.oprs[middle:end]):
                first = middle
            else:
                beyond = middle

    def _needed(self) -> None:
        """Keep what the last operator depends on alone."""
        assert self.best is not None
        oprs = self.best[0]
        behind = {o.id for o in self._graph.needed(oprs[-1].outputs)}
        left = [o for o in oprs if o.id in behind]
        if len(left) < len(oprs):
            self.fails(left)

    def _pieces(self) -> None:
        """Freeze what some operators give, half of them, then quarters and so on (delta debugging)."""
        assert self.best is not None
        size = len(self.best[0]) // 2
        while size:
            start = 0
            while start < len(self.best[0]) and len(self.best[0]) > 1:
                oprs = self.best[0]
                if not self._is_smaller([*oprs[:start], *oprs[start + size :]]):
                    start += size
            size //= 2

    def _is_smaller(self, oprs: Sequence[Opr]) -> bool:
        assert self.best is not None
        return 0 < len(self._closed(oprs)) < len(self.best[0]) and self.fails(oprs)

    def _rows(self) -> None:
        """Halve the batch, where all outputs have one."""
        assert self.best is not None
        oprs, bundle = self.best
        sizes = {a.shape[:1] for a in bundle.testcases[0].expects.values()}
        if len(sizes) != 1 or not (first := sizes.pop()):
            return
        start, count = 0, first[0]
        while count > 1:
            half = count // 2
            if self.fails(oprs, slice(start, start + half)):
                count = half
            elif self.fails(oprs, slice(start + half, start + count)):
                start, count = start + half, count - half
            else:
                return


def reduce_graph(
    graph: Graph,
    good: Callable[[Sequence[Var]], Mapping[int, Array]],
    known: set[int],
    judge: Judge,
    *,
    maxerr: float,
    dtypes: Mapping[int, DType] | None = None,
    runs: int = 60,
    passing: str = "the model does not fail",
) -> Reduced:
    """Find the fewest operators that still fail for the reason for which the whole model fails.

    The model is cut from behind and from before by bisection, then what is left is left out piece by piece. Whatever is
    cut off is replaced by the values of the good run, so that no candidate inherits a difference.

    Args:
        graph: the model, without checks.
        good: gives values of variables in the good run, in storage form.
        known: ids of the variables that have one there.
        judge: says why a candidate fails.
        maxerr: tolerance of the candidates' checks, by MegEngine's measure.
        dtypes: dtypes that variables have in the good run, by id, where they are others.
        runs: how many candidates may be tried.
        passing: what is said where the whole model does not fail.

    Raises:
        UsageError: the whole model does not fail.
    """
    for opr in graph.needed():
        # A fault may leave an operator with inputs that it cannot take.
        with suppress(EngineError):
            infer_dtypes([opr])
    search = _Search(graph, good, known, judge, maxerr, dtypes or {}, runs)
    if not search.fails(search.oprs):
        raise UsageError(f"{passing}, so there is nothing to reduce")
    stopped = False
    try:
        search.reduce()
    except (KeyboardInterrupt, _OutOfRunsError):
        stopped = True
    assert search.best is not None
    assert search.reason is not None
    oprs, bundle = search.best
    return Reduced(bundle, len(oprs), len(search.oprs), search.runs, search.reason, stopped)
