"""Engines by name, and what an engine of somebody else has to be."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.about import About
from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.engines import check_engine, make_engine, register_engine, registry
from loadrun.testcase import Bundle
from loadrun.testing import GraphBuilder
from loadrun.verify.pack.options import PackOptions
from loadrun.verify.pack.packing import Packer
from tests.support.shifted import Shifted, doubled


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    register_engine("shifted", Shifted)


def test_an_own_engine_is_judged_by_the_file(fixtures: Path) -> None:
    bundle = loadrun.load(fixtures / "nets" / "mlp.mge")
    good = loadrun.Runner(bundle, "shifted").replay_one(0)
    assert (good.verdict.value, good.engine) == ("pass", About("shifted", "3.1", "float32", "by 0"))
    bad = loadrun.Runner(bundle, "shifted:0.001").replay_one(0)
    assert bad.verdict.value == "fail"
    # What the file computes of its checks is not the engine's: the error is the shift, no more.
    assert bad.outputs[0].error == pytest.approx(0.001, rel=1e-3)


def test_what_an_own_engine_gives_is_packed(tmp_path: Path) -> None:
    file = tmp_path / "packed.mge"
    Packer(Bundle(doubled()), PackOptions(engine="shifted:1"), warn=print).pack(
        [{"x": np.array([1, 2, 3], "f4")}], str(file)
    )
    case = loadrun.load(file).testcases[0]
    assert case.expects["y"].tolist() == [3, 5, 7]
    assert loadrun.run(file)[0].verdict.value == "fail"


def test_float64_rounds_once() -> None:
    g = GraphBuilder()
    x = g.input("x", 1)
    one = g.const(np.array([1], "f4"))
    graph = g.done(g.elemwise("SUB", g.elemwise("ADD", x, one), one, name="y"))
    feeds = {"x": np.array([1e-9], "f4")}
    assert make_engine("reference", graph, graph.outputs).run(feeds)[0].tolist() == [0]
    found = make_engine("float64", graph, graph.outputs).run(feeds)[0]
    assert found.dtype == np.float32
    assert found[0] == pytest.approx(1e-9, rel=1e-6)


@pytest.mark.parametrize(
    ("engine", "package", "said"),
    [
        ("reference:fast", "numpy", "takes nothing after a colon, found 'fast'"),
        ("onnxruntime:speed=1", "onnxruntime", "has no option 'speed'"),
        ("openvino:SPEED=1", "openvino", "does not take the option SPEED=1: NotFound"),
        ("torch:cuda", "torch", "takes nothing after a colon, found 'cuda'"),
    ],
)
def test_a_wrong_option_is_said_once(
    engine: str, package: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    report = tmp_path / "r.xml"
    models = ["fixtures/nets/mlp.mge", "fixtures/nets/vit.mge"]
    assert main([*models, "--engine", engine, "--junit", str(report)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count(said), report.exists()) == ("", 1, False)


@pytest.mark.parametrize("name", ["onnxrunime", "", "Reference", "shifted2:1"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UsageError, match="unknown; expected one of reference, float64, numba, onnxruntime"):
        check_engine(name)


@pytest.mark.parametrize("name", ["reference", "torch", "two words", "a:b", ""])
def test_names_that_cannot_be_registered(name: str) -> None:
    with pytest.raises(UsageError):
        register_engine(name, Shifted)


@pytest.mark.parametrize("name", ["reference:1", "float64:x", "numba:fast"])
def test_engines_without_an_argument(name: str) -> None:
    graph = doubled()
    with pytest.raises(UsageError, match="takes nothing after a colon"):
        make_engine(name, graph, graph.outputs)


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        EntryPoint("plugged", "tests.runtimes.test_registry:Shifted", registry.GROUP),
        EntryPoint("broken", "tests.runtimes.absent:Engine", registry.GROUP),
    ]
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: found if group == registry.GROUP else []
    )
    graph = doubled()
    assert make_engine("plugged:2", graph, graph.outputs).run({"x": np.ones(3, "f4")})[0].tolist() == [
        4,
        4,
        4,
    ]
    assert registry.engine_names()[-3:] == ["broken", "plugged", "shifted"]
    with pytest.raises(UsageError, match=r"'broken' \(tests.runtimes.absent:Engine\) cannot be loaded"):
        make_engine("broken", graph, graph.outputs)
