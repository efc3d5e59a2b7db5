"""From an ONNX file to a `Bundle`: the graph, and the testcases that lie beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.errors import FormatError
from ..testcase import EXPECT, Bundle
from .importing import Importer
from .limits import read_limits, record_of
from .messages import ModelProto, ValueInfoProto, read_model
from .tensors import ExternalData, folding
from .testdata import find_sets, testcases

__all__ = ["load_model"]


def load_model(
    data: memoryview,
    path: str = "<bytes>",
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    test_data: str | os.PathLike[str] | None = None,
    copy: bool = False,
) -> Bundle:
    """Read an ONNX model.

    Args:
        data: the bytes of the file.
        path: where they come from; external data and folders ``NAME.test_data_set_N``, or
            ``test_data_set_N``, are looked for beside it.
        input_shapes: shapes by input name, where the file leaves sizes open or others are wanted.
        constants: values of inputs that are to be constants of the graph.
        test_data: a folder of test data sets, or one of them, instead of those beside the model.
        copy: read files of weights into memory, instead of mapping them.

    Raises:
        FormatError: the bytes are no ONNX model, or one that contradicts itself.
        UnsupportedError: nodes cannot be expressed; the text lists all of them.
        UsageError: `input_shapes` or `constants` name no input, `test_data` holds no data.
    """
    file = Path(path) if path != "<bytes>" and Path(path).is_file() else None
    try:
        model = read_model(data)
        return _bundle(model, path, file, len(data), input_shapes or {}, constants or {}, test_data, copy)
    except FormatError as e:
        e.path = e.path or path
        raise


def _is_tensor(info: ValueInfoProto) -> bool:
    return info.type is None or info.type.tensor is not None


def _bundle(
    model: ModelProto,
    path: str,
    file: Path | None,
    size: int,
    input_shapes: Mapping[str, Sequence[int]],
    constants: Mapping[str, Any],
    test_data: str | os.PathLike[str] | None,
    copy: bool,
) -> Bundle:
    assert model.graph is not None
    stored = {t.name for t in model.graph.initializers}
    names = [i.name for i in model.graph.inputs if i.name not in stored]
    outputs = {o.name: o for o in model.graph.outputs}
    sets = find_sets(file, test_data, names, list(outputs))
    examples = sets[0].inputs() if sets else {}
    # What is stored of an output that is no tensor, as a map, cannot be compared with what stands for it.
    expected = {n: v for n, v in sets[0].outputs().items() if _is_tensor(outputs[n])} if sets else {}
    # Data for another model than the one that is asked for, or data that are not tensors, say nothing about it.
    others = any(tuple(s) != examples[n].shape for n, s in input_shapes.items() if n in examples)
    if others or set(constants) & set(names) or any(n not in examples for n in names):
        sets, examples, expected = [], {}, {}
    limits = read_limits(model, [s.folder for s in sets], list(outputs))
    maxerr = {n: float(said["maxerr"]) for n, said in limits.items() if "maxerr" in said}
    budget = folding(size)
    external = ExternalData(file.parent if file else None, budget, copy=copy)
    importer = Importer(model, external, input_shapes, constants, examples, expected, maxerr, budget)
    graph = importer.graph()
    opset = next((o.version for o in model.opsets if o.domain in ("", "ai.onnx")), 1)
    graph.magic = f"ONNX opset {opset}"
    bundle = Bundle(graph, path=path, size=size, watches=tuple(external.watches))
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
        bundle.testcases = testcases(sets, {n: k for n, k in kinds.items() if n in fed})
    return bundle
