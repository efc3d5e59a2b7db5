"""Options of the commands that read models: engines, open sizes and constants of ONNX models, profiles."""

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ..base.errors import InputError, SpecError, UsageError, clean
from ..base.registry import late
from ..engines import check_engine, split_engines
from ..graph.dtypes import Array
from ..inputs.feeds import ModelOptions
from ..passes.options import LAYOUTS, OPTIMIZATIONS
from ..replay.options import ReplayOptions, RunOptions
from .fields import add_options, documented
from .groups import Parser, integer, tolerance

with late(__name__):
    import json

    from .. import inputspec
    from ..inputs import files


def add_model_options(p: argparse.ArgumentParser) -> None:
    """Add the options that say how an ONNX model is read."""
    add_options(p.add_argument_group("ONNX models"), ModelOptions, "input_shapes", "constants")


def model_options(input_shape: Sequence[str] | None, constant: Sequence[str] | None) -> dict[str, Any]:
    """Return the options as fields of `loadrun.inputs.feeds.ModelOptions`.

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
            raise UsageError(f"--input-shape is given twice for {clean(name)!r}")
        shapes[name] = tuple(map(int, parts))
    constants: dict[str, Array] = {}
    for text in constant or ():
        name, value = _constant(text)
        if name in constants:
            raise UsageError(f"--constant is given twice for {clean(name)!r}")
        constants[name] = value
    return {"input_shapes": shapes, "constants": constants}


def _constant(text: str) -> tuple[str, Array]:
    try:
        parts = inputspec.parse(text).parts
    except SpecError as e:
        raise UsageError(f"--constant takes NAME:VALUE: {e}") from None
    part = parts[0] if len(parts) == 1 else None
    if (
        part is None
        or part.name is None
        or isinstance(part.source, (inputspec.ArraySource, inputspec.Generated))
    ):
        raise UsageError(
            f"--constant takes NAME:VALUE, the value as numbers or a .npy file, such as axes:[0,2]; "
            f"found {clean(text)!r}"
        )
    if isinstance(part.source, inputspec.Values):
        return part.name, np.array(json.loads(part.source.text))
    path = part.source.path
    if not os.path.exists(path) and (number := _number(path)) is not None:
        return part.name, np.array(number)

    if part.source.is_archive:
        arrays = files.members(path)
        key = part.source.member or part.name
        if key not in arrays:
            raise InputError(f"{path} has no array {key!r}, only {', '.join(map(repr, arrays))}")
        return part.name, arrays[key]()
    return part.name, files.read_array(path, partial(_no_image, path=path))


def _number(text: str) -> int | float | bool | None:
    """Read a number or truth value written without brackets."""
    try:
        value = json.loads(text.strip().lower())
    except ValueError:
        return None
    return value if isinstance(value, (int, float)) else None


def _no_image(pixels: Array, path: str) -> NoReturn:
    raise InputError(f"{path} is an image; a constant must be a .npy array or numbers")


def add_engine_option(
    p: argparse.ArgumentParser, *, several: bool = False, default: str | None = "reference"
) -> None:
    """Add ``--engine``.

    Args:
        several: the option takes several names, see `all_chosen`.
        default: the engine where none is named.
    """
    g = p.add_argument_group("engine")
    text = documented(ReplayOptions)["engines"].split(". ")[0]
    if several:
        text += "; several (separated by commas, or the option repeated) are compared"
        g.add_argument("--engine", metavar="NAME[,NAME...]", type=engine_list, action="append", help=text)
    else:
        g.add_argument("--engine", metavar="NAME", type=engine, default=default, help=text)


def all_chosen(options: Sequence[Sequence[str]] | None) -> tuple[str, ...]:
    """Return the selected engines, in order.

    Args:
        options: the names, one sequence for each ``--engine``.

    Raises:
        UsageError: an engine is named twice.
    """
    specs = [name for names in options or [["reference"]] for name in names]
    doubled = sorted({n for n in specs if specs.count(n) > 1})
    if doubled:
        raise UsageError(f"the engine {doubled[0]} is named twice; a comparison needs different engines")
    return tuple(specs)


def engine(text: str) -> str:
    """Read the name of an engine."""
    try:
        return check_engine(text)
    except UsageError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def engine_list(text: str) -> list[str]:
    """Read engine names separated by commas."""
    try:
        return split_engines(text)
    except UsageError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


_SWITCHES = LAYOUTS | OPTIMIZATIONS


def add_observing_options(p: Parser) -> None:
    """Add the options; those spelled with underscores in MegEngine's tool take dashes as well."""
    changed = p.add_argument_group("changes to the model before it runs")
    for name, what in _SWITCHES.items():
        _add(changed, _spelled(name), action="store_true", help=what)
    both = {"flags": ("--batch-size", "--batch_size"), "type": integer(1)}
    add_options(changed, RunOptions, "threads", batch_size=both)
    seen = p.add_argument_group(
        "operators (an extra run of the first file; values come from the reference engine)"
    )
    add_options(seen, RunOptions, io_dump={"flags": ("--io-dump", "--io_dump")}, range=LIMIT)
    add_options(seen, RunOptions, "top")


def _add(group: argparse._ActionsContainer, name: str, **how: object) -> None:
    spellings = dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}"))
    group.add_argument(*spellings, dest=name, **how)  # type: ignore[arg-type]


def optimizations(arguments: Mapping[str, object]) -> tuple[str, ...]:
    """Return the requested optimizations, as `loadrun.replay.serial` takes them.

    Args:
        arguments: values by argument name.
    """
    return tuple(n for n in map(_spelled, _SWITCHES) if arguments[n])


def _spelled(name: str) -> str:
    """Return an optimization as `trace.dump` spells it; `load_and_run` has one name without the first word."""
    return "enable_fuse_grain" if name == "fuse_grain" else name


def _limit(text: str) -> float:
    return math.inf if text == "inf" else tolerance(text)


LIMIT = {"metavar": "LIMIT", "type": _limit}
"""How ``--range`` is added."""
