"""`loadrun blame-pass` names the optimization that makes outputs diverge."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import loadrun
from loadrun.cli import main
from loadrun.verify.blame_pass import _fewest

NETS = Path("fixtures/nets")


def test_an_optimizer_of_onnxruntime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from tests.support.onnx_files import batchnorm_model

    model = str(batchnorm_model(tmp_path))
    assert main(["blame-pass", model]) == 0
    capsys.readouterr()
    # To the bit nothing may change, and folding changes the last one.
    assert main(["blame-pass", model, "--tolerance", "0"]) == 1
    out = capsys.readouterr().out
    assert "to blame: onnxruntime at basic: ConvBNFusion" in out
    shown = next(line for line in out.splitlines() if "reproduce with" in line)
    gone = next(line for line in out.splitlines() if "avoid with" in line)
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
    from tests.support.onnx_files import batchnorm_model

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
