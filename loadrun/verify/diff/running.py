"""Sides of a comparison, which give values of variables one after another, or one at a time to a bisection."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...base.errors import EngineError, InputError, OutOfMemoryError, UsageError
from ...engines import check_engine, make_engine, make_file_engine
from ...engines.reference import ReferenceEngine
from ...engines.wide import WideEngine
from ...graph import Graph, Opr, Var
from ...graph.dtypes import Array, dequantized, dtype_of
from ...ops.infer import infer_dtypes
from ...testcase import FileValue, SourceFile
from .measuring import Distance, Tolerances, agree, distance

_MOST_STOPS = 16
_AT_ONCE = 32
"""Intermediate values that an engine is asked for in one run."""


def computed(graph: Graph) -> list[Var]:
    """List the variables that a graph computes, in execution order."""
    return [v for o in graph.needed() if o.inputs for v in o.outputs]


class DiffSide(Protocol):
    """One of the two runs."""

    def values(self, feeds: Mapping[str, Array]) -> Iterator[tuple[Var, Array]]:
        """Variables with their numbers, in execution order; an array holds until the next one is requested."""
        ...


@dataclass(frozen=True)
class Stop:
    """An operator that could not run on what it was given.

    Attributes:
        opr: the operator.
        why: the engine's words.
    """

    opr: Opr
    why: str


class GraphSide:
    """A graph on an engine, operators one by one, as far as it goes.

    An operator that fails leaves out what depends on it; the others run.

    Args:
        graph: the graph.
        seed: seed of random operators.
        wide: compute in float64, where its operators have a float64 formula.

    Attributes:
        stops: the operators that failed in the last run.
    """

    def __init__(self, graph: Graph, seed: int = 0, *, wide: bool = False) -> None:
        self.graph = graph
        self._seed = seed
        self._engine = WideEngine if wide else ReferenceEngine
        self.stops: list[Stop] = []
        self._lost: set[int] = set()

    def values(self, feeds: Mapping[str, Array]) -> Iterator[tuple[Var, Array]]:
        """See `DiffSide`."""
        self.stops, self._lost = [], set()
        self._infer()
        seen: set[int] = set()
        while len(self.stops) <= _MOST_STOPS:
            left = _runnable(self.graph, self._lost)
            engine = self._engine(self.graph, _ends(self.graph, left, self._lost), seed=self._seed)
            order = iter([o for o in left if o.type != "Host2DeviceCopy" and o.id not in seen])
            try:
                for opr, outs in engine.walk(taken(engine.inputs, feeds)):
                    if opr.id in seen:
                        continue
                    # Operators in branches that are not taken never come.
                    next((o for o in order if o is opr), None)
                    seen.add(opr.id)
                    for var, value in zip(opr.outputs, outs, strict=True):
                        yield var, dequantized(value, var.dtype)
                return
            except EngineError as e:
                failed = next(order, None)
                if failed is None or not seen or isinstance(e, OutOfMemoryError):
                    raise
                self._stop(failed, str(e))

    def _infer(self) -> None:
        """Infer dtypes operator by operator; those that cannot take theirs stop there."""
        for opr in self.graph.needed():
            if any(v.id in self._lost for v in opr.inputs):
                self._lost.update(v.id for v in opr.outputs)
                continue
            try:
                infer_dtypes([opr])
            except EngineError as e:
                self._stop(opr, str(e))

    def _stop(self, opr: Opr, why: str) -> None:
        self.stops.append(Stop(opr, why))
        self._lost.update(v.id for v in opr.outputs)


def ends(graph: Graph, stops: Sequence[Stop]) -> list[Var]:
    """List a graph's outputs, or where operators stopped, the last values that do not depend on these."""
    lost = {v.id for s in stops for v in s.opr.outputs}
    left = _runnable(graph, lost)
    last = _ends(graph, left, lost)
    # What only asks for the size of a value does not keep it.
    wanted = {v.id for o in graph.needed() if lost.intersection(v.id for v in o.outputs) for v in o.inputs}
    wanted -= {v.id for v in last}
    return [*last, *(v for o in left if o.inputs for v in o.outputs if v.id in wanted)]


def _runnable(graph: Graph, lost: set[int]) -> list[Opr]:
    """List the operators that do not depend on lost values; what the others would compute is lost, too."""
    left = []
    for opr in graph.needed():
        if any(v.id in lost for v in (*opr.inputs, *opr.outputs)):
            lost.update(v.id for v in opr.outputs)
        else:
            left.append(opr)
    return left


