"""Rare operators, written as what their formulas are recorded as, with the outputs that MegEngine recorded."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest

from loadrun import Bundle
from loadrun.graph import Graph, StoredTensor, params as P
from loadrun.onnx import export
from loadrun.onnx.exported import available, of_written
from loadrun.onnx.truth import new_session, runtime
from tests.support.fixture_files import FIXTURES
from tests.support.vision_cases import FAMILIES, Case

pytestmark = pytest.mark.skipif(not available(), reason="needs onnx and onnxruntime")
TYPES = ("Rotate", "CvtColor", "GaussianBlur", "DctChannelSelectV1")


RECORDED = dict(np.load(FIXTURES / "ops" / "image" / "recorded.npz"))
CASES = [c for c in FAMILIES["image"]() if c.type in TYPES and c.name in RECORDED]
# Of each operator every third case.
SAMPLE = [case for _, group in groupby(CASES, lambda c: c.type) for case in [*group][::3]]


@pytest.mark.parametrize("case", SAMPLE, ids=lambda c: c.name)
def test_recorded_outputs(case: Case) -> None:
    graph, (dtype, image) = Graph(), case.inputs[0]
    tensors = [StoredTensor(dtype, image.shape, "x")]
    inputs = graph.add("Host2DeviceCopy", P.Host2DeviceCopy(), names=["x"], tensors=tensors)
    inputs += [v for o in case.graph().oprs if o.type == "ImmutableTensor" for v in o.outputs]
    graph.oprs += [v.owner for v in inputs[1:]]
    for number, opr in enumerate(graph.oprs):
        opr.id = number
        for var in opr.outputs:
            var.id = number
    graph.outputs = graph.add(
        case.type, case.param, inputs=inputs, names=["y"], output_dtype=case.output_dtype
    )
    made = export(Bundle(graph), {"x": image})
    got = of_written(made.written, runtime("", session=lambda: new_session(made.data)))({"x": image})["y"]
    want = RECORDED[case.name]
    assert got.shape == want.shape
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    else:
        assert np.abs(got.astype(int) - want.astype(int)).max(initial=0) <= (
            case.type == "DctChannelSelectV1"
        )
