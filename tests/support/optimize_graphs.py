"""What the tests of the optimizer share: small graphs, values to feed, operators as MegEngine would list them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, Opr
from loadrun.graph.dtypes import Array, DType

F32 = DType("Float32")
_DESCRIBED = ("format", "nonlineMode", "sparse", "compute_mode", "data_type", "mode")


def run(graph: Graph, feeds: dict[str, Array]) -> list[Array]:
    return ReferenceEngine(graph).run(feeds)


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
