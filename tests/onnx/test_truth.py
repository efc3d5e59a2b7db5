"""ONNX Runtime in a process of its own, which computes what ONNX models give when they are packed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base import pipes
from loadrun.base.errors import EngineError
from loadrun.cli import main
from loadrun.onnx import truth
from loadrun.onnx.truth import installed

MODELS = Path(__file__).parent.parent.parent / "fixtures" / "onnx"


def packed(folder: Path, *options: str) -> str:
    """The model ``y = softmax(...)`` of the fixtures without its test data, packed with ones."""
    alone = folder / "m.onnx"
    shutil.copy(MODELS / "dynamic" / "model.onnx", alone)
    out = str(folder / "m.mge")
    assert main(["pack", str(alone), "-d", "x:#ones(2,3,4)", "-o", out, "-q", *options]) == 0
    return out


@pytest.mark.skipif(not installed("onnxruntime"), reason="onnxruntime is not installed")
@pytest.mark.parametrize("name", sorted(p.name for p in MODELS.iterdir() if p.name != "control"))
def test_onnx_runtime_agrees_with_every_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    asked = truth.Apart.serve

    def serve(self: truth.Apart, *args: Any, **how: bool) -> truth.Run:
        run = asked(self, *args, **how)
        return lambda feeds: ran.append(feeds) or run(feeds)  # type: ignore[func-returns-value]

    monkeypatch.setattr(truth.Apart, "serve", serve)
    out = str(tmp_path / "m.mge")
    assert main(["pack", str(MODELS / name / "model.onnx"), "-o", out, "-q"]) == 0
    assert ran
    assert main([out]) == 0


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


@pytest.mark.skipif(not installed("onnxruntime"), reason="onnxruntime is not installed")
def test_a_process_of_its_own_computes_the_same() -> None:
    path = str(MODELS / "dynamic" / "model.onnx")
    here = truth.runtime(path, session=lambda: truth.new_session(path, as_written=True))
    apart = truth.Apart().serve(path)
    for rows in (2, 5):
        feeds = {"x": np.linspace(-1, 1, rows * 12, dtype="f4").reshape(rows, 3, 4)}
        np.testing.assert_array_equal(apart(feeds)["y"], here(feeds)["y"])
    with pytest.raises(EngineError, match="it needs the input 'x'"):
        apart({})
    # An error is an answer: the process goes on.
    assert apart({"x": np.ones((1, 3, 4), "f4")})["y"].shape == (1, 5)
    with pytest.raises(EngineError, match="ONNX Runtime"):
        truth.Apart().serve("not/there.onnx")({})


@pytest.mark.skipif(not installed("onnxruntime"), reason="onnxruntime is not installed")
def test_a_model_is_proven_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadrun.base.files._LARGE", 1)
    monkeypatch.setattr(truth, "runtime", lambda path, constants: pytest.fail("in this process"))
    out = packed(tmp_path)
    assert main([out, "-v"]) == 0
    assert [r.verdict.value for r in loadrun.run(out)] == ["pass"]


def test_a_runtime_that_crashes_does_not_end_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "installed", lambda package: True)
    monkeypatch.setattr(truth, "_shared", [])
    monkeypatch.setattr(pipes, "_BOOT", "import os, sys; sys.stdin.buffer.read(1); os.abort()")
    out = packed(tmp_path)
    assert main([out, "-v"]) == 0
