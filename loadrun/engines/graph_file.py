"""A graph of another framework's operators as that framework's file: with text, sequences, maps and optional values."""

from collections.abc import Mapping

from ..base.errors import InputError
from ..graph import Graph, Var
from ..graph.dtypes import Array, held_array
from ..testcase import FileValue
from .reference import ReferenceEngine
from .wide import Float64Engine


class GraphFile:
    """A graph made ready for repeated execution on values as its file has them; see `loadrun.engines.FileEngine`.

    Args:
        graph: the graph, of one operator for each node of the file.
        engine: ``reference`` or ``float64``.
        seed: seed of the random operators.

    Attributes:
        about: what executes, and how it computes.
    """

    def __init__(self, graph: Graph, engine: str, seed: int) -> None:
        kind = Float64Engine if engine == "float64" else ReferenceEngine
        self._engine: ReferenceEngine | Float64Engine = kind(graph, seed=seed)
        self._outputs = [v.name or "" for v in graph.outputs]
        self.about = self._engine.about

    def fitted(self, feeds: Mapping[str, FileValue]) -> Mapping[str, object]:
        """Return the values of the inputs that the graph reads as its engine takes them.

        Raises:
            InputError: an input is missing, or holds what its type cannot.
        """
        missing = sorted(self._engine.inputs.keys() - feeds.keys())
        if missing:
            names = ", ".join(self._engine.inputs) or "none"
            raise InputError(f"the input {missing[0]!r} is missing; the model's inputs are {names}")
        return {n: _held(n, feeds[n], v) for n, v in self._engine.inputs.items()}

    def run(self, inputs: Mapping[str, object]) -> Mapping[str, FileValue]:
        """Execute the graph.

        Raises:
            EngineError: an operator failed.
        """
        results = self._engine.run(inputs)  # type: ignore[arg-type]
        values = (r[()] if r.dtype.kind == "O" and not r.ndim else r for r in results)
        return dict(zip(self._outputs, values, strict=True))


def _held(name: str, value: FileValue, var: Var) -> Array:
    dtype = var.owner.tensors[0].dtype
    array = held_array(value, dtype)
    if dtype.name == "Object":
        return array
    if dtype.name == "String":
        return array.astype(object)
    if array.dtype.kind not in "biuf":
        raise InputError(f"the input {name!r} takes {dtype.spelling}, the given value holds {array.dtype}")
    return array.astype(dtype.np, copy=False)
