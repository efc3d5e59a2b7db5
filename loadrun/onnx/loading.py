"""From an ONNX file to a `Bundle`: the graph, and the testcases that lie beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FormatError
from ..testcase import Bundle
from . import lowering  # noqa: F401
from .importing import Importer
from .messages import looks_like, read_model
from .tensors import External

__all__ = ["is_onnx", "load_model"]


def is_onnx(data: memoryview, path: str = "") -> bool:
    """Whether some bytes are to be read as an ONNX model."""
    return path.lower().endswith(".onnx") or looks_like(data)


def load_model(
    data: memoryview,
    path: str = "<bytes>",
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Bundle:
    """Read an ONNX model.

    Args:
        data: the bytes of the file.
        path: where they come from; external data are looked for beside it.
        input_shapes: shapes by input name, where the file leaves sizes open or others are wanted.
        constants: values of inputs that are to be constants of the graph.

    Raises:
        FormatError: the bytes are no ONNX model, or one that contradicts itself.
        UnsupportedError: nodes cannot be expressed; the text lists all of them.
    """
    folder = Path(path).parent if path != "<bytes>" and Path(path).is_file() else None
    try:
        model = read_model(data)
        importer = Importer(model, External(folder), input_shapes or {}, constants or {})
        graph = importer.graph()
    except FormatError as e:
        e.path = path
        raise
    bundle = Bundle(graph, path=path, size=len(data))
    bundle.warnings += list(importer.notes)
    return bundle