def _ends(graph: Graph, left: Sequence[Opr], lost: set[int]) -> list[Var]:
    """List the outputs that can be had, and where operators are left out, what nothing else reads."""
    if not lost:
        return graph.outputs
    read = {v.id for o in left for v in o.inputs}
    return [v for o in left for v in o.outputs[:1] if all(w.id not in read for w in o.outputs)]


class AskedSide:
    """A side that gives no intermediate values unless they are outputs: it runs for a few at a time.

    Args:
        engine: the engine's name.
        named: the variables that can be asked for.
        outputs: the model's outputs.
    """

    def __init__(self, engine: str, named: Sequence[Var], outputs: Sequence[Var]) -> None:
        self._engine = check_engine(engine)
        self.named, self._outputs = list(named), list(outputs)

    def __str__(self) -> str:
        return self._engine

    def values(self, feeds: Mapping[str, Array]) -> Iterator[tuple[Var, Array]]:
        """See `DiffSide`; values that the engine cannot give are left out."""
        for i in range(0, len(self.named), _AT_ONCE):
            yield from self._some(self.named[i : i + _AT_ONCE], feeds)

    def untouched(self, feeds: Mapping[str, Array]) -> Iterator[tuple[Var, Array]]:
        """Give the outputs of a run that is asked for nothing else, as users run it."""
        yield from self._some(self._outputs, feeds)

    def value(self, var: Var, feeds: Mapping[str, Array]) -> Array | None:
        """One value beside the outputs, None if the engine cannot give it."""
        if all(var.id != v.id for v in self.named):
            return None
        others = [v for v in self._outputs if v.id != var.id]
        return next((value for _, value in self._some([var], feeds, others)), None)

    def require_runs(self, feeds: Mapping[str, Array]) -> None:
        """Run the model as it is.

        Raises:
            EngineError: the engine does not take it, or fails.
        """
        self._given(self._outputs, feeds)

    def _given(self, wanted: Sequence[Var], feeds: Mapping[str, Array]) -> Sequence[FileValue]:
        """Run once for some variables, and for outputs."""
        raise NotImplementedError

    def _some(
        self, wanted: Sequence[Var], feeds: Mapping[str, Array], others: Sequence[Var] = ()
    ) -> Iterator[tuple[Var, Array]]:
        try:
            values = self._given([*wanted, *others], feeds)
        except (EngineError, InputError):
            # One that cannot be an output does not keep the others from it.
            half = len(wanted) // 2
            if half:
                yield from self._some(wanted[:half], feeds, others)
                yield from self._some(wanted[half:], feeds, others)
            return
        for var, value in zip(wanted, values, strict=False):
            if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
                yield var, dequantized(value, var.dtype)


class EngineSide(AskedSide):
    """A graph on an engine.

    Args:
        graph: the graph.
        engine: name of the engine.
        seed: seed of random operators.
    """

    def __init__(self, graph: Graph, engine: str, seed: int = 0) -> None:
        super().__init__(engine, computed(graph), graph.outputs)
        self._graph, self._seed = graph, seed

    def _given(self, wanted: Sequence[Var], feeds: Mapping[str, Array]) -> Sequence[FileValue]:
        engine = make_engine(self._engine, self._graph, wanted, seed=self._seed)
        return engine.run(taken(engine.inputs, feeds))


class FileSide(AskedSide):
    """A model's own file on a runtime: values that the graph made of it names as the file does.

    Args:
        graph: the graph that was made of the file, without checks.
        source: the file.
        engine: name of the engine.
    """

    def __init__(self, graph: Graph, source: SourceFile, engine: str) -> None:
        known = {*source.tensors, *source.outputs}
        outputs = [v for v in graph.outputs if v.name in source.outputs]
        super().__init__(engine, [v for v in computed(graph) if v.name in known], outputs)
        self.source = source

    def _given(self, wanted: Sequence[Var], feeds: Mapping[str, Array]) -> Sequence[FileValue]:
        names = [v.name or "" for v in wanted]
        engine = make_file_engine(self._engine, self.source.asking(names))
        outputs = engine.run(engine.fitted(feeds))
        return [outputs.get(n) for n in names]


