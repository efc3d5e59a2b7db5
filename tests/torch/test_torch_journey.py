"""Every module of a list, all the way: traced, exported, run by ONNX Runtime as a file, and replayed as a dump."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import loadrun  # noqa: E402
import loadrun.torch  # noqa: E402
from loadrun.runner import Verdict  # noqa: E402
from tests.torch.nn_cases import NN_CASES  # noqa: E402


def passed(path: Path, engine: str, want: np.ndarray) -> None:
    results = loadrun.run(path, engine=engine)
    assert [r.verdict for r in results] == [Verdict.PASS]
    (out,) = results[0].outputs
    np.testing.assert_allclose(out.value, want, rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(out.expect, want)


@pytest.mark.parametrize("name", NN_CASES)
def test_module(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    make, example = NN_CASES[name]
    torch.manual_seed(1)
    module, args = make().eval(), example()
    with torch.no_grad():
        want = module(*args).numpy()
    traced = loadrun.torch.trace(module, args)
    loadrun.onnx.export(traced, f=tmp_path / "m.onnx")
    passed(tmp_path / "m.onnx", "onnxruntime", want)
    traced.dump(tmp_path / "m.mge", input_data="example")
    passed(tmp_path / "m.mge", "reference", want)
