"""From an ONNX file to a `Bundle`: the graph, and the testcases that lie beside it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from ..base.errors import EngineError, FormatError
from ..graph import Graph, StoredTensor
from ..graph.dtypes import Array, DType
from ..graph.params import Host2DeviceCopy
from ..testcase import EXPECT, Bundle, FileValue, NamedRuntime
from .file import OnnxFile, declared, file_dtype
from .importing import Importer
from .limits import read_limits, record_of
from .messages import ModelProto, read_model
from .tensors import ExternalData
from .testdata import DataSet, find_sets, testcases

__all__ = ["load_model"]


def load_model(
    data: memoryview,
    path: str = "<bytes>",
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    test_data: str | os.PathLike[str] | None = None,
    native: bool = False,
) -> Bundle:
    """Read an ONNX model.

    Args:
        data: the bytes of the file.
        path: where they come from; external data and folders ``test_data_set_N`` are looked for beside it.
        input_shapes: shapes by input name, where the file leaves sizes open or others are wanted.
        constants: values of inputs that are to be constants of the graph.
        test_data: a folder of test data sets, or one of them, instead of those beside the model.
        native: whether a runtime is to run the file as it is: of a model that cannot be expressed the bundle has
            inputs, testcases and the reason.

    Raises:
        FormatError: the bytes are no ONNX model, or one that contradicts itself.
        UnsupportedError: nodes cannot be expressed; the text lists all of them. Not where `native` is true.
        UsageError: `input_shapes` or `constants` name no input, `test_data` holds no data.
    """
    file = Path(path) if path != "<bytes>" and Path(path).is_file() else None
    try:
        model = read_model(data)
        bundle, maxerr = _bundle(model, path, file, input_shapes or {}, constants or {}, test_data, native)
        location = str(file) if file is not None else bytes(data)
        bundle.source = OnnxFile.of(model, location, bundle.graph, constants or {}, maxerr)
        bundle.size = len(data)
        return bundle
    except FormatError as e:
        e.path = e.path or path
        raise


def _witness(path: str, constants: Mapping[str, Any]) -> NamedRuntime | None:
    """ONNX Runtime on the file as it is, where it is installed."""
    from .truth import runtime, runtime_name  # for start-up

    name = runtime_name()
    return None if name is None else (name, runtime(path, constants))


def _is_number(value: FileValue) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray) and value.dtype != object


def _bundle(
    model: ModelProto,
    path: str,
    file: Path | None,
    input_shapes: Mapping[str, Sequence[int]],
    constants: Mapping[str, Any],
    test_data: str | os.PathLike[str] | None,
    native: bool,
) -> tuple[Bundle, dict[str, float]]:
    """What was read, and the tolerances of outputs whose checks are not by ONNX's own rule."""
    assert model.graph is not None
    stored = {t.name for t in model.graph.initializers}
    names = [i.name for i in model.graph.inputs if i.name not in stored]
    outputs = {o.name: o for o in model.graph.outputs}
    types = {**declared(model.graph.inputs), **declared(model.graph.outputs)}
    sets = find_sets(file, test_data, names, list(outputs))
    # What is stored of an output that is no tensor, as a map, cannot be compared with what stands for it.
    held = {n: v for n, v in sets[0].own(types).items() if _is_number(v)} if sets else {}
    examples = {n: v for n, v in held.items() if not n.endswith(EXPECT)}
    expected = {n.removesuffix(EXPECT): v for n, v in held.items() if n.endswith(EXPECT)}
    # Data for another model than the one that is asked for, or data that are not tensors, say nothing about it.
    others = any(tuple(s) != examples[n].shape for n, s in input_shapes.items() if n in examples)
    others = others or bool(set(constants) & set(names))
    whole = [] if others else sets
    if others or any(n not in examples for n in names):
        sets, examples, expected = [], {}, {}
    limits = read_limits(model, [s.folder for s in whole], list(outputs))
    maxerr = {n: float(said["maxerr"]) for n, said in limits.items() if "maxerr" in said}
    external = ExternalData(file.parent if file else None)
    importer = Importer(model, external, input_shapes, constants, examples, expected, maxerr)
    try:
        graph = importer.graph()
    except EngineError as e:
        if not native:
            raise
        bundle = _unread(model, path, " ".join(str(e).split()), input_shapes, constants, whole, stored)
        bundle.record = record_of(limits)
        return bundle, maxerr
    opset = next((o.version for o in model.opsets if o.domain in ("", "ai.onnx")), 1)
    graph.magic = f"ONNX opset {opset}"
    bundle = Bundle(graph, path=path, witness=partial(_witness, path, constants))
    bundle.scalars = frozenset(
        [n for n, d in importer.inputs.items() if not d.shape]
        + [n for n, v in importer.outputs.items() if not v.rank]
    )
    bundle.warnings += list(importer.notes)
    bundle.record = record_of(limits)
    kinds = {n: d.kind for n, d in importer.inputs.items()}
    kinds.update((n + EXPECT, importer.outputs[n].kind) for n in expected)
    fed = {v.name for v in graph.inputs}
    if sets:
        kinds = {n: k for n, k in kinds.items() if n in fed}
        bundle.testcases = testcases(sets, kinds, types, native=native)
    elif native and whole:
        bundle.testcases = testcases(whole, {}, types, native=True)
    return bundle, maxerr


def _unread(
    model: ModelProto,
    path: str,
    why: str,
    input_shapes: Mapping[str, Sequence[int]],
    constants: Mapping[str, Any],
    sets: Sequence[DataSet],
    stored: Collection[str],
) -> Bundle:
    """A model that cannot be expressed: its inputs, of the types that the file declares, and its data."""
    assert model.graph is not None
    graph = Graph(magic="ONNX")
    scalars = set()
    for info in model.graph.inputs:
        dtype = file_dtype(info.type)
        tensor = info.type.tensor if info.type is not None else None
        text = dtype == DType("String")
        if info.name in constants or info.name in stored or tensor is None or dtype is None or text:
            continue
        shape = input_shapes.get(info.name)
        if shape is None and tensor.shape is not None:
            shape = [1 if d.value is None or d.value < 0 else d.value for d in tensor.shape.dims]
        if shape is not None and not len(shape):
            scalars.add(info.name)
        held = None if shape is None else tuple(shape) or (1,)
        graph.add(
            "Host2DeviceCopy",
            Host2DeviceCopy(),
            names=[info.name],
            tensors=[StoredTensor(dtype, held, info.name)],
        )
    types = {**declared(model.graph.inputs), **declared(model.graph.outputs)}
    bundle = Bundle(graph, path=path, scalars=frozenset(scalars), refusal=why)
    bundle.warnings.append(f"not run by the reference engine: {why}")
    bundle.testcases = testcases(sets, {}, types, native=True) if sets else ()
    return bundle
