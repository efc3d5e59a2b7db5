"""Kernels bound to the shapes of a program: the numbers of plain numpy, and nobody's memory is written into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun import tracing as jit
from loadrun.base.errors import EngineError
from loadrun.engines import reference
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, StoredTensor, Var, params as P
from loadrun.graph.dtypes import Array, DType
from loadrun.ops.infer import Inference, ShapeInference

pytestmark = pytest.mark.usefixtures("compiled")
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
ROW = np.array([123.7, 116.3, 103.5], np.float32)
PIXELS = np.random.default_rng(0).integers(0, 256, (2, 16, 24, 3), np.uint8)
MAPS = np.random.default_rng(1).normal(size=(2, 5, 8, 6)).astype(np.float32)


def later(function: Callable[..., Array], *args: Array) -> Array:
    """What the compiled graph alone gives; the first call only records."""
    traced = jit.trace(function, symbolic=True, capture_as_const=True, without_host=True)
    traced(*args)
    found = traced(*args)
    assert isinstance(found, np.ndarray)
    return found


CASES: dict[str, tuple[Callable[..., Array], tuple[Array, ...]]] = {
    "a short row of channels": (lambda x: x - ROW, (PIXELS.astype(np.float32),)),
    "a short row first": (lambda x: ROW / x, (PIXELS.astype(np.float32) + 1,)),
    "a short row that is fed": (lambda x, r: x * r, (PIXELS.astype(np.float32), ROW)),
    "rows of several axes": (lambda x, r: x + r, (MAPS, MAPS[0, 0, :1])),
    "rows of a transposed array": (lambda x: x.transpose(0, 2, 3, 1) - ROW[:1], (MAPS,)),
    "a prime number of rows": (lambda x: x - ROW, (PIXELS.reshape(-1, 3)[:101].astype(np.float32),)),
    "channels in other places": (lambda x, r: x + r, (MAPS, MAPS[:1, :, :1, :1])),
    "pixels turned round": (lambda x: x[..., ::-1].astype(np.float32), (PIXELS,)),
    "columns turned round": (lambda x: x[:, :, ::-1].astype(np.float32), (PIXELS,)),
    "a whole array and a number": (lambda x: x * np.float32(3), (MAPS,)),
}


@pytest.mark.parametrize("case", CASES)
def test_bits_are_numpys(case: str) -> None:
    function, args = CASES[case]
    np.testing.assert_array_equal(later(function, *args), function(*args))


def test_nan_in_a_maximum_with_short_rows() -> None:
    x = np.full((40, 3), np.nan, np.float32)
    found = later(lambda x: np.fmax(x, ROW), x)
    np.testing.assert_array_equal(found, np.broadcast_to(ROW, x.shape))


def test_a_value_that_is_still_read_keeps_its_memory() -> None:
    def function(x: Array) -> Array:
        y = x + 1
        rows = y.reshape(2, -1)
        z = y * 2
        return rows.sum(axis=1) + z.sum() + x.sum()

    fed = np.arange(8, dtype=np.float32).reshape(4, 2)
    kept = fed.copy()
    np.testing.assert_array_equal(later(function, fed), [10 + 72 + 28, 26 + 72 + 28])
    np.testing.assert_array_equal(fed, kept)


def test_other_shapes_get_kernels_of_their_own() -> None:
    traced = jit.trace(lambda x: (x - ROW) * 2, symbolic=True, capture_as_const=True, without_host=True)
    for n in (64, 1, 7, 64):
        x = np.arange(n * 3, dtype=np.float32).reshape(n, 3)
        np.testing.assert_array_equal(traced(x), (x - ROW) * 2)


class Model:
    """A graph in the making: inputs x0, x1, ..., and the sizes that they are first fed with."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.shapes: dict[str, tuple[int, ...]] = {}

    def feed(self, *shape: int) -> Var:
        """An input."""
        name = f"x{len(self.shapes)}"
        self.shapes[name] = shape
        tensor = StoredTensor(DType("Float32"), shape, name)
        return self.graph.add("Host2DeviceCopy", P.Host2DeviceCopy(), names=[name], tensors=[tensor])[0]

    def sizes(self, *values: int) -> Var:
        """A constant of int32."""
        data = np.frombuffer(np.array(values, "<i4").tobytes(), np.uint8)
        tensor = StoredTensor(DType("Int32"), (len(values),), data=data)
        return self.graph.add("ImmutableTensor", tensors=[tensor])[0]


