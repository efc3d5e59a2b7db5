"""An engine of somebody else, and a graph for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from loadrun.base.about import About
from loadrun.engines import Setup
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, Var
from loadrun.graph.dtypes import Array
from loadrun.testing import GraphBuilder


class Shifted:
    """The reference engine, every result plus a number."""

    def __init__(self, graph: Graph, targets: Sequence[Var], setup: Setup) -> None:
        self._inner = ReferenceEngine(graph, targets, seed=setup.seed)
        self.by = float(setup.argument or 0)

    @property
    def inputs(self) -> dict[str, Var]:
        return self._inner.inputs

    @property
    def about(self) -> About:
        return About("shifted", "3.1", "float32", f"by {self.by:g}")

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        return [a + np.float32(self.by) for a in self._inner.run(feeds)]


def doubled() -> Graph:
    g = GraphBuilder()
    x = g.input("x", 3)
    return g.done(g.elemwise("ADD", x, x, name="y"))
