"""com.microsoft's operators, one by one, against ONNX Runtime's own kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from tests.onnx.contrib_cases import CASES

pytest.importorskip("onnx", reason="onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str) -> None:
    case = CASES[name]
    from tests.onnx.contrib_models import proto  # needs onnx

    data = proto(case)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    # On several threads it quantizes the states of an LSTM in parts.
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    feeds = {f"i{i}": v for i, v in enumerate(case.inputs) if v is not None and i not in case.stored}
    outputs = [o.name for o in session.get_outputs()]
    expected = session.run(outputs, feeds)
    bundle = loadrun.load(data)
    given = {v.name for v in bundle.inputs}
    (result,) = loadrun.run(bundle, {n: v for n, v in feeds.items() if n in given})
    assert result.message is None
    for output, want in zip(outputs, expected, strict=True):
        got = np.asarray(result[output])
        if not want.size and output != "o0":
            continue
        assert got.shape == want.shape
        if want.dtype.kind in "iub":
            assert np.abs(got.astype(np.int64) - want.astype(np.int64)).max() <= case.quanta
        else:
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=case.atol)


def test_a_cache_whose_length_data_decide_is_packed_for_one_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnx  # optional

    from tests.onnx.contrib_models import proto  # needs onnx

    case = CASES["group_short"]
    model = onnx.load_model_from_string(proto(case))
    for info in model.graph.input:
        for i, size in enumerate(info.type.tensor_type.shape.dim):
            size.dim_param = f"{info.name}_{i}"
    feeds = {f"i{i}": v for i, v in enumerate(case.inputs) if v is not None}
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    onnx.save(model, tmp_path / "m.onnx")
    values = {"input": feeds.values(), "output": session.run(None, feeds)}
    for kind, arrays in values.items():
        for i, v in enumerate(arrays):
            onnx.save_tensor(onnx.numpy_helper.from_array(v), folder / f"{kind}_{i}.pb")
    out = ["-o", str(tmp_path / "m.mge"), "-q"]
    assert main(["pack", str(tmp_path / "m.onnx"), *out]) == 2
    assert "constants={'i6': ...} (--constant)" in capsys.readouterr().err
