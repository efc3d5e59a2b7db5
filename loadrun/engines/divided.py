"""A model on any engine, and what its checks compute on the reference engine.

Checks are judged by the same predicate whatever executes the model: conversions of expected values and errors that a
file computes itself are the same numpy operators each time.
"""

from collections.abc import Iterable, Mapping, Sequence

from ..base.about import About
from ..graph import Graph, Var
from ..graph.dtypes import Array
from ..graph.excerpts import excerpt
from .protocol import Engine, make_ready
from .reference import ReferenceEngine


class Divided:
    """Gives variables of a model and of its checks.

    Args:
        model: computes `computed`, and nothing else.
        graph: model and checks.
        computed: what checks read of the model.
        targets: what `run` gives: variables among `computed`, and such as follow from them and from the graph's inputs.
        seed: seed of random operators in checks.
    """

    def __init__(
        self, model: Engine, graph: Graph, computed: Iterable[Var], targets: Sequence[Var], seed: int
    ) -> None:
        self._model = model
        self._names = {v.id: f"loadrun:{v.id}" for v in computed}
        part, _ = excerpt(graph, targets, self._names)
        self._rest = ReferenceEngine(part, part.outputs, seed=seed)

    @property
    def inputs(self) -> dict[str, Var]:
        """The graph inputs that model and checks depend on, by name."""
        known = set(self._names.values())
        rest = {n: v for n, v in self._rest.inputs.items() if n not in known}
        return {**rest, **self._model.inputs}

    @property
    def about(self) -> About:
        """The engine that executes the model."""
        return self._model.about

    def prepare(self, feeds: Mapping[str, Array]) -> None:
        """Let the model's engine get ready."""
        make_ready(self._model, {n: a for n, a in feeds.items() if n in self._model.inputs})

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Execute the model, then what the checks add to it."""
        model = {n: a for n, a in feeds.items() if n in self._model.inputs}
        outputs = dict(zip(self._names.values(), self._model.run(model), strict=True))
        values = {**feeds, **outputs}
        return self._rest.run({n: values[n] for n in self._rest.inputs if n in values})
