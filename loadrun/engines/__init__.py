"""Engines: ways to execute a graph. `reference` is numpy; others are imported only when used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..dtypes import Array
from ..errors import UsageError
from ..graph import Graph, Var

__all__ = ["ENGINES", "Engine", "make_engine"]

ENGINES = ("reference",)
"""Names that `make_engine` takes."""


class Engine(Protocol):
    """What the runner needs of an engine: inputs by name, and repeated execution."""

    @property
    def inputs(self) -> dict[str, Var]:
        """The graph inputs that the targets depend on, by name."""
        ...

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Compute the targets from arrays by input name."""
        ...


def make_engine(name: str, graph: Graph, targets: Sequence[Var], *, seed: int = 0) -> Engine:
    """Prepare a graph for execution.

    Raises:
        UsageError: no engine has that name.
        UnsupportedError: the engine cannot execute an operator of the graph.
    """
    if name == "reference":
        from .reference import ReferenceEngine  # for start-up

        return ReferenceEngine(graph, targets, seed=seed)
    raise UsageError(f"engine {name!r} is unknown; known are {', '.join(ENGINES)}")
