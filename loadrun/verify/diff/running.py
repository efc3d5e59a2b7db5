"""Sides of a comparison: whatever gives values of variables, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from ...base.errors import EngineError, InputError
from ...engines import Choice, check_engine, make_engine, make_file_engine
from ...engines.reference import ReferenceEngine
from ...engines.wide import WideEngine
from ...graph import Graph, Opr, Var
from ...graph.dtypes import Array
from ...testcase import SourceFile
from ..pack.intermediates import computed
from .measuring import real

__all__ = ["DiffSide", "EngineSide", "FileSide", "GraphSide", "pairs", "taken"]

_AT_ONCE = 32
"""Intermediate values that an engine is asked for in one run."""


class DiffSide(Protocol):
    """One of the two runs."""

    def values(self, feeds: Mapping[str, Array]) -> Iterator[tuple[Var, Array]]:
        """Variables with their numbers, in execution order; an array holds until the next one is asked for."""
        ...


class GraphSide:
    """A graph on an engine, operators one by one.

    Args:
        graph: the graph.
        seed: seed of random operators.
        wide: compute in float64, where its operators have a float64 formula.
    """

    def __init__(self, graph: Graph, seed: int = 0, *, wide: bool = False) -> None:
        engine = WideEngine if wide else ReferenceEngine
        self._engine: WideEngine | ReferenceEngine = engine(graph, graph.outputs, seed=seed)

    def values(self, feeds: Mapping[str, Array]) -> Iterator[tuple[Var, Array]]:
        """See `DiffSide`."""
        return _visible_values(self._engine.walk(taken(self._engine.inputs, feeds)))


class EngineSide:
    """A graph on an engine that gives no intermediate values unless they are outputs: it runs for a few at a time.

    Args:
        graph: the graph.
        engine: name of the engine.
        seed: seed of random operators.
    """

    def __init__(self, graph: Graph, engine: str | Choice, seed: int = 0) -> None:
        self._graph = graph
        self._choice = check_engine(engine)
        self._seed = seed

    def values(self, feeds: Mapping[str, Array]) -> Iterator[tuple[Var, Array]]:
        """See `DiffSide`; values that the engine cannot give are left out."""
        wanted = computed(self._graph)
        for i in range(0, len(wanted), _AT_ONCE):
            yield from self._some(wanted[i : i + _AT_ONCE], feeds)

    def value(self, var: Var, feeds: Mapping[str, Array]) -> Array | None:
        """One value beside the outputs, None where the engine cannot give it."""
        found = self._some([var], feeds, [v for v in self._graph.outputs if v.id != var.id])
        return next((value for _, value in found), None)

    def _some(
        self, wanted: list[Var], feeds: Mapping[str, Array], others: Sequence[Var] = ()
    ) -> Iterator[tuple[Var, Array]]:
        try:
            engine = make_engine(self._choice, self._graph, [*wanted, *others], seed=self._seed)
            found = engine.run(taken(engine.inputs, feeds))
        except (EngineError, InputError):
            # One that cannot be an output does not keep the others from it.
            half = len(wanted) // 2
            if half:
                yield from self._some(wanted[:half], feeds, others)
                yield from self._some(wanted[half:], feeds, others)
            return
        for var, value in zip(wanted, found, strict=False):
            yield var, real(value, var.dtype)


class FileSide:
    """A model's own file on a runtime: values that the graph made of it names as the file does.

    The file is asked for them as further outputs, a few at a time.

    Args:
        graph: the graph that was made of the file, without checks.
        source: the file.
        engine: name of the engine.
    """

    def __init__(self, graph: Graph, source: SourceFile, engine: str | Choice) -> None:
        self._graph, self._source, self._engine = graph, source, engine
        known = {*source.tensors, *source.outputs}
        self.named = [v for v in computed(graph) if v.name in known]
        """The variables that can be asked for."""

    def __str__(self) -> str:
        return str(self._engine)

    def values(self, feeds: Mapping[str, Array]) -> Iterator[tuple[Var, Array]]:
        """See `DiffSide`; values that the runtime cannot give are left out."""
        for i in range(0, len(self.named), _AT_ONCE):
            yield from self._some(self.named[i : i + _AT_ONCE], feeds)

    def value(self, var: Var, feeds: Mapping[str, Array]) -> Array | None:
        """One value beside the outputs, None where the runtime cannot give it."""
        if all(var.id != v.id for v in self.named):
            return None
        return next((value for _, value in self._some([var], feeds)), None)

    def _some(self, wanted: list[Var], feeds: Mapping[str, Array]) -> Iterator[tuple[Var, Array]]:
        names = [v.name or "" for v in wanted]
        try:
            engine = make_file_engine(self._engine, self._source.asking(names))
            found = engine.run(engine.fitted(feeds))
        except EngineError:
            # One that cannot be an output does not keep the others from it.
            half = len(wanted) // 2
            if half:
                yield from self._some(wanted[:half], feeds)
                yield from self._some(wanted[half:], feeds)
            return
        for var in wanted:
            value = found.get(var.name or "")
            if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
                yield var, real(value, var.dtype)


def taken(inputs: Iterable[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Take the feeds of these inputs alone; inputs with a value of their own may be missing."""
    return {name: feeds[name] for name in inputs if name in feeds}


def _visible_values(run: Iterator[tuple[Opr, list[Array]]]) -> Iterator[tuple[Var, Array]]:
    for opr, outs in run:
        for var, value in zip(opr.outputs, outs, strict=True):
            yield var, real(value, var.dtype)


def pairs(
    found: Iterator[tuple[Var, Array]], expected: Iterator[tuple[Var, Array]], partner: Mapping[int, Var]
) -> Iterator[tuple[Var, Array, Var, Array]]:
    """Advance two runs side by side and give matched variables together.

    Values that come early on one side are kept until their partner comes; all others are dropped at once.

    Args:
        found, expected: the two runs.
        partner: id in the first run -> variable of the second one.
    """
    wanted = {v.id for v in partner.values()}
    early: dict[int, Array] = {}
    for var, value in found:
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
