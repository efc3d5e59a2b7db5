"""Every engine uses as many threads as loadrun was told to: read back from the runtimes themselves."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.ops.numeric import parallel
from loadrun.runtimes.whole import run_tool


@pytest.fixture(params=[1, 3])
def count(request: pytest.FixtureRequest) -> Iterator[int]:
    """A number of threads, in force until the test ends."""
    before = parallel.threads()
    parallel.set_threads(request.param)
    yield int(request.param)
    parallel.set_threads(before)


def test_exported_programs(count: int, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    seen = []

    class Told(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: object) -> object:
            return torch.relu(x)

    program = torch.export.export(Told(), (torch.ones(2),))
    torch.export.save(program, tmp_path / "m.pt2")
    runner = loadrun.Runner(tmp_path / "m.pt2", "torch")
    runner.run({"x": np.ones(2, "f4")})
    assert runner._native is not None
    module = runner._native.engine._module

    def told(*args: object, **kwargs: object) -> object:
        seen.append(torch.get_num_threads())
        return module(*args, **kwargs)

    runner._native.engine._module = told
    runner.run({"x": np.ones(2, "f4")})
    assert seen == [count]


def test_onnxruntime(count: int) -> None:
    pytest.importorskip("onnxruntime")
    from loadrun.runtimes.onnxruntime import OnnxRuntime

    assert OnnxRuntime().settings().intra_op_num_threads == count


def test_openvino(count: int, fixtures: Path) -> None:
    pytest.importorskip("openvino")
    from loadrun.runtimes.openvino import OpenVINO

    assert OpenVINO("")._settings["INFERENCE_NUM_THREADS"] == str(count)


@pytest.mark.skipif(os.name == "nt", reason="a program of POSIX systems")
def test_programs(count: int) -> None:
    code = (
        "import json, os; print(json.dumps([v for k, v in os.environ.items() if k.endswith('_NUM_THREADS')]))"
    )
    ended, said = run_tool([sys.executable, "-c", code])
    assert ended == 0
    assert set(json.loads(said)) == {str(count)}
