"""Sides of a comparison: whatever gives values of variables, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from ..dtypes import Array
from ..engines.reference import ReferenceEngine
from ..engines.wide import WideEngine
from ..graph import Graph, Opr, Var
from .measuring import real

__all__ = ["GraphSide", "Side", "pairs", "taken"]


class Side(Protocol):
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
        """See `Side`."""
        return _real(self._engine.walk(taken(self._engine.inputs, feeds)))


def taken(inputs: Iterable[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The feeds of these inputs alone; inputs with a value of their own may be missing."""
    return {name: feeds[name] for name in inputs if name in feeds}


def _real(run: Iterator[tuple[Opr, list[Array]]]) -> Iterator[tuple[Var, Array]]:
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
