"""One way through a graph: pieces for a runtime, islands on the reference engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError, InputError, UnsupportedError
from loadrun.engines import Setup
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, params as P
from loadrun.graph.dtypes import DType
from loadrun.ops.catalog import TypeParam
from loadrun.runtimes.pieces import divide
from loadrun.runtimes.translated import Translated
from loadrun.testing import GraphBuilder
from tests.support.fake_runtime import FakeRuntime


def chain() -> Graph:
    """``y = exp(abs(x) + 1)``, ``z = abs(x) + 1``."""
    g = GraphBuilder()
    x = g.input("x", 2)
    size = g.elemwise("ADD", g.elemwise("ABS", x), g.const(np.array([1], "f4")), name="z")
    return g.done(g.elemwise("EXP", size, name="y"), size)


def translated(graph: Graph, runtime: FakeRuntime, **how: object) -> Translated:
    return Translated(runtime, graph, graph.outputs, Setup(**how))  # type: ignore[arg-type]


X = np.array([-1, 0], "f4")
Y, Z = np.exp(np.array([2, 1], "f8")), [2, 1]


def test_a_graph_goes_over_whole() -> None:
    runtime = FakeRuntime()
    engine = translated(chain(), runtime)
    y, z = engine.run({"x": X})
    assert z.tolist() == Z
    assert y == pytest.approx(Y, rel=1e-6)
    assert len(runtime.loaded) == 1
    assert (engine.about.islands, engine.about.operators) == ((), 3)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("op", "pieces"), [("Abs", 1), ("Add", 2), ("Exp", 1)])
def test_what_the_runtime_lacks_is_an_island(op: str, pieces: int, late: bool) -> None:
    runtime = FakeRuntime(late=[op]) if late else FakeRuntime([op])
    engine = translated(chain(), runtime)
    for _ in range(2):
        y, z = engine.run({"x": X})
        assert z.tolist() == Z
        assert y == pytest.approx(Y, rel=1e-6)
    (island,) = engine.about.islands
    assert island.type == op.upper()
    assert island.reason == (f"{op} fails" if late else f"no {op} here")
    taken = [m for m in runtime.loaded if op.encode() not in m]
    # Those that were loaded to find the operator to blame come on top.
    assert len(taken) >= pieces


def test_levels_of_pieces() -> None:
    graph = chain()
    absolute, add, exp = (o for o in graph.oprs if o.inputs)
    stored = {v.id for o in graph.oprs if o.type == "ImmutableTensor" for v in o.outputs}
    found = divide([absolute, add, exp], graph.outputs, {add.id}, stored)
    assert [(p.native, p.oprs) for p in found] == [(True, [absolute]), (False, [add]), (True, [exp])]
    assert [[v.id for v in p.inputs] for p in found[1:]] == [[absolute.outputs[0].id], [add.outputs[0].id]]


def test_strict_refuses_with_all_of_them() -> None:
    with pytest.raises(
        UnsupportedError, match=r"1 operator cannot be executed by fake .*\n  Elemwise .*no Exp here"
    ):
        translated(chain(), FakeRuntime(["Exp"]), strict=True).run({"x": X})


def test_what_onnx_lacks_is_an_island() -> None:
    g = GraphBuilder()
    x = g.input("x", 2, 2)
    (inverse,) = g.add("MatrixInverse", inputs=[x]).owner.outputs
    graph = g.done(g.elemwise("NEGATE", inverse, name="y"))
    engine = translated(graph, FakeRuntime())
    (y,) = engine.run({"x": np.array([[2, 0], [0, 4]], "f4")})
    assert y.tolist() == [[-0.5, 0], [0, -0.25]]
    assert [i.reason for i in engine.about.islands] == ["ONNX has no inverse of a matrix"]


def test_every_shape_has_its_program() -> None:
    runtime = FakeRuntime()
    engine = translated(chain(), runtime)
    for n in (1, 3, 1, 3):
        assert engine.run({"x": np.zeros(n, "f4")})[1].tolist() == [1] * n
    assert len(runtime.loaded) == 2


def test_random_numbers_are_those_of_the_reference_engine() -> None:
    g = GraphBuilder()
    (u,) = g.add("UniformRNGV1", P.UniformRNG(), inputs=[g.ints(5)]).owner.outputs
    graph = g.done(g.elemwise("NEGATE", u, name="y"))
    (found,) = translated(graph, FakeRuntime(), seed=7).run({})
    (expected,) = ReferenceEngine(graph, seed=7).run({})
    assert found.tolist() == expected.tolist()
    assert len(set(found.tolist())) == 5


def test_targets_that_nothing_computes() -> None:
    g = GraphBuilder()
    x = g.input("x", 2)
    seven = g.const(np.array([7], "f4"))
    weight = g.const(np.array([3, 4], "f4"), type="SharedDeviceTensor")
    graph = g.done(x, g.elemwise("ADD", seven, seven), weight, x)
    runtime = FakeRuntime()
    found = translated(graph, runtime).run({"x": X})
    assert [a.tolist() for a in found] == [[-1, 0], [14], [3, 4], [-1, 0]]
    assert not runtime.loaded


@pytest.mark.parametrize(("without", "seed"), [([], 0), (["If"], 1)])
def test_branches_are_not_divided(without: list[str], seed: int, fixtures: Path) -> None:
    files = sorted((fixtures / "ops" / "control").glob("*.mge"))
    run = 0
    for file in files[:8]:
        bundle = loadrun.load(file)
        if not any(o.type == "CondExecMerge" for o in bundle.graph.oprs):
            continue
        outputs = list(bundle.outputs.values())
        feeds = loadrun.random_inputs(bundle, seed)
        try:
            expected = ReferenceEngine(bundle.graph, outputs).run(feeds)
        except EngineError:
            # Random data takes no branch there.
            continue
        engine = Translated(FakeRuntime(without), bundle.graph, outputs, Setup())
        for found, want in zip(engine.run(feeds), expected, strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-6, err_msg=file.name)
        assert len(engine.about.islands) in (0, engine.about.operators), file.name
        run += 1
    assert run


def test_inputs_are_checked() -> None:
    engine = translated(chain(), FakeRuntime())
    with pytest.raises(InputError, match=r"'x' \(Float32 \[2\]\) is missing"):
        engine.run({})
    with pytest.raises(InputError, match="takes Float32"):
        engine.run({"x": np.zeros(2)})


def test_defaults_of_inputs_are_used() -> None:
    g = GraphBuilder()
    x = g.input("x", 2)
    x.owner.tensors[0].data = np.array([5, 6], "f4").view(np.uint8)
    graph = g.done(g.elemwise("NEGATE", x, name="y"))
    assert translated(graph, FakeRuntime()).run({})[0].tolist() == [-5, -6]


def test_quantized_values_are_stored_integers() -> None:
    q = DType("QuantizedS8", 0.5)
    g = GraphBuilder()
    x = g.input("x", 3)
    stored = g.add("TypeCvtV2", TypeParam(dtype=q), inputs=[x])
    graph = g.done(stored)
    (found,) = translated(graph, FakeRuntime()).run({"x": np.array([0.25, -0.3, 100], "f4")})
    # 0.25 / 0.5 is a half, which MegEngine rounds away from zero.
    assert (found.dtype, found.tolist()) == (np.int8, [1, -1, 127])
