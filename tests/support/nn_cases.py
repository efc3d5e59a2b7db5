"""Numbers that real MegEngine recorded for single operators, and running one operator on arrays."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import numpy as np

from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, StoredTensor, params as P
from loadrun.graph.dtypes import DType, dtype_of
from loadrun.graph.params import Host2DeviceCopy, Record
from loadrun.ops.catalog import CATALOG
from loadrun.ops.infer import infer_dtypes, infer_shapes
from tests.support.fixture_files import FIXTURES

Array = np.ndarray[Any, Any]

NAMES = {"BatchNorm": "BatchNormV1", "RNNCell": "RNNCellForward", "LSTMCell": "LSTMCellForward"} | {
    "RNN": "RNNForward",
    "LSTM": "LSTMForward",
}
RECORDS = {"BatchNorm": "BN", "LSTMCell": "Empty", "InstanceNorm": "GroupNorm"}


@cache
def load(family: str) -> dict[str, dict[str, Any]]:
    """Every recorded case: operator, params, dtype, ins and outs."""
    with np.load(FIXTURES / "ops" / family / "recorded_nn.npz") as z:
        index, data = json.loads(str(z["index"])), z["data"]
    at = 0
    for case in index.values():
        case["ins"], case["outs"] = [], []
        for key in [k for k in case if k[:3] in ("in.", "out")]:
            if key in ("ins", "outs"):
                continue
            kind, *shape = case[key]
            size = math.prod(shape) * np.dtype(kind).itemsize
            case["ins" if key[:3] == "in." else "outs"].append(data[at : at + size].view(kind).reshape(shape))
            at += size
    assert at == data.size
    return index


def record_of(case: dict[str, Any]) -> tuple[str, Record]:
    """Operator name of the catalog and the parameter record of a recorded case."""
    kind = getattr(P, RECORDS.get(case["operator"], case["operator"]))
    given = {}
    for field in kind.fields():
        if field.name in case["params"]:
            value = case["params"][field.name]
            given[field.name] = field.enum[value] if isinstance(value, str) else value
    return NAMES.get(case["operator"], case["operator"]), kind(**given)


def graph_of(
    name: str,
    params: tuple[Record, ...],
    shapes: list[tuple[int, ...]],
    dtypes: list[DType],
    n_outputs: int | None = None,
) -> Graph:
    """One operator on graph inputs named x0, x1, ..., all its outputs as outputs."""
    g = Graph()
    ins = [
        g.add("Host2DeviceCopy", Host2DeviceCopy(), names=[f"x{i}"], tensors=[StoredTensor(d, s, f"x{i}")])[0]
        for i, (s, d) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    g.outputs = g.add(name, *params, inputs=ins, n_outputs=1)
    count = n_outputs or CATALOG[name].n_outputs(g.oprs[-1])
    g.oprs.pop()
    g.outputs = g.add(name, *params, inputs=ins, n_outputs=count)
    return g


def run(
    name: str, params: tuple[Record, ...], *arrays: Array, dtype: str | None = None, check: bool = True
) -> list[Array]:
    """Run one operator on arrays in the reference engine; the shape rule must agree with what comes out.

    `dtype` replaces float32, for bfloat16 inputs.
    """
    dtypes = [DType(dtype) if dtype and a.dtype == np.float32 else dtype_of(a) for a in arrays]
    g = graph_of(name, params, [a.shape for a in arrays], dtypes)
    engine = ReferenceEngine(g)
    before = [a.copy() for a in arrays]
    outs = engine.run({f"x{i}": a for i, a in enumerate(arrays)})
    for a, b in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, b, err_msg="the kernel wrote into an input")
    if check:
        infer_dtypes(g.oprs)
        known = infer_shapes(g)
        assert [known.shapes[v.id] for v in g.outputs] == [o.shape for o in outs]
        assert known.flops[g.oprs[-1].id] >= 0
    return outs
