"""Sublinear plans on graphs whose bytes are counted by hand, on random graphs and on nets."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loadrun
from loadrun.engines.program import MemoryMeter
from loadrun.engines.recompute_config import SublinearMemoryConfig
from loadrun.engines.reference import ReferenceEngine
from loadrun.engines.sublinear import SublinearPlan, plan_sublinear
from loadrun.graph import Graph, Opr
from loadrun.graph.params import ElemwiseMode
from loadrun.ops.infer import infer_shapes
from tests.support.cases import fewer
from tests.support.memory_graphs import Builder, random_graph

E = ElemwiseMode
X = {"x": np.linspace(-1, 1, 24, dtype="f4").reshape(4, 6)}


def plan_of(graph: Graph, config: SublinearMemoryConfig) -> SublinearPlan:
    engine = ReferenceEngine(graph)
    engine.run(X if "x" in engine.inputs else {})
    (program,) = engine._programs.values()
    return plan_sublinear(program.steps, infer_shapes(graph), {v.id for v in graph.outputs}, config)


def execute(graph: Graph, config: SublinearMemoryConfig) -> tuple[int, int, list[int]]:
    """Measured peaks of ordinary execution and of the plan, and the operators executed again."""
    plain, saving = MemoryMeter(), MemoryMeter()
    (want,) = ReferenceEngine(graph).run(X, memory=plain)
    engine = ReferenceEngine(graph, sublinear=config)
    for (got,) in (engine.run(X, memory=saving), engine.run(X)):
        assert got.tobytes() == want.tobytes()
    (program,) = engine._programs.values()
    return plain.peak, saving.peak, [s.call.opr.id for s in program.steps if s.again]


def test_a_value_with_an_early_reader_is_computed_twice() -> None:
    """exp (96) is dropped while a product (96) and its join with itself (192) are alive."""
    b = Builder()
    x = b.input((4, 6))
    y = b.elemwise(E.EXP, x)
    product = b.elemwise(E.MUL, x, b.sum(y))
    b.graph.outputs = [b.elemwise(E.MUL, y, b.sum(b.concat(product, product)))]
    plain, saving, again = execute(b.graph, SublinearMemoryConfig())
    assert (plain, saving) == (96 + 96 + 192, 96 + 192)
    assert again == [y.owner.id]


def test_a_value_without_an_early_reader_is_computed_later() -> None:
    b = Builder()
    x = b.input((4, 6))
    y = b.elemwise(E.EXP, x)
    b.graph.outputs = [b.elemwise(E.MUL, y, b.sum(b.concat(x, x)))]
    plain, saving, again = execute(b.graph, SublinearMemoryConfig())
    assert (plain, saving, again) == (96 + 192 + 24, 192 + 24, [])


def long_skips(pairs: int) -> Graph:
    """Values that are read in reverse order at the end; a chain of transpositions keeps kernels from sharing."""
    b = Builder()
    v = b.input((6, 6))
    kept = []
    for _ in range(pairs):
        v = b.elemwise(E.TANH, b.concat_half(v, 6))
        kept.append(v)
    for k in reversed(kept):
        v = b.elemwise(E.ADD, b.concat_half(v, 6), k)
    b.graph.outputs = [v]
    return b.graph


def test_many_long_skips_take_much_less() -> None:
    graph = long_skips(10)
    feeds = {"x": np.linspace(-1, 1, 36, dtype="f4").reshape(6, 6)}
    plain, saving = MemoryMeter(), MemoryMeter()
    want = ReferenceEngine(graph).run(feeds, memory=plain)[0]
    engine = ReferenceEngine(graph, sublinear=SublinearMemoryConfig())
    assert engine.run(feeds, memory=saving)[0].tobytes() == want.tobytes()
    assert plain.peak >= 10 * 144
    assert saving.peak <= 0.65 * plain.peak
    (program,) = engine._programs.values()
    again = [s.call.opr.id for s in program.steps if s.again]
    assert len(again) == len(set(again)), "no operator is executed more than twice"


def test_nothing_is_recomputed_below_the_bound() -> None:
    """exp of a mebibyte goes while a product (one) and its join with itself (two) are alive; but where four
    are no matter, it stays."""
    b = Builder()
    x = b.input((512, 512))
    y = b.elemwise(E.EXP, x)
    product = b.elemwise(E.MUL, x, b.sum(y))
    b.graph.outputs = [b.elemwise(E.MUL, y, b.sum(b.concat(product, product)))]
    engine = ReferenceEngine(b.graph)
    engine.run({"x": np.zeros((512, 512), "f4")})
    (program,) = engine._programs.values()
    found = {}
    for bound in (0, 3, 4):
        config = SublinearMemoryConfig(lb_memory_mb=bound)
        plan = plan_sublinear(program.steps, infer_shapes(b.graph), {b.graph.outputs[0].id}, config)
        found[bound] = (plan.recomputations, plan.peak)
    assert found == {0: (1, 3 << 20), 3: (1, 3 << 20), 4: (0, 4 << 20)}


def test_observers_see_every_operator_once() -> None:
    graph = random_graph(random.Random(4), 30)
    engine = ReferenceEngine(graph, sublinear=SublinearMemoryConfig())
    seen: list[Opr] = []
    engine.run(X, lambda opr, _: seen.append(opr))
    (program,) = engine._programs.values()
    assert any(s.again for s in program.steps)
    assert len({o.id for o in seen}) == len(seen) == sum(not s.again for s in program.steps)


@settings(max_examples=fewer(12, 2), deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 30), st.booleans())
def test_random_graphs(seed: int, n: int, draws: bool) -> None:
    """Equal bits, the foretold peak, and never more memory than in ordinary execution."""
    graph = random_graph(random.Random(seed), n, draws=draws, flips=False)
    config = SublinearMemoryConfig(thresh_nr_try=4)
    plain, saving, _ = execute(graph, config)
    plan = plan_of(graph, config)
    assert (plan.plain_peak, plan.peak) == (plain, saving)
    assert saving <= plain


@settings(max_examples=fewer(10, 2), deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 30))
def test_random_graphs_with_transpositions(seed: int, n: int) -> None:
    execute(random_graph(random.Random(seed), n), SublinearMemoryConfig())


@pytest.mark.parametrize("name", ["unet", "optical_flow", "super_resolution_nearest", "mobilenet_v3", "vit"])
def test_nets(name: str) -> None:
    bundle = loadrun.load(f"fixtures/nets/{name}.mge")
    targets = [c.get for c in bundle.checks]
    feeds = dict(bundle.testcases[0].arrays)
    plain, saving = MemoryMeter(), MemoryMeter()
    want = ReferenceEngine(bundle.graph, targets).run(feeds, memory=plain)
    engine = ReferenceEngine(bundle.graph, targets, sublinear=SublinearMemoryConfig())
    got = engine.run(feeds, memory=saving)
    assert [a.tobytes() for a in got] == [a.tobytes() for a in want]
    assert saving.peak <= plain.peak
