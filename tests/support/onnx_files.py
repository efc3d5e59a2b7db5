"""ONNX files with test data beside them, written with the package onnx."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

__all__ = ["batchnorm_model", "model", "write"]


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], **more: Any) -> Any:
    """A model of nodes; inputs and outputs are (name, element type, shape) or ValueInfoProtos."""

    def info(value: Any) -> Any:
        return helper.make_tensor_value_info(*value) if isinstance(value, tuple) else value

    opsets = [helper.make_opsetid("", more.pop("opset", 18)), *more.pop("opsets", ())]
    graph = helper.make_graph(list(nodes), "g", list(map(info, inputs)), list(map(info, outputs)), **more)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def write(
    folder: Path, made: Any, *sets: tuple[Sequence[Any], Sequence[Any]], name: str = "model.onnx"
) -> Path:
    """Write a model and data sets of inputs and outputs; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(made.SerializeToString())
    for i, (inputs, outputs) in enumerate(sets):
        target = folder / f"test_data_set_{i}"
        target.mkdir()
        for kind, values, infos in (
            ("input", inputs, made.graph.input),
            ("output", outputs, made.graph.output),
        ):
            for k, (value, declared) in enumerate(zip(values, infos, strict=False)):
                (target / f"{kind}_{k}.pb").write_bytes(_stored(value, declared).SerializeToString())
    return folder / name


def _stored(value: Any, info: Any) -> Any:
    if isinstance(value, TensorProto):
        return value
    if info.type.HasField("map_type"):
        return numpy_helper.from_dict(value, info.name)
    if info.type.HasField("sequence_type"):
        return numpy_helper.from_list(value, info.name)
    if info.type.HasField("optional_type"):
        return numpy_helper.from_optional(value, info.name)
    return numpy_helper.from_array(np.asarray(value), info.name)


def batchnorm_model(folder: Path) -> Path:
    """Convolution and batch normalization, which ONNX Runtime folds into one: the sums round otherwise."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((8, 3, 3, 3)),
        "scale": rng.uniform(0.5, 2, 8),
        "shift": rng.standard_normal(8),
        "mean": rng.standard_normal(8),
        "variance": rng.uniform(0.5, 2, 8),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "/conv", pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["y"], "/norm"),
    ]
    kind = TensorProto.FLOAT
    stored = [numpy_helper.from_array(v.astype("f4"), k) for k, v in weights.items()]
    made = model(nodes, [("x", kind, [1, 3, 16, 16])], [("y", kind, None)], initializer=stored, opset=17)
    return write(folder, made)
