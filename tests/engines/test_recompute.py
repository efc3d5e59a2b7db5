"""Values computed again to save memory, on graphs whose bytes are counted by hand, on random graphs and on nets."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import loadrun
from loadrun.base.errors import UsageError
from loadrun.engines.program import MemoryMeter
from loadrun.engines.recompute import DTRConfig, SublinearMemoryConfig
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, Opr, Var
from loadrun.graph.params import ElemwiseMode
from tests.support.cases import fewer
from tests.support.memory_graphs import Array, Builder, random_graph

X = {"x": np.linspace(-1, 1, 24, dtype="f4").reshape(4, 6)}
E = ElemwiseMode
Config = DTRConfig | SublinearMemoryConfig


def saving(graph: Graph, config: Config, outputs: list[Var] | None = None, **options: Any) -> ReferenceEngine:
    kind = "dtr" if isinstance(config, DTRConfig) else "sublinear"
    return ReferenceEngine(graph, outputs, **{kind: config}, **options)


def execute(
    graph: Graph, config: Config, feeds: dict[str, Array] = X, outputs: list[Var] | None = None
) -> tuple[int, int, list[int]]:
    """Measured peaks of ordinary and of saving execution, and the operators that are executed again.

    The results must be those of ordinary execution, twice.
    """
    plain, less = MemoryMeter(), MemoryMeter()
    want = ReferenceEngine(graph, outputs).run(feeds, memory=plain)
    engine = saving(graph, config, outputs)
    for got in (engine.run(feeds, memory=less), engine.run(feeds)):
        assert [a.tobytes() for a in got] == [a.tobytes() for a in want]
    assert less.peak <= plain.peak
    (program,) = engine._programs.values()
    return plain.peak, less.peak, [s.call.opr.id for s in program.steps if s.again]


def skip_graph(depth: int = 1, shape: tuple[int, int] = (4, 6)) -> Graph:
    """A value of 96 bytes is read before and after 192 bytes and their sums (24) are alive, as early as the input."""
    b = Builder()
    y = x = b.input(shape)
    for _ in range(depth):
        y = b.elemwise(E.TANH, y)
    product = b.elemwise(E.MUL, x, b.sum(y))
    b.graph.outputs = [b.elemwise(E.MUL, y, b.sum(b.concat(product, product)))]
    return b.graph


def test_nothing_is_dropped_below_the_threshold() -> None:
    assert execute(skip_graph(), DTRConfig(96 + 96 + 192, 0)) == (384, 384, [])


@pytest.mark.parametrize("depth", [1, 2, 5, 400])
def test_a_dropped_value_is_computed_again_with_all_before_it(depth: int) -> None:
    """The first value (96) is dropped while a product (96) and its join with itself (192) are alive."""
    graph = skip_graph(depth)
    plain, less, again = execute(graph, DTRConfig(96 + 192, 0))
    assert (plain, less) == (96 + 96 + 192, 96 + 192)
    assert len(again) == depth


@pytest.mark.parametrize(("least", "peak"), [(96, 288), (97, 384)])
def test_small_values_stay(least: int, peak: int) -> None:
    assert execute(skip_graph(), DTRConfig(200, least))[1] == peak


def test_the_least_size_is_a_mebibyte_by_default() -> None:
    assert execute(skip_graph(), DTRConfig(200))[1:] == (384, [])


@pytest.mark.parametrize(
    ("factors", "dropped"), [((1, 1), "cheap"), ((0, 1), "cheap"), ((1, 0), "cheap"), ((0, 0), "far")]
)
def test_what_is_dropped(factors: tuple[float, float], dropped: str) -> None:
    """Time and memory of recomputation speak for the value that takes one operator, its size and the distance
    of its next use for the other one, which takes many."""
    b = Builder()
    x = b.input((4, 6))
    far = b.elemwise(E.TANH, x)
    for _ in range(5):
        far = b.elemwise(E.TANH, b.flip(b.flip(b.elemwise(E.NEGATE, far))))
    cheap = b.elemwise(E.EXP, x)
    early = b.elemwise(E.ADD, b.sum(far), b.sum(cheap))
    t = b.sum(b.concat(b.elemwise(E.MUL, x, early), x))
    once = b.elemwise(E.MUL, cheap, t)
    b.graph.outputs = [b.elemwise(E.ADD, b.elemwise(E.SIGMOID, b.elemwise(E.NEGATE, once)), far)]
    _, _, again = execute(b.graph, DTRConfig(3 * 96 + 192 - 24, 0, *factors))
    assert (cheap.owner.id in again) is (dropped == "cheap")
    assert (far.owner.id in again) is (dropped == "far")


def test_memory_goes_with_all_the_views_in_it() -> None:
    """Dropping one of two views would free nothing; both halves of exp (96) go, and it comes back."""
    b = Builder()
    x = b.input((4, 6))
    y = b.elemwise(E.EXP, x)
    first, second = b.halves(y, 4)
    t = b.sum(b.concat(x, x))
    b.graph.outputs = [b.elemwise(E.ADD, b.elemwise(E.MUL, first, t), second)]
    plain, less, _ = execute(b.graph, DTRConfig(96 + 191, 0))
    assert (plain, less) == (96 + 192 + 24, 192 + 24)


def test_targets_stay() -> None:
    b = Builder()
    x = b.input((4, 6))
    kept = [b.elemwise(mode, x) for mode in (E.EXP, E.TANH, E.NEGATE)]
    kept.append(b.sum(b.concat(x, x)))
    assert execute(b.graph, DTRConfig(1, 0), outputs=kept)[1:] == (3 * 96 + 192 + 24, [])


def test_random_operators_are_executed_once() -> None:
    b = Builder()
    x = b.input((4, 6))
    drawn = b.random(4, 6)
    y = b.elemwise(E.EXP, drawn)
    t = b.sum(b.concat(x, x))
    b.graph.outputs = [b.elemwise(E.ADD, b.elemwise(E.MUL, y, t), b.elemwise(E.NEGATE, drawn))]
    assert drawn.owner.id not in execute(b.graph, DTRConfig(1, 0))[2]


def test_a_value_without_an_early_reader_is_computed_later() -> None:
    b = Builder()
    x = b.input((4, 6))
    y = b.elemwise(E.EXP, x)
    b.graph.outputs = [b.elemwise(E.MUL, y, b.sum(b.concat(x, x)))]
    assert execute(b.graph, SublinearMemoryConfig()) == (96 + 192 + 24, 192 + 24, [])


def test_many_long_skips_take_much_less() -> None:
    """Values that are read in reverse order at the end."""
    b = Builder()
    v = b.input((6, 6))
    kept = []
    for _ in range(10):
        v = b.elemwise(E.TANH, b.concat_half(v, 6))
        kept.append(v)
    for k in reversed(kept):
        v = b.elemwise(E.ADD, b.concat_half(v, 6), k)
    b.graph.outputs = [v]
    feeds = {"x": np.linspace(-1, 1, 36, dtype="f4").reshape(6, 6)}
    plain, less, _ = execute(b.graph, SublinearMemoryConfig(), feeds)
    assert plain >= 10 * 144
    assert less <= 0.65 * plain


@pytest.mark.parametrize(("bound", "peak"), [(0, 3 << 20), (3, 3 << 20), (4, 4 << 20)])
def test_nothing_is_recomputed_below_the_bound(bound: int, peak: int) -> None:
    """A value of a mebibyte goes while a product (one) and its join with itself (two) are alive; but where four are
    no matter, it stays."""
    feeds = {"x": np.zeros((512, 512), "f4")}
    found = execute(skip_graph(1, (512, 512)), SublinearMemoryConfig(lb_memory_mb=bound), feeds)
    assert (found[1], len(found[2])) == (peak, int(bound < 4))


def test_observers_see_every_operator_once() -> None:
    graph = random_graph(random.Random(4), 30)
    engine = saving(graph, SublinearMemoryConfig())
    seen: list[Opr] = []
    engine.run(X, lambda opr, _: seen.append(opr))
    (program,) = engine._programs.values()
    assert any(s.again for s in program.steps)
    assert len({o.id for o in seen}) == len(seen) == sum(not s.again for s in program.steps)


@settings(max_examples=fewer(40, 4), deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 30), st.floats(0, 1), st.booleans())
def test_random_graphs(seed: int, n: int, share: float, draws: bool) -> None:
    """Equal bits, and never more memory than in ordinary execution."""
    graph = random_graph(random.Random(seed), n, draws=draws)
    execute(graph, DTRConfig(max(1, int(share * 2000)), 0))
    execute(graph, SublinearMemoryConfig(thresh_nr_try=4))


@pytest.mark.parametrize(
    "name",
    ["unet", "detector_ssd", "vit", "optical_flow", "video_conv3d", "rnn_cells_unrolled", "mobilenet_v3"],
)
@pytest.mark.parametrize("share", [None, 0.1, 0.7])
def test_nets(name: str, share: float | None) -> None:
    bundle = loadrun.load(f"fixtures/nets/{name}.mge")
    targets = [c.get for c in bundle.checks]
    feeds: dict[str, Array] = dict(bundle.testcases[0].arrays)
    plain = MemoryMeter()
    ReferenceEngine(bundle.graph, targets).run(feeds, memory=plain)
    config = SublinearMemoryConfig() if share is None else DTRConfig(int(plain.peak * share), 0)
    execute(bundle.graph, config, feeds, targets)


def test_one_way_of_saving_at_a_time() -> None:
    with pytest.raises(UsageError, match="dtr and sublinear exclude each other"):
        ReferenceEngine(skip_graph(), dtr=DTRConfig(1), sublinear=SublinearMemoryConfig())
