"""Options of the commands that read models: engines, open sizes and constants of ONNX models, what is observed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..base.errors import InputError, SpecError, UsageError, clean
from ..engines import Choice, check_engine, split_engines
from ..engines.registry import NAMES
from ..graph.dtypes import Array
from ..passes.options import LAYOUTS, OPTIMIZATIONS
from .groups import Parser, whole

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "add_engine_options",
    "add_model_options",
    "add_observing_options",
    "add_profile_options",
    "all_chosen",
    "engine_list",
    "model_options",
    "optimizations",
]


def add_model_options(p: argparse.ArgumentParser, *, writes: bool = False) -> None:
    """Add the options that say how an ONNX model is read, and where weights are.

    Args:
        p: the parser.
        writes: whether the command writes a file that may have its weights outside.
    """
    folders = (
        "a folder of the weights of a file that was packed with --weights beside, besides its own folder"
    )
    p.add_argument(
        "--weights",
        metavar="beside|DIR" if writes else "DIR",
        action="append",
        default=[],
        help=f"beside: leave the weights outside of the file, which names them by digest; DIR: {folders}"
        if writes
        else folders,
    )
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
        value = json.loads(text.strip().lower())
    except ValueError:
        return None
    return value if isinstance(value, (int, float)) else None


def _no_image(pixels: Array, path: str) -> NoReturn:
    raise InputError(f"{path} is an image; a constant is a .npy array or numbers")


def add_engine_options(
    p: argparse.ArgumentParser, *, several: bool = False, default: str | None = "reference"
) -> None:
    """Add ``--engine``, ``--strict-engine`` and ``--cache``.

    Args:
        several: the option takes several names, see `all_chosen`.
        default: the engine where none is named.
    """
    g = p.add_argument_group("what executes the model")
    what = f"{', '.join(NAMES)}, or one that an installed package brings"
    if several:
        g.add_argument(
            "--engine",
            metavar="NAME[,NAME...]",
            type=engine_list,
            action="append",
            help=f"{what}; several, with commas or repeated, are compared",
        )
    else:
        g.add_argument("--engine", metavar="NAME", type=_engine, default=default, help=what)
    g.add_argument(
        "--strict-engine",
        action="store_true",
        help="refuse a model with operators that the engine cannot run; the reference engine runs them otherwise",
    )
    g.add_argument("--cache", metavar="DIR", type=_folder, help="keep converted models in this folder")


def _folder(name: str) -> Path:
    from pathlib import Path  # for start-up

    return Path(name)


def all_chosen(
    options: Sequence[Sequence[str]] | None, strict: bool, cache: Path | None
) -> tuple[Choice, ...]:
    """Return the engines that were named, in order.

    Args:
        options: the names, as often as ``--engine`` was given.
        strict, cache: the other two options.

    Raises:
        UsageError: one of them is named twice.
    """
    specs = [name for names in options or [["reference"]] for name in names]
    doubled = sorted({n for n in specs if specs.count(n) > 1})
    if doubled:
        raise UsageError(f"the engine {doubled[0]} is named twice; a comparison needs different ones")
    return tuple(Choice(name, strict, cache) for name in specs)


def _engine(text: str) -> str:
    try:
        return check_engine(text).spec
    except UsageError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def engine_list(text: str) -> list[str]:
    """Read names of engines with commas between them."""
    try:
        return split_engines(text)
    except UsageError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


_SWITCHES = LAYOUTS | OPTIMIZATIONS


def add_observing_options(p: Parser) -> None:
    """Add the options, those with underscores in MegEngine's tool with dashes as well."""
    changed = p.add_argument_group("the model, changed before it is run")
    for name, what in _SWITCHES.items():
        _add(changed, name, action="store_true", help=what)
    _add(changed, "batch_size", metavar="N", type=whole, help="repeat or cut testcases along axis 0")
    _add(changed, "threads", metavar="N", type=whole, help="use this many threads (default: all processors)")
    seen = p.add_argument_group(
        "what operators do (the first file, run once more; values on the reference engine)"
    )
    _add(seen, "io_dump", metavar="FILE", help="print every variable of every testcase")
    _add(
        seen,
        "bin_io_dump",
        metavar="DIR",
        help="write every variable of the first testcase to a file of its own",
    )
    _add(seen, "bin_out_dump", metavar="DIR", help="write the outputs of every testcase, run0 the first")
    _add(
        seen,
        "check_finite",
        action="store_true",
        help="fail for NaN and infinity; name the operators they begin at",
    )
    _add(
        seen,
        "range",
        metavar="LIMIT",
        type=float,
        help="fail for absolute values greater than this; name the operators they begin at",
    )
    _add(seen, "model_info", action="store_true", help="print inputs and outputs as a table")
    add_profile_options(seen)


def _add(group: argparse._ArgumentGroup, name: str, **how: object) -> None:
    spellings = dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}"))
    group.add_argument(*spellings, dest=name, **how)  # type: ignore[arg-type]


def optimizations(arguments: Mapping[str, object]) -> tuple[str, ...]:
    """Return the optimizations that were asked for, as `loadrun.replay.parts` takes them.

    Args:
        arguments: values by the names of arguments.
    """
    return tuple("enable_" + n if n == "fuse_grain" else n for n in _SWITCHES if arguments[n])


def add_profile_options(p: argparse._ActionsContainer) -> None:
    """Add what looks at operators one by one."""
    p.add_argument(
        "--profile",
        metavar="FILE",
        help="write what each operator took, in the layout of MegEngine's profiler",
    )
    p.add_argument("--perfetto", metavar="FILE", help="write a trace that Perfetto's viewer opens")
    p.add_argument("--top", type=whole, metavar="N", help="show the N most expensive groups of operators")
    p.add_argument(
        "--by",
        type=_grouping,
        default="type",
        metavar="WHAT",
        help="group them by type, name or prefix:DEPTH (default type)",
    )
    p.add_argument(
        "--memory", action="store_true", help="show the peak of memory and which values were alive at it"
    )


def _grouping(text: str) -> str:
    kind, colon, depth = text.partition(":")
    if kind in ("type", "name") and not colon:
        return text
    if kind == "prefix" and (not colon or (depth.isdigit() and int(depth))):
        return text
    raise argparse.ArgumentTypeError(f"expected type, name or prefix:DEPTH, found {text!r}")
