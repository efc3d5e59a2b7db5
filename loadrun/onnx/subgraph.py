"""The graph that a node holds (a branch, the body of a loop), as a function on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays.names import kernel
from ..base.registry import late
from ..engines.reference import ReferenceEngine
from ..graph import Graph, same_graph
from ..graph.composite import GraphAttribute
from ..graph.dtypes import Array, DType, held_array
from ..ops.infer import infer_shapes

with late(__name__):
    from ..engines import wide


class Subgraph(GraphAttribute):
    """A graph with an engine of its own.

    Args:
        graph: the graph.
        inputs: the names of its inputs, in order.
        captured: the names of the values that it reads from around, which are inputs of the graph, too.
        input_shapes, output_shapes: the shapes that it declares, None for an open size or a shape left out.

    Attributes:
        dtypes: the types of its outputs.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[str],
        captured: Sequence[str],
        input_shapes: Sequence[tuple[int | None, ...] | None],
        output_shapes: Sequence[tuple[int | None, ...] | None],
    ) -> None:
        self.graph, self.inputs, self.captured = graph, list(inputs), list(captured)
        self.input_shapes, self.output_shapes = list(input_shapes), list(output_shapes)
        self.dtypes: list[DType] = [v.dtype for v in graph.outputs if v.dtype is not None]
        self.places: dict[str, int] = {}

    def place(self, captured: Sequence[str]) -> None:
        """Tell which values from around the node gets, in which order: those of all its graphs."""
        self.places = {name: captured.index(name) for name in self.captured}

    def over(self, graph: Graph, names: Mapping[str, str]) -> Subgraph:
        """See `loadrun.graph.composite.GraphAttribute.over`."""
        inputs, captured = [names[n] for n in self.inputs], [names[n] for n in self.captured]
        renamed = Subgraph(graph, inputs, captured, self.input_shapes, self.output_shapes)
        renamed.places = {names[n]: i for n, i in self.places.items()}
        return renamed

    @cached_property
    def _engine(self) -> ReferenceEngine:
        return ReferenceEngine(self.graph)

    @kernel
    def __call__(self, inputs: Sequence[Any], captured: Sequence[Any] = ()) -> list[Any]:
        """Run the graph.

        Args:
            inputs: its inputs in order; lists, maps and None as they are.
            captured: the values from around that the node gets.

        Returns:
            its outputs in order.
        """
        values = self.named(inputs, captured)
        used = self._engine.inputs
        feeds = {n: _held(v, used[n].owner.tensors[0].dtype) for n, v in values.items() if n in used}
        if any(a.dtype == np.float64 != used[n].owner.tensors[0].dtype.np for n, a in feeds.items()):
            results = wide.WideEngine(self.graph).run(feeds)
        else:
            results = self._engine.run(feeds)
        return [r[()] if r.dtype == object and not r.ndim else r for r in results]

    def no_rows(self, start: int, inputs: Sequence[Any], captured: Sequence[Any]) -> list[Array]:
        """Return what outputs from one on give of no runs, stacked; see `__call__`.

        Sizes that its outputs declare open are 0. What declares no shape has that which follows from the inputs.

        Raises:
            ValueError: a shape depends on data.
        """
        shapes = {n: np.shape(v) for n, v in self.named(inputs, captured).items()}
        inferred = infer_shapes(self.graph, inputs=shapes).shapes
        rows = []
        outputs = list(zip(self.graph.outputs, self.output_shapes, self.dtypes, strict=True))
        for var, declared, dtype in outputs[start:]:
            shape = inferred.get(var.id) if declared is None else tuple(n or 0 for n in declared)
            if shape is None:
                raise ValueError(f"its output {var.name!r} of no iterations has no shape that is known")
            rows.append(np.zeros((0, *shape), dtype.np))
        return rows

    def named(self, inputs: Sequence[Any], captured: Sequence[Any]) -> dict[str, Any]:
        """Return the inputs, and what the graph reads from around, by name."""
        values = dict(zip(self.inputs, inputs, strict=False))
        values.update((name, captured[i]) for name, i in self.places.items())
        return values

    def __repr__(self) -> str:
        return f"<{sum(not o.tensors for o in self.graph.oprs)} operators>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subgraph) and (
            self.graph is other.graph or same_graph(self.graph, other.graph)
        )

    def __hash__(self) -> int:
        return len(self.graph.oprs)


def _held(value: Any, dtype: DType) -> Array:  # noqa: ANN401 - a list or a map may be fed
    array = held_array(value, dtype)
    # Halves come as float32, and float64 stays what it is in a graph that is computed so.
    return array.astype(dtype.np) if dtype.name == "Float16" else array
