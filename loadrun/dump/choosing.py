"""One dump of a file that may hold several."""

import os
from typing import Any

from ..base.errors import UsageError
from ..base.files import one_file
from ..base.proving import alone
from ..base.registry import resolve
from ..testcase import Bundle
from .container import load_all
from .store import save


def save_as(bundle: Bundle, target: str | os.PathLike[str]) -> None:
    """Write a bundle that fails in the format that the ending names: an ONNX model with its data sets, or a dump.

    Raises:
        LoadRunError: it cannot be written so.
    """
    with alone():
        if os.fspath(target).lower().endswith(".onnx"):
            resolve("loadrun.onnx.exporting:export")(bundle, f=target)
        else:
            save(bundle, target)


def load_dump(name: str | os.PathLike[str], number: int | None = None, **read: Any) -> Bundle:
    """Load one dump of a file.

    Args:
        name: the file, or a pattern or folder that stands for one.
        number: which dump, from 1; None for the only one.
        read: options of `loadrun.load` for an ONNX model: input_shapes, constants, test_data.

    Raises:
        UsageError: the file holds several and none is chosen, or it holds fewer.
    """
    path = one_file(os.fspath(name))
    dumps = load_all(path, **read)
    if number is None and len(dumps) > 1:
        raise UsageError(f"{path} holds {len(dumps)} dumps; choose one with --dump N, counted from 1")
    if number is not None and not 1 <= number <= len(dumps):
        raise UsageError(f"{path} holds dumps 1 to {len(dumps)}, found --dump {number}")
    return dumps[(number or 1) - 1]
