"""com.microsoft's operators, one by one, against ONNX Runtime's own kernels."""

from __future__ import annotations

import numpy as np
import pytest

import loadrun
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
