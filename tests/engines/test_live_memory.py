"""Bytes of live values: measured, predicted, and counted by hand. A matrix of 4 times 6 takes 96 bytes."""

from __future__ import annotations

import random

import numpy as np
import pytest

import loadrun
from loadrun.engines.liveness import peak_bytes
from loadrun.engines.program import MemoryMeter
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph
from loadrun.graph.params import ElemwiseMode
from loadrun.ops.infer import infer_shapes
from tests.support.memory_graphs import Builder, random_graph

X = {"x": np.linspace(-1, 1, 24, dtype="f4").reshape(4, 6)}


def measured(graph: Graph) -> tuple[int, int, int]:
    """Peak and bytes alive in the end, and the peak that was predicted."""
    engine = ReferenceEngine(graph)
    meter = MemoryMeter()
    kept = engine.run(X, memory=meter)
    (program,) = engine._programs.values()
    predicted = peak_bytes(program.steps, {v.id for v in graph.outputs}, infer_shapes(graph).shapes)
    alive = meter.live
    del kept
    assert meter.live == 0
    return meter.peak, alive, predicted


def test_new_memory() -> None:
    """exp (96), the join of x with it (192) and its sums (24) are alive together."""
    b = Builder()
    x = b.input((4, 6))
    y = b.elemwise(ElemwiseMode.EXP, x)
    t = b.sum(b.concat(x, y))
    b.graph.outputs = [b.elemwise(ElemwiseMode.MUL, y, t)]
    assert measured(b.graph) == (96 + 192 + 24, 96, 96 + 192 + 24)


def test_results_in_the_memory_of_dying_inputs() -> None:
    b = Builder()
    v = b.input((4, 6))
    for mode in (ElemwiseMode.EXP, ElemwiseMode.TANH, ElemwiseMode.NEGATE):
        v = b.elemwise(mode, v)
    b.graph.outputs = [v]
    assert measured(b.graph) == (96, 96, 96)


def test_views_count_once_and_hold_all_their_memory() -> None:
    """Of two halves of exp (96) one is joined with itself (96) while the other is still to be read."""
    b = Builder()
    first, second = b.halves(b.elemwise(ElemwiseMode.EXP, b.input((4, 6))), 4)
    t = b.sum(b.concat(first, first))
    b.graph.outputs = [b.elemwise(ElemwiseMode.ADD, second, t)]
    peak, alive, predicted = measured(b.graph)
    assert peak == predicted == 96 + 96 + 24
    assert alive == 96, "the result was written into a half, so the whole is held"


def test_views_of_what_is_fed_do_not_count() -> None:
    b = Builder()
    b.graph.outputs = [b.flip(b.input((4, 6)))]
    assert measured(b.graph) == (0, 0, 0)


def test_an_observer_of_operators() -> None:
    b = Builder()
    b.graph.outputs = [b.elemwise(ElemwiseMode.EXP, b.elemwise(ElemwiseMode.EXP, b.input((4, 6))))]
    meter = MemoryMeter(X.values())
    ReferenceEngine(b.graph).run(X, meter)
    assert (meter.peak, meter.live, meter.executions) == (96, 0, 2)


@pytest.mark.parametrize("seed", range(40))
def test_peaks_are_predicted(seed: int) -> None:
    """Exactly, or where transpositions make it unsure whether memory is shared, not below."""
    peak, _, predicted = measured(random_graph(random.Random(seed), 18, flips=False))
    assert predicted == peak
    peak, _, predicted = measured(random_graph(random.Random(seed), 18))
    assert predicted >= peak


@pytest.mark.parametrize("name", ["unet", "resnet_basic", "vit", "optical_flow", "super_resolution_bilinear"])
def test_peaks_of_nets_are_predicted(name: str) -> None:
    bundle = loadrun.load(f"fixtures/nets/{name}.mge")
    targets = [c.get for c in bundle.checks]
    engine = ReferenceEngine(bundle.graph, targets)
    feeds = dict(bundle.testcases[0].arrays)
    meter = MemoryMeter()
    engine.run(feeds, memory=meter)
    (program,) = engine._programs.values()
    shapes = infer_shapes(
        bundle.graph, bundle.graph.needed(targets), {k: a.shape for k, a in feeds.items()}
    ).shapes
    assert meter.peak <= peak_bytes(program.steps, {v.id for v in targets}, shapes) <= 1.2 * meter.peak
