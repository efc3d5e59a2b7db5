"""The smallest part of a model that still fails for the same reason, with inner values frozen from the good run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from ...base.errors import EngineError, LoadRunError, UsageError
from ...base.stages import tell
from ...graph import Graph, Opr, Var, readers_of
from ...graph.dtypes import Array, DType
from ...ops.infer import infer_dtypes
from ...testcase import Bundle
from .extracting import as_testcase
from .matching import is_constant


class Judge(Protocol):
    """Tells why a candidate fails."""

    def __call__(self, bundle: Bundle) -> str | None:
        """Return the reason, None if the candidate passes; the same reason is the same text."""
        ...


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
        chosen = {o.id: o for o in oprs}
        todo = list(oprs)
        while todo:
            for var in todo.pop().inputs:
                owner = var.owner
                if owner.inputs and var.id not in self.known and owner.id not in chosen:
                    chosen[owner.id] = owner
                    todo.append(owner)
        return [chosen[i] for i in sorted(chosen)]

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
