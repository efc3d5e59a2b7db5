"""Ground truth of ONNX models has a witness: what ONNX Runtime computes for the same testcases goes into the record."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError
from loadrun.cli import main
from loadrun.compare.record import lines
from loadrun.onnx import truth
from loadrun.onnx.truth import runtime_name

MODELS = Path(__file__).parent.parent.parent / "fixtures" / "onnx"


def pretend(monkeypatch: pytest.MonkeyPatch, values: Mapping[str, np.ndarray] | Exception) -> None:
    """A runtime that gives these values."""

    def run(feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if isinstance(values, Exception):
            raise values
        return dict(values)

    monkeypatch.setattr(truth, "runtime_name", lambda: "Other 1.2")
    monkeypatch.setattr(truth, "runtime_apart", lambda path, constants: run)


def packed(folder: Path, *options: str) -> str:
    """The model ``y = softmax(...)`` of the fixtures without its test data, packed with ones."""
    alone = folder / "m.onnx"
    shutil.copy(MODELS / "dynamic" / "model.onnx", alone)
    out = str(folder / "m.mge")
    assert main(["pack", str(alone), "-d", "x:#ones(2,3,4)", "-o", out, "-q", *options]) == 0
    return out


def expected(path: str) -> np.ndarray:
    return loadrun.load(path).testcases[0].expects["y"]


def test_a_witness_that_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, EngineError("not yet"))
    value = expected(packed(tmp_path))
    pretend(monkeypatch, {"y": value + np.float32(2e-5)})
    capsys.readouterr()
    out = packed(tmp_path)
    assert capsys.readouterr().err == ""
    assert main([out, "-v"]) == 0
    said = capsys.readouterr().out
    assert "Other 1.2 computed 1 testcase as well: largest error 2e-05 ('y' of testcase 0)" in said
    assert main(["info", out, "--json"]) == 0
    (text,) = json.loads(capsys.readouterr().out)[0]["witnesses"]
    assert text.startswith("Other 1.2 computed 1 testcase")
    assert main(["info", out, "--quiet"]) == 0
    assert "Other 1.2 computed" in capsys.readouterr().out
    record = loadrun.load(out).record
    assert isinstance(record, memoryview)
    about, case = lines(record)
    assert about["provenance"]["engine"] == case["provenance"]["engine"] == "reference"
    assert set(case["provenance"]["witness"]["outputs"]) == {"y"}


def test_a_witness_that_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, {"y": np.full((2, 5), 7, np.float32)})
    out = packed(tmp_path)
    said = capsys.readouterr().err
    assert "testcase 0: Other 1.2 computes a different value for the output 'y': they differ by" in said
    assert "allowed is 0.0001" in said
    assert main([out]) == 0
    assert "Other 1.2 differs from 'y' of testcase 0 by" in capsys.readouterr().out
    packed(tmp_path, "--maxerr", "10")
    assert "Other" not in capsys.readouterr().err
    pretend(monkeypatch, {"y": np.zeros((2, 4), np.float32)})
    out = packed(tmp_path)
    assert "computes shape [2, 4] for the output 'y', expected [2, 5]" in capsys.readouterr().err
    assert main([out]) == 0
    assert "computed another shape for 'y' of testcase 0" in capsys.readouterr().out


def test_a_witness_that_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(monkeypatch, EngineError("opset 99 is unknown"))
    out = packed(tmp_path)
    assert "Other 1.2 did not compute what testcase 0 expects: opset 99 is unknown" in capsys.readouterr().err
    assert main([out, "-v"]) == 0
    assert "Other 1.2 did not compute testcase 0: opset 99 is unknown" in capsys.readouterr().out


def test_testcases_of_the_model_are_judged_by_its_own_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = loadrun.load(MODELS / "dynamic" / "model.onnx").testcases[0]
    # Allowed is a thousandth of the value: half of that agrees, twice does not.
    for share, count in ((5e-4, 0), (2e-3, 2)):
        pretend(monkeypatch, {"y": case.expects["y"] * np.float32(1 + share)})
        out = str(tmp_path / "m.mge")
        assert main(["pack", str(MODELS / "dynamic" / "model.onnx"), "-o", out, "-q"]) == 0
        said = capsys.readouterr().err
        assert ("testcase 0: Other 1.2 computes a different value" in said) == (count > 0)


@pytest.mark.skipif(runtime_name() is None, reason="onnxruntime is not installed")
@pytest.mark.parametrize("name", sorted(p.name for p in MODELS.iterdir() if p.name != "control"))
def test_onnx_runtime_agrees_with_every_model(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "m.mge")
    assert main(["pack", str(MODELS / name / "model.onnx"), "-o", out, "-q"]) == 0
    assert "ONNX Runtime" not in capsys.readouterr().err
    assert main([out, "-v"]) == 0
    assert f"{runtime_name()} computed" in capsys.readouterr().out


def test_digests_agree_where_axes_are_added(tmp_path: Path) -> None:
    """Parameters that are lists of steps digest the same when they are made as when they are read."""
    import loadrun.megengine.functional as F
    from loadrun.dump.record import graph_digest

    @loadrun.trace(symbolic=True, capture_as_const=True)
    def twice(x: loadrun.Tensor) -> loadrun.Tensor:
        return F.squeeze(F.expand_dims(x, [0, 2]), 0)

    twice(loadrun.Tensor(np.ones((2, 3), np.float32)))
    graph = twice.graph(["x"])
    loadrun.save(loadrun.Bundle(graph), tmp_path / "a.mge")
    assert graph_digest(loadrun.load(tmp_path / "a.mge").graph) == graph_digest(graph)


@pytest.mark.skipif(runtime_name() is None, reason="onnxruntime is not installed")
def test_a_process_of_its_own_computes_the_same() -> None:
    path = str(MODELS / "dynamic" / "model.onnx")
    here, apart = truth.runtime(path), truth.runtime_apart(path)
    for rows in (2, 5):
        feeds = {"x": np.linspace(-1, 1, rows * 12, dtype="f4").reshape(rows, 3, 4)}
        np.testing.assert_array_equal(apart(feeds)["y"], here(feeds)["y"])
    with pytest.raises(EngineError, match="it needs the input 'x'"):
        apart({})
    # An error is an answer: the process goes on.
    assert apart({"x": np.ones((1, 3, 4), "f4")})["y"].shape == (1, 5)
    with pytest.raises(EngineError, match="ONNX Runtime"):
        truth.runtime_apart("not/there.onnx")({})


@pytest.mark.skipif(runtime_name() is None, reason="onnxruntime is not installed")
def test_a_model_is_witnessed_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadrun.base.files._LARGE", 1)
    monkeypatch.setattr(truth, "runtime", lambda path, constants: pytest.fail("in this process"))
    out = packed(tmp_path)
    assert main([out, "-v"]) == 0
    assert [r.verdict.value for r in loadrun.run(out)] == ["pass"]


def test_a_runtime_that_crashes_does_not_end_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crashing(module: str, environment: object) -> subprocess.Popen[bytes]:
        code = "import os, sys; sys.stdin.buffer.read(1); os.abort()"
        return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(truth, "runtime_name", lambda: "Other 1.2")
    monkeypatch.setattr(truth, "start", crashing)
    out = packed(tmp_path)
    assert main([out, "-v"]) == 0
