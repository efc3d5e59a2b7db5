"""Shapes that a call of an operator's definition would tell, where it makes far more than it is given."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.verify.describe import describe

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

MICROSOFT, PREVIEW, ML = "com.microsoft", "ai.onnx.preview", "ai.onnx.ml"
CASES: dict[str, tuple[int, str, list[tuple[int, ...]], dict[str, Any], list[Any]]] = {
    "Upsample": (7, "", [(1, 1, 4, 4)], {"scales": [1.0, 1.0, 5e3, 5e3]}, []),
    "CropAndResize": (
        17,
        MICROSOFT,
        [(1, 1, 4, 4)],
        {},
        [np.float32([[0, 0, 1, 1]]), np.int32([0]), np.int32([20000, 20000])],
    ),
    "CDist": (17, MICROSOFT, [(500000, 1), (500000, 1)], {}, []),
    "ComplexMul": (17, MICROSOFT, [(200000, 1, 2), (1, 200000, 2)], {}, []),
    "FlexAttention": (17, PREVIEW, [(1, 1, 200000, 1)] * 3, {}, []),
    "ArrayFeatureExtractor": (17, ML, [(500000, 1)], {}, [np.zeros(500000, np.int64)]),
}
"""Opset, domain, shapes of inputs, attributes, and the inputs behind, which are constants."""


@pytest.mark.parametrize("name", CASES)
def test_what_tells_a_shape_is_bounded(name: str, tmp_path: Path) -> None:
    opset, domain, shapes, attributes, constants = CASES[name]
    inputs = [helper.make_tensor_value_info(f"x{i}", 1, shape) for i, shape in enumerate(shapes)]
    stored = [numpy_helper.from_array(array, f"c{i}") for i, array in enumerate(constants)]
    names = [v.name for v in (*inputs, *stored)]
    node = helper.make_node(name, names, ["y"], domain=domain, **attributes)
    outputs = [helper.make_tensor_value_info("y", 1, None)]
    sets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    graph = helper.make_graph([node], "g", inputs, outputs, stored)
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), tmp_path / "m.onnx")
    tracemalloc.start()
    try:
        described = describe(loadrun.load(tmp_path / "m.onnx"))
        assert [v.name for v in described.model.outputs] == ["y"]
        assert tracemalloc.get_traced_memory()[1] < 300_000_000
    finally:
        tracemalloc.stop()
