"""`loadrun diff --passes` names the optimization that makes outputs diverge."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UnsupportedError
from loadrun.cli import main
from loadrun.graph import Graph
from loadrun.graph.dtypes import encode
from loadrun.passes import inference
from loadrun.passes.options import InferenceOptions
from loadrun.verify import blame_pass
from loadrun.verify.blame_pass import _fewest

NETS = Path("fixtures/nets")


def test_an_optimizer_of_onnxruntime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from tests.support.onnx_files import batchnorm_model

    model = str(batchnorm_model(tmp_path))
    assert main(["diff", "--passes", model]) == 0
    capsys.readouterr()
    # To the bit nothing may change, and folding changes the last one.
    assert main(["diff", "--passes", model, "--maxerr", "0"]) == 1
    out = capsys.readouterr().out
    assert "to blame: onnxruntime at basic: ConvBNFusion" in out
    shown = next(line for line in out.splitlines() if "reproduce with" in line)
    gone = next(line for line in out.splitlines() if "avoid with" in line)
    assert gone.endswith(":disable=ConvBNFusion")
    for line in (shown, gone):
        assert main(line.split("loadrun ")[1].split()) == 0


@pytest.mark.parametrize("broken", [("disable",), ("extended",), ("disable", "all")])
def test_levels_that_cannot_be_loaded_are_left_out(broken: tuple[str, ...]) -> None:
    """Outputs of the other levels are compared, here with one that is wrong beyond the first."""
    said: list[str] = []

    def run(how: str) -> dict[str, np.ndarray[Any, Any]]:
        level = how.partition("=")[2]
        if level in broken:
            raise UnsupportedError(f"no kernel at {level}")
        return {"y": np.ones(2) * (1 + (level == "all"))}

    search = blame_pass._Search(1e-3, run, said.append)
    found = [level for level in ("basic", "extended", "all") if search.worst(f"opt={level}") is not None]
    assert found == (["all"] if "all" not in broken else [])
    assert said == [f"left out onnxruntime:opt={n}: no kernel at {n}" for n in broken]


def test_a_pass_of_its_own(tmp_path: Path) -> None:
    (found,) = loadrun.blame_pass(
        NETS / "layout_float_unoptimized.mge", loadrun.BlamePassOptions(tolerance=0.0, testcase=0)
    )
    assert found.of == "loadrun"
    assert len(found.names) == 1
    assert found.command.startswith("loadrun ")
    assert loadrun.blame_pass(NETS / "layout_float_unoptimized.mge") == []


@pytest.mark.parametrize("fault", ["wrong", "broken"])
@pytest.mark.parametrize("flag", ["", "enable_hwcd4"])
def test_a_wrong_pass_is_named_with_a_command_that_shows_it(
    fault: str, flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that scales a weight, or leaves a product whose sizes do not fit, planted at the eighth place."""
    real = inference.inference_passes

    def normalize(graph: Graph) -> Graph:
        changed = copy.deepcopy(graph)
        for opr in changed.oprs:
            if opr.type == "MatrixMulV2" and fault == "broken":
                opr.inputs = [opr.inputs[0], opr.inputs[0]]
            if opr.type == "ImmutableTensor" and opr.tensors[0].dtype.is_float and fault == "wrong":
                (tensor,) = opr.tensors
                opr.tensors = [replace(tensor, data=encode(tensor.value() * 2, tensor.dtype))]
        return changed

    def passes(options: InferenceOptions) -> list[Any]:
        chosen = list(real(options))
        return [*chosen[:7], normalize, *chosen[7:]] if options == InferenceOptions.of(**asked) else chosen

    asked = {flag: True} if flag else {}
    monkeypatch.setattr(inference, "inference_passes", passes)
    monkeypatch.setattr(blame_pass, "inference_passes", passes)
    assert main(["diff", "--passes", str(NETS / "mlp.mge"), "--testcase", "0"]) == 1
    out = capsys.readouterr().out
    assert f"to blame: loadrun{f' at {flag}' if flag else ''}: normalize (" in out
    shown = next(line for line in out.splitlines() if "reproduce with" in line)
    assert main(shown.split("loadrun ")[1].split()) == (1 if fault == "wrong" else 2)


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
