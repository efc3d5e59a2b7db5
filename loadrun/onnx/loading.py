"""From an ONNX file to a `Bundle`: the graph, and the testcases that lie beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.errors import FormatError
from ..testcase import Bundle
from .messages import read_model
from .specialized import OnnxModel

__all__ = ["load_model"]


def load_model(
    data: memoryview,
    path: str = "<bytes>",
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    test_data: str | os.PathLike[str] | None = None,
    copy: bool = False,
    native: bool = False,
) -> Bundle:
    """Read an ONNX model.

    Args:
        data: the bytes of the file.
        path: where they come from; external data and folders ``NAME.test_data_set_N``, or ``test_data_set_N``, are
            looked for beside it.
        input_shapes: shapes by input name, for `Bundle.graph` and for data that are made up: where the file leaves
            sizes open, or others are wanted. Data bring their own: a graph is made for each set of sizes that is fed.
        constants: values of inputs that are to be constants of the graph.
        test_data: a folder of test data sets, or one of them, instead of those beside the model.
        copy: read files of weights into memory, instead of mapping them.
        native: whether a runtime is to run the file as it is: of a model that cannot be expressed the bundle has
            inputs, testcases and the reason.

    Raises:
        FormatError: the bytes are no ONNX model, or one that contradicts itself.
        UnsupportedError: nodes cannot be expressed; the text lists all of them. Not where `native` is true.
        UsageError: `input_shapes` or `constants` name no input, `test_data` holds no data.
    """
    file = Path(path) if path != "<bytes>" and Path(path).is_file() else None
    try:
        model = OnnxModel(
            read_model(data),
            path,
            file,
            data,
            input_shapes or {},
            constants or {},
            test_data,
            copy=copy,
            native=native,
        )
        return model.first()
    except FormatError as e:
        e.path = e.path or path
        raise
