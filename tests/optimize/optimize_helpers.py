"""What the tests of the optimizer share: small graphs, values to feed, operators as MegEngine would list them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loadrun.dtypes import Array, DType, encode
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, Opr, Tensor, Var
from loadrun.params import Elemwise, ElemwiseMode, Host2DeviceCopy

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
F32 = DType("Float32")
_DESCRIBED = ("format", "nonlineMode", "sparse", "compute_mode", "data_type", "mode")


class Builder:
    """A graph under construction."""

    def __init__(self) -> None:
        self.graph = Graph()

    def input(self, name: str, *shape: int, dtype: DType = F32) -> Var:
        tensor = Tensor(dtype, shape, name)
        return self.graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=[name], tensors=[tensor])[0]

    def const(self, value: Any, dtype: DType = F32, type: str = "ImmutableTensor") -> Var:
        array = np.atleast_1d(np.asarray(value, dtype.np))
        return self.graph.add(type, tensors=[Tensor(dtype, array.shape, None, encode(array, dtype))])[0]

    def elemwise(self, mode: str, *inputs: Var, name: str | None = None) -> Var:
        param = Elemwise(mode=ElemwiseMode[mode])
        return self.graph.add("Elemwise", param, inputs=inputs, names=[name])[0]

    def add(self, type: str, *params: Any, inputs: Sequence[Var], name: str | None = None, **how: Any) -> Var:
        return self.graph.add(type, *params, inputs=inputs, names=[name], **how)[0]

    def done(self, *outputs: Var) -> Graph:
        for i, var in enumerate(outputs):
            var.name = var.name or f"out{i}"
        self.graph.outputs = list(outputs)
        return self.graph


def run(graph: Graph, feeds: dict[str, Array]) -> list[Array]:
    return ReferenceEngine(graph).run(feeds)


def feeds_of(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Values for the inputs of a dump, drawn from -1 to 1 or from all bytes."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for var in graph.inputs:
        tensor = var.owner.tensors[0]
        assert tensor.shape is not None
        if tensor.dtype.is_float:
            found[var.name or ""] = rng.uniform(-1, 1, tensor.shape).astype(tensor.dtype.np)
        else:
            found[var.name or ""] = rng.integers(0, 255, tensor.shape).astype(tensor.dtype.np)
    return found


def error(a: Array, b: Array) -> float:
    """MegEngine's measure; where both are the same number, infinite or NaN, there is no error."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        found = np.abs(x - y) / np.maximum(1, np.minimum(np.abs(x), np.abs(y)))
    found = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0, found)
    return float(np.where(np.isnan(found), np.inf, found).max(initial=0))


def titles(graph: Graph) -> list[str]:
    return [o.title for o in graph.oprs if not o.tensors]


def described(opr: Opr) -> str:
    """Type or mode of an operator with what tells its layout and arithmetic."""
    words = [opr.title]
    if opr.params and opr.type not in ("Elemwise", "ElemwiseMultiType"):
        values = (getattr(opr.params[0], name, None) for name in _DESCRIBED)
        words += [v.name for v in values if v is not None and hasattr(v, "name")]
    return " ".join(words)


def operators(graph: Graph) -> Counter[str]:
    """How many operators of each kind a graph has; stored tensors count alike, wherever they are stored."""
    found = Counter(described(o) for o in graph.oprs if not o.tensors)
    found["constants"] = sum(len(o.tensors) for o in graph.oprs if o.type != "Host2DeviceCopy")
    return found