def taken(inputs: Mapping[str, Var], feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Take the feeds of these inputs alone; inputs with a value of their own may be missing.

    Of an ONNX model and its .mge file one may have wider numbers than the other.

    Raises:
        InputError: an integer does not fit the narrower dtype.
    """
    return {name: _fitted(name, feeds[name], var) for name, var in inputs.items() if name in feeds}


def _fitted(name: str, array: Array, var: Var) -> Array:
    want = var.owner.tensors[0].dtype
    wide = array.dtype.kind in "fiu" and dtype_of(array).is_wide
    if array.dtype == want.np or not (wide or want.is_wide) or (array.dtype.kind == "f") != want.is_float:
        return array
    converted = array.astype(want.np)
    if converted.dtype.kind != "f" and not np.array_equal(converted, array):
        raise InputError(
            f"input {name!r} holds integers that do not fit {want.spelling}, which the other model has"
        )
    return converted


def pairs(
    actual: Iterator[tuple[Var, Array]], expected: Iterator[tuple[Var, Array]], partner: Mapping[int, Var]
) -> Iterator[tuple[Var, Array, Var, Array]]:
    """Advance two runs side by side and give matched variables together.

    Values that come early on one side are kept until their partner comes; all others are dropped at once.

    Args:
        actual, expected: the two runs.
        partner: id in the first run -> variable of the second one.
    """
    wanted = {v.id for v in partner.values()}
    early: dict[int, Array] = {}
    for var, value in actual:
        other = partner.get(var.id)
        if other is None:
            continue
        if other.id in early:
            yield var, value, other, early.pop(other.id)
            continue
        for there, what in expected:
            if there.id == other.id:
                yield var, value, there, what
                break
            if there.id in wanted:
                early[there.id] = what.copy()


@dataclass(frozen=True)
class Bisected:
    """The result of a search.

    Attributes:
        var: the first variable that is out of its tolerance; None if the outputs agree.
        distance: how far the engine's value of it is off.
        runs: how often the engine ran.
    """

    var: Var | None
    distance: Distance | None
    runs: int


def bisect(
    graph: Graph,
    engine: str | FileSide,
    feeds: Mapping[str, Array],
    *,
    tolerance: float | None,
    seed: int = 0,
) -> Bisected:
    """Find the first operator whose value an engine gives otherwise than the reference engine.

    An engine that fuses operators gives other numbers, or hides a fault, once it has to hand out every value on the
    way. So it is asked for the model's outputs and one value more in each run, and half of the operators are left after
    it. That holds where an error, once there, is seen in what follows.

    Args:
        graph: the model, without checks.
        engine: name of the engine, or the file that the graph was made of on a runtime.
        feeds: arrays by input name.
        tolerance: as `loadrun.verify.diff.between` has it.
        seed: seed of random operators.

    Raises:
        EngineError: the engine does not run the model.
        UsageError: it gives none of the outputs.

    >>> import loadrun
    >>> from loadrun.passes.constants import bare
    >>> bundle = loadrun.load("fixtures/nets/mlp.mge")
    >>> bisect(bare(bundle), "reference", bundle.testcases[0].inputs, tolerance=1e-4).var is None
    True
    """
    side = engine if isinstance(engine, FileSide) else EngineSide(graph, engine, seed)
    places = {v.id: i for i, v in enumerate(side.named)}
    right = GraphSide(graph, seed)
    tolerances = Tolerances(tolerance, graph)
    runs = 0

    def off(var: Var) -> tuple[bool, Distance | None]:
        nonlocal runs
        runs += 1
        got = side.value(var, feeds)
        want = next((a for v, a in right.values(feeds) if v.id == var.id), None)
        if got is None or want is None:
            # A value that is not available counts as right; its readers will show.
            return True, None
        measured = distance(got, want)
        return agree(measured, var.dtype, tolerances.of(var)), measured

    wrong: dict[int, Distance | None] = {}
    known = 0
    for var in graph.outputs:
        if var.id in places:
            fine, difference = off(var)
            known += difference is not None or not fine
            if not fine:
                wrong[places[var.id]] = difference
    if not known:
        side.require_runs(feeds)
        raise UsageError(f"{engine} returns none of the model's outputs")
    if not wrong:
        return Bisected(None, None, runs)
    last = min(wrong)
    # Only operators that the first wrong output depends on matter.
    needed = {v.id for o in graph.needed([side.named[last]]) for v in o.outputs}
    left = [v for v in side.named[: last + 1] if v.id in needed]
    low, high, difference = -1, len(left) - 1, wrong[last]
    while high - low > 1:
        middle = (low + high) // 2
        fine, there = off(left[middle])
        if fine:
            low = middle
        else:
            high, difference = middle, there
    return Bisected(left[high], difference, runs)
