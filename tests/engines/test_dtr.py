"""Dynamic tensor rematerialization on graphs whose bytes are counted by hand, on random graphs and on nets."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loadrun
from loadrun.base.errors import UsageError
from loadrun.engines.dtr import DTRCounts, DTRProgram
from loadrun.engines.program import MemoryMeter
from loadrun.engines.recompute_config import DTRConfig, SublinearMemoryConfig
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, Opr, Var
from loadrun.graph.params import ElemwiseMode
from tests.support.cases import fewer
from tests.support.memory_graphs import Array, Builder, random_graph

X = {"x": np.linspace(-1, 1, 24, dtype="f4").reshape(4, 6)}
E = ElemwiseMode


def execute(graph: Graph, config: DTRConfig, outputs: list[Var] | None = None) -> tuple[DTRCounts, int]:
    """What was done, and the measured peak; the results must be those of ordinary execution, twice."""
    want = ReferenceEngine(graph, outputs).run(X)
    engine = ReferenceEngine(graph, outputs, dtr=config)
    meter = MemoryMeter()
    for got in (engine.run(X, memory=meter), engine.run(X)):
        assert [a.tobytes() for a in got] == [a.tobytes() for a in want]
    (program,) = engine._programs.values()
    assert isinstance(program, DTRProgram)
    assert program.counts.peak == meter.peak
    return program.counts, meter.peak


def skip_graph(depth: int = 1) -> Graph:
    """A value of 96 bytes is read before and after 192 bytes and their sums (24) are alive."""
    b = Builder()
    y = x = b.input((4, 6))
    for _ in range(depth):
        y = b.elemwise(E.TANH, y)
    t = b.sum(b.concat(x, x))
    b.graph.outputs = [b.elemwise(E.MUL, y, t)]
    return b.graph


def test_nothing_is_evicted_below_the_threshold() -> None:
    counts, peak = execute(skip_graph(), DTRConfig(96 + 192 + 24, 0))
    assert counts == DTRCounts(0, 0, peak, peak)
    assert peak == 96 + 192 + 24


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_skipped_value_is_computed_again_with_all_before_it(depth: int) -> None:
    counts, _ = execute(skip_graph(depth), DTRConfig(96 + 191, 0))
    assert counts == DTRCounts(evictions=1, recomputations=depth, peak=192 + 24, plain_peak=96 + 192 + 24)


def test_as_much_stays_as_the_threshold_allows() -> None:
    """With 288 bytes the value stays beside the join, and goes for the 24 bytes of the sums."""
    counts, peak = execute(skip_graph(), DTRConfig(96 + 192, 0))
    assert (counts.evictions, peak) == (1, 96 + 192)


def test_deep_chains_need_no_stack() -> None:
    counts, _ = execute(skip_graph(1500), DTRConfig(200, 0))
    assert counts.recomputations == 1500


@pytest.mark.parametrize(("least", "evictions"), [(96, 1), (97, 0)])
def test_small_values_stay(least: int, evictions: int) -> None:
    counts, peak = execute(skip_graph(), DTRConfig(200, least))
    assert counts.evictions == evictions
    assert peak == (216 if evictions else 312)


def test_the_least_size_is_a_mebibyte_by_default() -> None:
    assert execute(skip_graph(), DTRConfig(200))[0].evictions == 0


@pytest.mark.parametrize(
    ("factors", "evicted"),
    [((1, 1), "cheap"), ((0, 1), "cheap"), ((1, 0), "cheap"), ((0, 0), "far")],
)
def test_what_is_evicted(factors: tuple[float, float], evicted: str) -> None:
    """Time and memory of recomputation speak for the value that takes one operator, its size and the distance
    of its next use for the other one, which takes six."""
    b = Builder()
    x = b.input((4, 6))
    far = b.elemwise(E.TANH, x)
    for _ in range(5):
        far = b.elemwise(E.TANH, b.flip(b.flip(b.elemwise(E.NEGATE, far))))
    cheap = b.elemwise(E.EXP, x)
    t = b.sum(b.concat(x, x))
    once = b.elemwise(E.MUL, cheap, t)
    b.graph.outputs = [b.elemwise(E.ADD, b.elemwise(E.SIGMOID, b.elemwise(E.NEGATE, once)), far)]
    engine = ReferenceEngine(b.graph, dtr=DTRConfig(2 * 96 + 192, 0, *factors))
    executed: list[Opr] = []
    program: list[str] = []

    class Watch(MemoryMeter):
        def __call__(self, opr: Opr, outputs: object) -> None:
            executed.append(opr)

    engine.run(X, lambda opr, _: program.append(opr.title), memory=Watch())
    again = {o.id for i, o in enumerate(executed) if o in executed[:i]}
    assert again
    assert (cheap.owner.id in again) is (evicted == "cheap")
    assert (far.owner.id in again) is (evicted == "far")
    assert len(program) == len({o.id for o in executed}), "an observer sees every operator once"


def test_memory_goes_with_all_the_views_in_it() -> None:
    """Evicting one of two views would free nothing; both halves of exp (96) go and come back."""
    b = Builder()
    x = b.input((4, 6))
    first, second = b.halves(b.elemwise(E.EXP, x), 4)
    t = b.sum(b.concat(x, x))
    b.graph.outputs = [b.elemwise(E.ADD, b.elemwise(E.MUL, first, t), second)]
    counts, _ = execute(b.graph, DTRConfig(96 + 191, 0))
    assert (counts.evictions, counts.plain_peak) == (1, 96 + 192 + 24)
    assert counts.peak == 192 + 24


def test_targets_are_there_in_the_end() -> None:
    b = Builder()
    x = b.input((4, 6))
    kept = [b.elemwise(mode, x) for mode in (E.EXP, E.TANH, E.NEGATE)]
    kept.append(b.sum(b.concat(x, x)))
    counts, _ = execute(b.graph, DTRConfig(1, 0), kept)
    assert counts == DTRCounts(0, 0, 3 * 96 + 192 + 24, 3 * 96 + 192 + 24)


def test_random_operators_are_executed_once() -> None:
    b = Builder()
    x = b.input((4, 6))
    drawn = b.random(4, 6)
    y = b.elemwise(E.EXP, drawn)
    z = b.elemwise(E.NEGATE, drawn)
    t = b.sum(b.concat(x, x))
    b.graph.outputs = [b.elemwise(E.ADD, b.elemwise(E.MUL, y, t), z)]
    engine = ReferenceEngine(b.graph, seed=5, dtr=DTRConfig(1, 0))
    seen: list[str] = []

    class Watch(MemoryMeter):
        def __call__(self, opr: Opr, outputs: object) -> None:
            seen.append(opr.type)

    (got,) = engine.run(X, memory=Watch())
    (want,) = ReferenceEngine(b.graph, seed=5).run(X)
    assert got.tobytes() == want.tobytes()
    assert seen.count("UniformRNGV1") == 1
    assert len(seen) > len({o.id for o in b.graph.oprs if o.type == "Elemwise"}) + 3


@settings(max_examples=fewer(40), deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 30), st.floats(0, 1))
def test_random_graphs(seed: int, n: int, share: float) -> None:
    """Equal bits, and never more memory than in ordinary execution."""
    graph = random_graph(random.Random(seed), n)
    meter = MemoryMeter()
    ReferenceEngine(graph).run(X, memory=meter)
    counts, peak = execute(graph, DTRConfig(max(1, int(share * meter.peak)), 0))
    assert counts.plain_peak == meter.peak
    assert peak <= meter.peak


@settings(max_examples=fewer(30), deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 25), st.floats(0, 1), st.integers(0, 200))
def test_random_graphs_with_random_operators(seed: int, n: int, share: float, least: int) -> None:
    graph = random_graph(random.Random(seed), n, draws=True)
    execute(graph, DTRConfig(max(1, int(share * 2000)), least))


@pytest.mark.parametrize(
    "name",
    ["unet", "detector_ssd", "vit", "optical_flow", "video_conv3d", "rnn_cells_unrolled", "mobilenet_v3"],
)
@pytest.mark.parametrize("share", [0.1, 0.7])
def test_nets(name: str, share: float) -> None:
    bundle = loadrun.load(f"fixtures/nets/{name}.mge")
    targets = [c.get for c in bundle.checks]
    feeds: dict[str, Array] = dict(bundle.testcases[0].arrays)
    plain, saving = MemoryMeter(), MemoryMeter()
    want = ReferenceEngine(bundle.graph, targets).run(feeds, memory=plain)
    config = DTRConfig(int(plain.peak * share), 0)
    got = ReferenceEngine(bundle.graph, targets, dtr=config).run(feeds, memory=saving)
    assert [a.tobytes() for a in got] == [a.tobytes() for a in want]
    assert saving.peak <= plain.peak


def test_one_way_of_saving_at_a_time() -> None:
    with pytest.raises(UsageError, match="dtr and sublinear exclude each other"):
        ReferenceEngine(skip_graph(), dtr=DTRConfig(1), sublinear=SublinearMemoryConfig())
