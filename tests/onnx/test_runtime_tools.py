"""What ONNX Runtime's own tools write, optimized and quantized models, is read and gives their numbers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.onnx import export
from tests.support.cases import slow_but

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
quantization = pytest.importorskip("onnxruntime.quantization", reason="onnxruntime lacks its quantizer")

NETS = Path(__file__).resolve().parent.parent.parent / "fixtures" / "nets"
FLOAT = ["gpt", "mobilenet_v2", "lstm_2_both"]
# Of "mlp" the quantizer itself makes no model of QLinear operators.
QUANTIZED = [
    *(("mlp", how) for how in ("QDQ", "dynamic")),
    *(("mobilenet_v2", how) for how in ("QDQ", "QOperator", "dynamic")),
]
QUANTA = 4
"""By how many steps of the output's scale a quantized net may be off: halves round by how a runtime adds."""


class Once(quantization.CalibrationDataReader):  # type: ignore[misc]
    """One set of inputs to calibrate with."""

    def __init__(self, feeds: dict[str, np.ndarray]) -> None:
        self.sets: Iterator[dict[str, np.ndarray]] = iter([feeds])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.sets, None)


def written(name: str, folder: Path) -> tuple[str, dict[str, np.ndarray]]:
    """A network as ONNX, and inputs of the type that it declares."""
    path = folder / f"{name}.onnx"
    made = export(NETS / f"{name}.mge")
    made.save(path)
    case = loadrun.load(NETS / f"{name}.mge").testcases[0]
    types = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64}
    feeds = {i.name: case.inputs[i.name].astype(types[i.type]) for i in session(path).get_inputs()}
    return str(path), feeds


def session(path: str | Path, *, optimized: str = "", level: str = "ORT_DISABLE_ALL") -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    if optimized:
        options.optimized_model_filepath = optimized
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def pairs(path: str, feeds: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Outputs of ONNX Runtime and of loadrun."""
    run = session(path)
    want = run.run(None, feeds)
    bundle = loadrun.load(path, input_shapes={n: v.shape for n, v in feeds.items()})
    (got,) = loadrun.run(bundle, {v.name or "": feeds[v.name or ""] for v in bundle.inputs})
    assert got.message is None
    for output, value in zip(run.get_outputs(), want, strict=True):
        yield output.name, value, np.asarray(got[output.name])


@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"])
@pytest.mark.parametrize("name", slow_but(FLOAT[:1], FLOAT))
def test_optimized(name: str, level: str, tmp_path: Path) -> None:
    path, feeds = written(name, tmp_path)
    better = str(tmp_path / "better.onnx")
    session(path, optimized=better, level=level)
    for _, want, got in pairs(better, feeds):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_layout_of_one_processor_is_refused_by_name(tmp_path: Path) -> None:
    path, _ = written("mobilenet_v2", tmp_path)
    blocked = str(tmp_path / "blocked.onnx")
    session(path, optimized=blocked, level="ORT_ENABLE_ALL")
    domains = {n.domain for n in onnx.load(blocked).graph.node}
    if "com.microsoft.nchwc" not in domains:
        pytest.skip("ONNX Runtime has no blocked layout on this processor")
    with pytest.raises(loadrun.UnsupportedError, match="save the model with ORT_ENABLE_EXTENDED"):
        loadrun.load(blocked)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "how"), QUANTIZED)
def test_quantized(name: str, how: str, tmp_path: Path) -> None:
    path, feeds = written(name, tmp_path)
    smaller = str(tmp_path / "smaller.onnx")
    logging.disable(logging.WARNING)
    try:
        if how == "dynamic":
            quantization.quantize_dynamic(path, smaller, weight_type=quantization.QuantType.QUInt8)
        else:
            quantization.quantize_static(
                path,
                smaller,
                Once(feeds),
                quant_format=quantization.QuantFormat[how],
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                reduce_range=True,
                per_channel=how == "QDQ",
            )
    finally:
        logging.disable(logging.NOTSET)
    assert any("Quant" in n.op_type or "Integer" in n.op_type for n in onnx.load(smaller).graph.node)
    steps = scales(smaller)
    for output, want, got in pairs(smaller, feeds):
        atol = QUANTA * steps.get(output, 0.0) + 1e-4 * np.abs(want).max()
        np.testing.assert_allclose(got, want, rtol=0, atol=atol)


def scales(path: str) -> dict[str, float]:
    """The scale of every output that is dequantized last."""
    graph = onnx.load(path).graph
    held = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    return {
        n.output[0]: float(held[n.input[1]].max())
        for n in graph.node
        if n.op_type == "DequantizeLinear" and n.input[1] in held
    }
