"""Options of the commands that read ONNX models: sizes that the file leaves open, inputs that become constants."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ..base.errors import InputError, SpecError, UsageError
from ..base.text import clean
from ..graph.dtypes import Array

__all__ = ["add_model_options", "model_options"]


def add_model_options(p: argparse.ArgumentParser) -> None:
    """Add the options that say how an ONNX model is read."""
    g = p.add_argument_group("ONNX models")
    g.add_argument(
        "--input-shape",
        metavar="NAME:N,N,...",
        action="append",
        help="the shape of an input where the file leaves sizes open and no data tell it, such as x:1,3,224,224; "
        "NAME: alone is a scalar",
    )
    g.add_argument(
        "--constant",
        metavar="NAME:VALUE",
        action="append",
        help="make an input a constant, such as axes:[0,2], rate:16000 or axes:axes.npy",
    )


def model_options(input_shape: Sequence[str] | None, constant: Sequence[str] | None) -> dict[str, Any]:
    """Return what the options say, as fields of `loadrun.inputs.feeds.ModelOptions`.

    Raises:
        UsageError: one is malformed, or a name comes twice.
        InputError: a file of a constant cannot be read.

    >>> model_options(["a:b:1,3", "n:"], ["rate:16000"])
    {'input_shapes': {'a:b': (1, 3), 'n': ()}, 'constants': {'rate': array(16000)}}
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in input_shape or ():
        name, colon, sizes = text.rpartition(":")
        parts = [s.strip() for s in sizes.split(",")] if sizes.strip() else []
        if not (colon and name) or not all(s.isascii() and s.isdigit() and len(s) < 10 for s in parts):
            raise UsageError(
                f"--input-shape takes NAME:N,N,..., such as x:1,3,224,224, found {clean(text)!r}"
            )
        if name in shapes:
            raise UsageError(f"--input-shape gives {clean(name)!r} two shapes")
        shapes[name] = tuple(map(int, parts))
    constants: dict[str, Array] = {}
    for text in constant or ():
        name, value = _constant(text)
        if name in constants:
            raise UsageError(f"--constant gives {clean(name)!r} two values")
        constants[name] = value
    return {"input_shapes": shapes, "constants": constants}


def _constant(text: str) -> tuple[str, Array]:
    import json  # for start-up

    from ..inputspec import ArraySource, Generated, Values, parse  # for start-up

    try:
        parts = parse(text).parts
    except SpecError as e:
        raise UsageError(f"--constant takes NAME:VALUE: {e}") from None
    part = parts[0] if len(parts) == 1 else None
    if part is None or part.name is None or isinstance(part.source, (ArraySource, Generated)):
        raise UsageError(
            f"--constant takes NAME:VALUE with numbers or a .npy file, such as axes:[0,2], found {clean(text)!r}"
        )
    if isinstance(part.source, Values):
        return part.name, np.array(json.loads(part.source.text))
    path = part.source.path
    if not os.path.exists(path) and (number := _number(path)) is not None:
        return part.name, np.array(number)
    from ..inputs.files import members, read_array  # for start-up

    if path.lower().endswith((".npz", ".json")):
        arrays = members(path)
        key = part.source.member or part.name
        if key not in arrays:
            raise InputError(f"{path} has no array {key!r}; it holds {', '.join(map(repr, arrays))}")
        return part.name, arrays[key]()
    return part.name, read_array(path, partial(_no_image, path=path))


def _number(text: str) -> int | float | bool | None:
    """Read a number or truth value written without brackets."""
    import json  # for start-up

    try:
        found = json.loads(text.strip().lower())
    except ValueError:
        return None
    return found if isinstance(found, (int, float)) else None


def _no_image(pixels: Array, path: str) -> NoReturn:
    raise InputError(f"{path} is an image; a constant is a .npy array or numbers")
