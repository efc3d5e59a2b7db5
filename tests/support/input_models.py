"""Models that consist of inputs alone."""

from __future__ import annotations

from loadrun.graph import Graph, StoredTensor, Var
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Host2DeviceCopy


def model(**inputs: tuple[str | DType, tuple[int, ...] | None]) -> list[Var]:
    """The inputs of a graph: name=(dtype, shape)."""
    g = Graph()
    for name, (dtype, shape) in inputs.items():
        kind = dtype if isinstance(dtype, DType) else DType(dtype)
        g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(kind, shape, name)], names=[name])
    return g.inputs
