"""Models of one node."""

from __future__ import annotations

import pytest

from tests.onnx.contrib_cases import Case

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

__all__ = ["proto"]


def proto(case: Case) -> bytes:
    names, inputs, stored = [], [], []
    for i, value in enumerate(case.inputs):
        names.append("" if value is None else f"i{i}")
        if value is None:
            continue
        if i in case.stored:
            stored.append(onnx.numpy_helper.from_array(value, f"i{i}"))
        else:
            kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
            inputs.append(onnx.helper.make_tensor_value_info(f"i{i}", kind, value.shape))
    outputs = [f"o{i}" if i in case.outputs else "" for i in range(max(case.outputs) + 1)]
    node = onnx.helper.make_node(case.op, names, outputs, domain=case.domain, **case.attributes)
    ends = [onnx.ValueInfoProto(name=n) for n in outputs if n]
    graph = onnx.helper.make_graph([node], "g", inputs, ends, stored)
    opsets = [onnx.helper.make_opsetid("", case.opset), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
