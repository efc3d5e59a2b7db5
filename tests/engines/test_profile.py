"""Profiles have the keys of MegEngine's ``get_profile`` and what its ``ProfileAnalyzer`` reads."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import UsageError
from loadrun.engines.recompute import DTRConfig
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import params as P
from loadrun.graph.params import ElemwiseMode
from tests.support.memory_graphs import Builder

X = {"x": np.linspace(-1, 1, 24, dtype="f4").reshape(4, 6)}


def profile_of(engine: ReferenceEngine, feeds: dict[str, Any]) -> dict[str, Any]:
    engine.run(feeds)
    engine.run(feeds)
    return json.loads(json.dumps(engine.get_profile()))


def test_the_structure_of_megengine() -> None:
    b = Builder()
    x = b.input((4, 6))
    b.graph.outputs = [b.sum(b.elemwise(ElemwiseMode.EXP, x))]
    exp, total = (str(o.id) for o in b.graph.oprs[1:])
    found = profile_of(ReferenceEngine(b.graph, profile=True), X)
    assert found.keys() == {"graph_exec", "profiler"}
    executed, profiler = found["graph_exec"], found["profiler"]
    assert executed.keys() == {"operator", "var", "mem_chunk", "comp_seq"}
    assert profiler.keys() == {"device", "host", "opr_footprint", "opr_internal_pf"}
    assert executed["comp_seq"] == [exp, total], "the last run alone"
    assert executed["operator"][exp] == {
        "node_type": "operator",
        "id": exp,
        "name": "EXP",
        "type": "EXP",
        "input": ["0"],
        "output": ["1"],
        "extra": {},
        "waiting_spec": {},
    }
    assert executed["var"]["1"]["mem_plan"]["layout"] == {"shape": [4, 6], "dtype": "Float32"}
    for kind in ("device", "host"):
        ends = 0.0
        for key in (exp, total):
            (times,) = profiler[kind][key].values()
            assert ends <= times["start"] <= times["kern"] <= times["end"]
            ends = times["end"]
    assert profiler["opr_footprint"][total] == {
        "computation": 24,
        "memory": 96 + 24,
        "in_shapes": [[4, 6]],
        "out_shapes": [[1, 6]],
        "param": {},
    }


def test_operators_that_are_executed_again_stand_for_themselves() -> None:
    b = Builder()
    x = b.input((4, 6))
    y = b.elemwise(ElemwiseMode.EXP, x)
    product = b.elemwise(ElemwiseMode.MUL, x, b.sum(y))
    b.graph.outputs = [b.elemwise(ElemwiseMode.MUL, y, b.sum(b.concat(product, product)))]
    found = profile_of(ReferenceEngine(b.graph, dtr=DTRConfig(300, 0), profile=True), X)
    oprs = [found["graph_exec"]["operator"][i] for i in found["graph_exec"]["comp_seq"]]
    names = ["EXP", "ReduceV2", "MUL", "Concat", "ReduceV2", "EXP:dup0", "MUL"]
    assert [o["name"] for o in oprs] == names
    assert len({int(o["id"]) for o in oprs}) == len(names)


def test_fused_operators_are_named() -> None:
    b = Builder()
    x = b.input((1, 2, 4, 4))
    weight, bias = b.constant(np.ones((3, 2, 1, 1))), b.constant(np.ones((1, 3, 1, 1)))
    (y,) = b.graph.add("ConvolutionV2", P.Convolution(), inputs=[x, weight])
    z = b.elemwise(ElemwiseMode.FUSE_ADD_RELU, y, bias)
    b.graph.outputs = [z]
    found = profile_of(ReferenceEngine(b.graph, profile=True), {"x": np.ones((1, 2, 4, 4), "f4")})
    (key,) = found["graph_exec"]["comp_seq"]
    opr = found["graph_exec"]["operator"][key]
    fused = {"id": str(z.owner.id), "type": "Elemwise", "name": "FUSE_ADD_RELU"}
    assert (opr["type"], opr["extra"]) == ("ConvolutionV2", {"fused": [fused]})
    assert opr["input"] == [str(v.id) for v in (x, weight, bias)]
    assert opr["output"] == [str(z.id)]
    # A product with each of two channels for 48 elements, a sum and a maximum for each.
    assert found["profiler"]["opr_footprint"][key]["computation"] == 48 * 2 * 2 + 48 * 2


def test_there_is_no_profile_without_asking_or_running() -> None:
    b = Builder()
    b.graph.outputs = [b.elemwise(ElemwiseMode.EXP, b.input((4, 6)))]
    with pytest.raises(UsageError, match="create the engine with profile=True"):
        ReferenceEngine(b.graph).get_profile()
    with pytest.raises(UsageError, match="run first"):
        ReferenceEngine(b.graph, profile=True).get_profile()
