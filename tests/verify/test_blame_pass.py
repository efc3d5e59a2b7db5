"""`loadrun blame-pass` names the optimization that makes outputs diverge."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.verify.blame_pass import _fewest

NETS = Path("fixtures/nets")


def batchnorm_model(folder: Path) -> Path:
    """Convolution and batch normalization, which ONNX Runtime folds into one: the sums round otherwise."""
    onnx = pytest.importorskip("onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((8, 3, 3, 3)),
        "scale": rng.uniform(0.5, 2, 8),
        "shift": rng.standard_normal(8),
        "mean": rng.standard_normal(8),
        "variance": rng.uniform(0.5, 2, 8),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "/conv", pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["y"], "/norm"),
    ]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(v.astype("f4"), k) for k, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def test_an_optimizer_of_onnxruntime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    model = str(batchnorm_model(tmp_path))
    assert main(["blame-pass", model]) == 0
    capsys.readouterr()
    # To the bit nothing may change, and folding changes the last one.
    assert main(["blame-pass", model, "--tolerance", "0"]) == 1
    out = capsys.readouterr().out
    assert "to blame: onnxruntime at basic: ConvBNFusion" in out
    shown = next(line for line in out.splitlines() if "shown by" in line)
    gone = next(line for line in out.splitlines() if "gone with" in line)
    assert gone.endswith(":disable=ConvBNFusion")
    for line in (shown, gone):
        assert main(line.split("loadrun ")[1].split()) == 0


def test_a_pass_of_its_own(tmp_path: Path) -> None:
    (found,) = loadrun.blame_pass(
        NETS / "layout_float_unoptimized.mge", loadrun.BlamePassOptions(tolerance=0.0, testcase=0)
    )
    assert found.of == "loadrun"
    assert len(found.names) == 1
    assert found.command.startswith("loadrun ")
    assert loadrun.blame_pass(NETS / "layout_float_unoptimized.mge") == []


def test_onnxoptimizer_is_bisected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in with four passes, the third of which scales a weight."""
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    path = batchnorm_model(tmp_path)

    def optimize(model: Any, names: list[str]) -> Any:
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        if "scale_weights" in names:
            first = changed.graph.initializer[0]
            value = onnx.numpy_helper.to_array(first) * 2
            first.CopyFrom(onnx.numpy_helper.from_array(value, first.name))
        return changed

    tool: Any = ModuleType("onnxoptimizer")
    tool.__spec__ = onnx.__spec__
    tool.optimize = optimize
    tool.get_fuse_and_elimination_passes = lambda: ["one", "two", "scale_weights", "four"]
    monkeypatch.setitem(sys.modules, "onnxoptimizer", tool)
    found = {b.of: b for b in loadrun.blame_pass(path)}
    assert found["onnxoptimizer"].names == ("scale_weights",)


def test_several_optimizers_together() -> None:
    """Two of eight make the difference, whichever the other runs without."""
    names = list("abcdefgh")
    tried = []

    def differs(disabled: Any) -> bool:
        tried.append(disabled)
        return not {"b", "g"} <= set(disabled)

    assert _fewest(names, differs) == ("b", "g")
    assert len(tried) < 20
