"""A graph as one model of a runtime: what is computed in advance, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import InputError, UnsupportedError
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, Var, params as P
from loadrun.graph.dtypes import DType
from loadrun.ops.catalog import TypeParam
from loadrun.runtimes.translated import Translated
from loadrun.testing import GraphBuilder
from tests.support.fake_runtime import FakeRuntime


def chain() -> Graph:
    """``y = exp(abs(x) + 1)``, ``z = abs(x) + 1``."""
    g = GraphBuilder()
    x = g.input("x", 2)
    size = g.elemwise("ADD", g.elemwise("ABS", x), g.const(np.array([1], "f4")), name="z")
    return g.done(g.elemwise("EXP", size, name="y"), size)


def translated(graph: Graph, runtime: FakeRuntime) -> Translated:
    return Translated(runtime, graph, graph.outputs)


X = np.array([-1, 0], "f4")
Y, Z = np.exp(np.array([2, 1], "f8")), [2, 1]
INSTEAD = "run the model on the reference engine or MegEngine"


def test_a_graph_goes_over_whole() -> None:
    runtime = FakeRuntime()
    engine = translated(chain(), runtime)
    for _ in range(2):
        y, z = engine.run({"x": X})
        assert z.tolist() == Z
        assert y == pytest.approx(Y, rel=1e-6)
    assert len(runtime.loaded) == 1
    assert engine.about.operators == 3


def test_a_model_that_the_runtime_rejects() -> None:
    engine = translated(chain(), FakeRuntime(["Exp"]))
    for act in (engine.prepare, engine.run):
        with pytest.raises(UnsupportedError) as e:
            act({"x": X})
        assert str(e.value) == f"fake rejects the translated model: no Exp here; {INSTEAD}"


def inverses(count: int) -> Graph:
    g = GraphBuilder()
    x = g.input("x", 2, 2)
    values: list[Var] = [x]
    for i in range(count):
        values.append(g.elemwise("NEGATE", g.add("MatrixInverse", inputs=[x]), name=f"y{i}"))
    return g.done(*values[1:])


@pytest.mark.parametrize(
    ("count", "named"),
    [
        (1, "MatrixInverse (operator 1)"),
        (3, "MatrixInverse (operator 1), MatrixInverse (operator 3), MatrixInverse (operator 5)"),
        (
            5,
            "MatrixInverse (operator 1), MatrixInverse (operator 3), MatrixInverse (operator 5) and 2 more operators",
        ),
    ],
)
def test_operators_that_onnx_lacks_are_named(count: int, named: str) -> None:
    runtime = FakeRuntime()
    with pytest.raises(UnsupportedError) as e:
        translated(inverses(count), runtime).run({"x": np.eye(2, dtype="f4")})
    assert str(e.value) == f"fake cannot run {named}: ONNX has no inverse of a matrix; {INSTEAD}"
    assert not runtime.loaded


def test_operators_have_the_numbers_of_the_graph() -> None:
    """What is computed in advance is not in the model, and does not change them."""
    g = GraphBuilder()
    one = g.const(np.array([1], "f4"))
    two = g.elemwise("ADD", one, one)
    x = g.input("x", 2, 2)
    inverse = g.add("MatrixInverse", inputs=[x])
    graph = g.done(g.elemwise("MUL", inverse, two))
    with pytest.raises(UnsupportedError, match=rf"MatrixInverse \(operator {inverse.owner.id}\)"):
        translated(graph, FakeRuntime()).run({"x": np.eye(2, dtype="f4")})


def test_random_numbers_are_refused() -> None:
    g = GraphBuilder()
    (u,) = g.add("UniformRNGV1", P.UniformRNG(), inputs=[g.ints(5)]).owner.outputs
    graph = g.done(g.elemwise("NEGATE", u, name="y"))
    with pytest.raises(UnsupportedError, match=r"UniformRNGV1 .*: every runtime draws other random numbers"):
        translated(graph, FakeRuntime()).run({})


@pytest.mark.parametrize(("probability", "runs"), [(0.0, True), (0.5, False)])
def test_dropout_of_nothing_draws_nothing(probability: float, runs: bool) -> None:
    g = GraphBuilder()
    x = g.input("x", 2)
    dropped, _ = g.graph.add("Dropout", P.Dropout(drop_prob=probability), inputs=[x], n_outputs=2)
    engine = translated(g.done(g.elemwise("NEGATE", dropped, name="y")), FakeRuntime())
    if runs:
        assert engine.run({"x": X})[0].tolist() == [1, 0]
    else:
        with pytest.raises(UnsupportedError, match="Dropout"):
            engine.run({"x": X})


def test_every_shape_has_its_program() -> None:
    runtime = FakeRuntime()
    engine = translated(chain(), runtime)
    for n in (1, 3, 1, 3):
        assert engine.run({"x": np.zeros(n, "f4")})[1].tolist() == [1] * n
    assert len(runtime.loaded) == 2


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


def test_branches_go_over_with_the_rest(fixtures: Path) -> None:
    for name in ("both", "logic"):
        bundle = loadrun.load(fixtures / "ops" / "control" / f"written_{name}.mge")
        outputs = list(bundle.outputs.values())
        feeds = loadrun.random_inputs(bundle, 0)
        expected = ReferenceEngine(bundle.graph, outputs).run(feeds)
        engine = Translated(FakeRuntime(), bundle.graph, outputs)
        for found, want in zip(engine.run(feeds), expected, strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-6, err_msg=name)


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