def row(m: Model) -> Var:
    item = P.IndexDescMaskDump(items=(P.IndexItem(0, idx=True),))
    return m.graph.add("Subtensor", item, inputs=[m.feed(5, 4), m.sizes(4)], names=["y"])[0]


def reshaped(m: Model) -> Var:
    return m.graph.add("ReshapeV1", P.OptionalAxisV1(), inputs=[m.feed(4, 3), m.sizes(2, 6)], names=["y"])[0]


def joined(m: Model) -> Var:
    return m.graph.add("Concat", P.Axis(axis=0), inputs=[m.feed(2, 3), m.feed(1, 3)], names=["y"])[0]


def convolved(m: Model) -> Var:
    inputs = [m.feed(1, 3, 8, 8), m.feed(4, 3, 3, 3)]
    return m.graph.add("ConvolutionV2", P.Convolution(), inputs=inputs, names=["y"])[0]


@pytest.mark.parametrize(
    ("make", "shape", "found", "expected"),
    [
        (row, (3, 4), r"\[3, 4\]", "index 4 is out of bounds for axis 0 of size 3"),
        (reshaped, (4, 4), r"\[4, 4\]", r"\[2, 6\]"),
        (joined, (2, 4), r"\[2, 4\], \[1, 3\]", ""),
        (convolved, (1, 2, 8, 8), r"\[1, 2, 8, 8\], \[4, 3, 3, 3\]", "2 channels.* 3 "),
    ],
)
def test_shapes_that_do_not_go_together_are_refused_by_the_operators_name(
    make: Callable[[Model], Var], shape: tuple[int, ...], found: str, expected: str
) -> None:
    model = Model()
    model.graph.outputs = [make(model)]
    engine = ReferenceEngine(model.graph, model.graph.outputs)
    feeds = {n: np.ones(s, np.float32) for n, s in model.shapes.items()}
    engine.run(feeds)
    feeds["x0"] = np.ones(shape, np.float32)
    message = f"'y' \\(operator \\d+\\) cannot take shapes {found}.*: .*{expected}"
    for ask in (engine.run, engine.prepare, engine.run):
        with pytest.raises(EngineError, match=message):
            ask(feeds)


def test_shapes_that_come_again_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models run uncompiled at first: all sizes share one program until they come a second time."""
    monkeypatch.setattr("loadrun.engines.reference._WORTH", 10**9)
    model = loadrun.load(FIXTURES / "nets/resnet_basic.mge")
    engine = ReferenceEngine(model.graph, [c.get for c in model.checks])
    feeds = [c.inputs for c in model.testcases]
    first = [engine.run(f) for f in feeds]
    assert len({id(p) for p in engine._programs.values()}) == 1
    for feed, (value,) in zip(feeds, first, strict=True):
        engine.prepare(feed)
        np.testing.assert_array_equal(engine.run(feed)[0], value)
    programs = list(engine._programs.values())
    assert len({id(p) for p in programs}) == len(feeds) == len(programs)


def test_many_sets_of_shapes_keep_their_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 batches in turn: each is compiled once."""
    bundle = loadrun.load("fixtures/nets/mlp.mge")
    engine = ReferenceEngine(bundle.graph, list(bundle.outputs.values()))
    inferred: list[tuple[int, ...]] = []
    kept = ShapeInference.infer

    def infer(self: ShapeInference, shapes: Mapping[str, tuple[int, ...]], *more: Any) -> Inference:
        inferred.extend([shapes["data"]] if shapes else [])
        return kept(self, shapes, *more)

    monkeypatch.setattr(ShapeInference, "infer", infer)
    batches = [np.full((n, 20), 0.5, "f4") for n in range(1, 21)]
    for _ in range(4):
        for x in batches:
            (out,) = engine.run({"data": x})
            assert out.shape == (len(x), 4)
    assert inferred == [x.shape for x in batches]
    # Where values are large, the last eight are kept.
    monkeypatch.setattr(reference, "_ELEMENTS", 0)
    inferred.clear()
    engine = ReferenceEngine(bundle.graph, list(bundle.outputs.values()))
    for _ in range(2):
        for x in batches[:9]:
            engine.run({"data": x})
    assert len(inferred) == 18
