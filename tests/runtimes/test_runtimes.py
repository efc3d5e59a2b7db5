"""ONNX Runtime, OpenVINO and PyTorch: what files recorded, how they compute, and what is said without them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UsageError
from loadrun.engines import check_argument, make_engine
from loadrun.testing import GraphBuilder

RUNTIMES = {"onnxruntime": "CPUExecutionProvider", "openvino": "CPU"}
NAMES = (
    *("bert", "detector_ssd", "gpt", "layout_quant_default", "lstm_2_both", "mlp", "mobilenet_v1"),
    *("quant_resnet_minmax", "resnet_bottleneck", "rnn_2_both", "super_resolution_bicubic", "unet"),
)
OPERATORS = (
    *("elemwise/abs_float16", "sort/argsort_float32_ascending", "attention/attention_padding_mask"),
    *("norm/lrn_3", "pooling/avg_3x3", "reduce/mean_float32", "index/one_hot"),
)


@pytest.fixture(params=list(RUNTIMES))
def name(request: pytest.FixtureRequest) -> str:
    found = str(request.param)
    spec = find_spec(found)
    if spec is None or spec.origin is None:
        pytest.skip(f"{found} is not installed")
    return found


def test_files_hold(name: str, fixtures: Path) -> None:
    files = [fixtures / "nets" / f"{n}.mge" for n in NAMES]
    files += [p for n in OPERATORS if (p := fixtures / "ops" / f"{n}.mge").exists()]
    bad = []
    for file in files:
        for result in loadrun.Runner(file, name).replay():
            if result.verdict.value != "pass":
                bad.append((file.name, result.index, result.message, [o.error for o in result.outputs]))
    assert not bad


def test_values_by_hand(name: str) -> None:
    g = GraphBuilder()
    x = g.input("x", 2, 2)
    w = g.const(np.array([[1, 2], [3, 4]], "f4"), type="SharedDeviceTensor")
    product = g.add("MatrixMulV2", *_params("MatrixMul"), inputs=[x, w])
    graph = g.done(g.elemwise("RELU", product, name="y"))
    (y,) = make_engine(name, graph, graph.outputs).run({"x": np.array([[1, 1], [-1, 0.5]], "f4")})
    assert y.tolist() == [[4, 6], [0.5, 0]]


def _params(name: str) -> list[object]:
    from loadrun.graph import params

    return [getattr(params, name)()]


def test_what_ran_is_said(name: str, fixtures: Path) -> None:
    runner = loadrun.Runner(fixtures / "nets" / "mlp.mge", name)
    result = runner.replay_one(0)
    about = result.engine
    assert about is not None
    assert (about.engine, about.provider, about.arithmetic) == (name, RUNTIMES[name], "float32")
    assert about.version[0].isdigit()


def test_a_file_that_cannot_be_translated(name: str, fixtures: Path) -> None:
    file = fixtures / "ops" / "linalg" / "svd_reduced_3x5_rebuilt.mge"
    result = loadrun.Runner(file, name).replay_one(0)
    assert result.verdict.value == "error"
    assert result.message == (
        f"{name} cannot run SVD (operator 2): ONNX has no singular value decomposition; "
        "run the model on the reference engine or MegEngine"
    )


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("nets/keypoints_deformable.mge", "No conversion rule found for operations: DeformConv"),
        ("ops/rnn/rnn_identity_1.mge", "Unknown activation function: affine"),
    ],
)
def test_openvino_says_what_it_lacks(file: str, why: str, fixtures: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    result = loadrun.Runner(fixtures / file, "openvino").replay_one(0)
    assert result.verdict.value == "error"
    assert str(result.message).startswith(f"openvino rejects the translated model: {why}")


def test_float32_is_not_less(name: str) -> None:
    """Sums of 256 products of 24-bit numbers; bfloat16 has 8 bits and TensorFloat-32 eleven."""
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, (64, 256)).astype("f4") for _ in range(2))
    g = GraphBuilder()
    x = g.input("x", 64, 256)
    w = g.const(np.ascontiguousarray(b.T), type="SharedDeviceTensor")
    graph = g.done(g.add("MatrixMulV2", *_params("MatrixMul"), inputs=[x, w]))
    (y,) = make_engine(name, graph, graph.outputs).run({"x": a})
    assert np.abs(y - a.astype("f8") @ b.T.astype("f8")).max() < 2e-5


def test_openvino_in_less_than_float32_says_so() -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    g = GraphBuilder()
    x = g.input("x", 2)
    graph = g.done(g.elemwise("ADD", x, x))
    assert make_engine("openvino:bf16", graph, graph.outputs).about.arithmetic == "bfloat16"
    with pytest.raises(UsageError, match="f32, bf16, f16, found 'f64'; it computes on the CPU"):
        make_engine("openvino:f64", graph, graph.outputs)


def test_providers_of_onnxruntime() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    g = GraphBuilder()
    x = g.input("x", 2)
    graph = g.done(g.elemwise("ADD", x, x))
    for spec in ("onnxruntime:cpu", "onnxruntime:CPUExecutionProvider"):
        assert make_engine(spec, graph, graph.outputs).about.provider == "CPUExecutionProvider"
    with pytest.raises(UsageError, match=r"no execution provider 'Nonsense'; it has .*CPUExecutionProvider"):
        make_engine("onnxruntime:Nonsense", graph, graph.outputs)


def test_a_provider_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    # The runtime itself computes on the CPU then.
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    missing = next(
        p for p in ("CUDA", "ROCM") if f"{p}ExecutionProvider" not in runtime.get_available_providers()
    )
    monkeypatch.setattr(runtime, "get_available_providers", lambda: [f"{missing}ExecutionProvider"])
    with pytest.raises(UsageError, match=f"cannot start {missing}ExecutionProvider on this machine"):
        check_argument(f"onnxruntime:{missing}")


@pytest.mark.parametrize("package", list(RUNTIMES))
def test_without_the_package(package: str, monkeypatch: pytest.MonkeyPatch, fixtures: Path) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    runner = loadrun.Runner(fixtures / "nets" / "mlp.mge", package)
    with pytest.raises(
        UsageError, match=rf"^the engine {package} needs .*: pip install '/path/to/loadrun\[{package}\]'"
    ):
        runner.replay_one(0)
