"""Inputs and outputs keep the order of the function or file in every file that is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.onnx
from loadrun.cli import main
from loadrun.onnx.exported import available, prove_export
from loadrun.proof import ProofError
from loadrun.tracing import trace
from loadrun.verify.pack.capture import capture, embed

X, A = np.array([3.0, 5.0], np.float32), np.array([1.0, 1.0], np.float32)
WANT = [1.0, 3.0]
"""x - 2a; with the inputs changed around it is [-5, -9]."""


def apart(x: Any, a: Any) -> Any:
    """Names in another order than that of the alphabet, of the outputs as well."""
    return {"low": x - 2 * a, "high": x + a}


def names(path: Path | bytes) -> tuple[list[str | None], list[str]]:
    bundle = loadrun.load(path)
    return [v.name for v in bundle.inputs], list(bundle.outputs)


def test_a_dump_says_it_in_its_record(tmp_path: Path) -> None:
    traced = trace(apart, capture_as_const=True)
    traced(loadrun.tensor(X), loadrun.tensor(A))
    traced.dump(tmp_path / "m.mge", arg_names=["x", "a"])
    assert names(tmp_path / "m.mge") == (["x", "a"], ["low", "high"])
    # MegEngine's own order is that of the names; its testcases stand in it.
    assert [v.name for v in loadrun.load(tmp_path / "m.mge").graph.inputs] == ["a", "x"]
    traced.dump(tmp_path / "case.mge", arg_names=["x", "a"], input_data=["x:[3,5];a:[1,1]"])
    assert names(tmp_path / "case.mge") == (["x", "a"], ["low", "high"])
    assert loadrun.run(tmp_path / "case.mge")[0].verdict.value == "pass"


def test_from_onnx_through_dumps_and_back(tmp_path: Path) -> None:
    one, two, three = (tmp_path / n for n in ("one.onnx", "two.mge", "three.onnx"))
    loadrun.onnx.export(apart, (X, A), one, input_names=["x", "a"])
    assert names(one) == (["x", "a"], ["low", "high"])
    assert main(["pack", str(one), "-d", "x:[3,5];a:[1,1]", "-o", str(two), "-q"]) == 0
    assert names(two) == (["x", "a"], ["low", "high"])
    assert main(["convert", str(two), str(three), "-q"]) == 0
    assert names(three) == (["x", "a"], ["low", "high"])
    (case,) = loadrun.load(three).testcases
    np.testing.assert_array_equal(case.arrays["x"], X)
    assert main(["convert", str(three), str(two)]) == 0
    assert names(two) == (["x", "a"], ["low", "high"])


def test_without_a_record_it_is_that_of_the_names(tmp_path: Path) -> None:
    loadrun.onnx.export(apart, (X, A), tmp_path / "m.onnx", input_names=["x", "a"])
    out = str(tmp_path / "m.mge")
    assert (
        main(["pack", str(tmp_path / "m.onnx"), "-d", "x:[3,5];a:[1,1]", "-o", out, "-q", "--no-record"]) == 0
    )
    assert names(tmp_path / "m.mge")[0] == ["a", "x"]


def test_outputs_without_a_check_stay_in_their_place() -> None:
    def function(x: Any) -> Any:
        return {"none": x[:0], "some": x + 1}

    traced = trace(function, capture_as_const=True)
    traced(loadrun.tensor(X))
    model = traced.graph(["x"])
    with pytest.warns(UserWarning, match="output 'none' has no elements"):
        bundle = embed(model, [capture(model, {"x": X})])
    assert [c.name for c in bundle.checks] == ["some"]
    assert list(bundle.outputs) == ["none", "some"]


def test_torch_modules_by_position(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="modules of torch are traced")

    class Module(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, a: Any) -> Any:
            return x - 2 * a

    import loadrun.torch

    traced = loadrun.torch.trace(Module(), (torch.tensor(X), torch.tensor(A)))
    traced.dump(tmp_path / "m.mge", input_data=["x:[3,5];a:[1,1]"])
    for source in (traced, traced.bundle, tmp_path / "m.mge"):
        data = loadrun.onnx.export(source, input_names=["first", "second"]).data
        bundle = loadrun.load(data)
        assert [v.name for v in bundle.inputs] == ["first", "second"]
        np.testing.assert_array_equal(loadrun.run(bundle, {"first": X, "second": A})[0]["output"], WANT)


@pytest.mark.skipif(not available(), reason="needs onnx and onnxruntime")
def test_verify_takes_inputs_by_position() -> None:
    onnx = pytest.importorskip("onnx")
    made = loadrun.onnx.export(apart, (X, A), input_names=["first", "second"], verify=True)
    model = onnx.load_from_string(made.data)
    turned = list(model.graph.input)[::-1]
    del model.graph.input[:]
    model.graph.input.extend(turned)
    with pytest.raises(ProofError, match=r"inputs of the ONNX model are \['second', 'first'\]"):
        prove_export(made.source, made.written, model.SerializeToString())
