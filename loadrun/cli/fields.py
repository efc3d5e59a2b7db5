"""Options from records: the name, the default and the help of an option are those of a field."""

import argparse
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field
from functools import cache
from typing import Any

from ..replay.options import RunOptions
from .groups import integer, seconds, seed, size, target, tolerance, whole

_FIELD = re.compile(r"^        (\w+): (.*(?:\n {12}.*)*)", re.M)
_HOW: Mapping[str, Mapping[str, Any]] = {
    "constants": {"flags": ("--constant",), "dest": "constant", "metavar": "NAME:VALUE", "action": "append"},
    "dump_format": {"flags": ("--format",), "choices": ("FBS_V2", "FBS")},
    "format": {"choices": ("FBS_V2", "FBS")},
    "html": {"type": target},
    "input_data": {"flags": ("--input",), "metavar": "SPEC", "action": "append"},
    "input_shapes": {
        "flags": ("--input-shape",),
        "dest": "input_shape",
        "metavar": "NAME:N,N,...",
        "action": "append",
    },
    "input_transform": {"metavar": "EXPR"},
    "jobs": {"flags": ("-j", "--jobs"), "type": integer(1, 1024, "a number of processes from 1 to 1024")},
    "junit": {"type": target},
    "max_memory": {"type": size, "metavar": "BYTES"},
    "policies": {"flags": ("--check",), "dest": "check", "metavar": "[NAME:]TERMS", "action": "append"},
    "prove": {"choices": ("none", "quick", "full")},
    "repeat": {"type": integer(1)},
    "seed": {"type": seed, "metavar": "SEED"},
    "threads": {"type": integer(1)},
    "timeout": {"type": seconds, "metavar": "SECONDS"},
    "tolerance": {"flags": ("--maxerr",)},
}
"""How fields are written on a command line, whichever record they are in."""


@cache
def documented(record: type) -> dict[str, str]:
    """Return the texts of a record's fields, which its docstring and those of its bases have.

    >>> from loadrun import CompareOptions
    >>> list(documented(CompareOptions))
    ['max_slowdown']
    """
    texts: dict[str, str] = {}
    for cls in reversed(record.__mro__):
        texts |= {name: " ".join(text.split()) for name, text in _FIELD.findall(cls.__doc__ or "")}
    return texts


def add_options(
    p: argparse._ActionsContainer, record: type, *names: str, **special: Mapping[str, Any]
) -> None:
    """Add the options for fields of a record; the first sentence of a field's text is the help.

    Args:
        p: the parser, or a group of it.
        record: a dataclass.
        names: fields.
        special: further fields, with arguments of ``add_argument`` that differ from the usual ones, besides ``flags``
            and ``more``, which is appended to the help.
    """
    texts, fields = documented(record), record.__dataclass_fields__  # type: ignore[attr-defined]
    for name in (*names, *special):
        how = {**_usual(fields[name]), **_HOW.get(name, {}), **special.get(name, {})}
        if "choices" in how:
            how["metavar"] = None
        flags = how.pop("flags", (f"--{name.replace('_', '-')}",))
        text = re.split(r"\. (?=[A-Z`])", texts.get(name, ""))[0].rstrip(".").replace("``", "")
        default = how["default"]
        if default and not isinstance(default, (bool, list)) and "default" not in text:
            text += f" (default {default:g})" if isinstance(default, float) else f" (default {default})"
        text = (text + how.pop("more", "")).replace("%", "%%")
        p.add_argument(*flags, **{"dest": name, "help": text, **how})


def add_limit_options(
    p: argparse._ActionsContainer, what: str = "give up after this time, with exit code 4"
) -> None:
    """Add ``--timeout`` and ``--max-memory``, limits of the command's process.

    Args:
        what: what ``--timeout`` does, for the help.
    """
    p.add_argument("--timeout", metavar="SECONDS", type=seconds, help=what)
    add_options(p, RunOptions, "max_memory")


def _usual(field: Field[Any]) -> dict[str, Any]:
    """Return the arguments of ``add_argument`` that follow from a field's type and default."""
    # Of a module whose annotations are texts, and of one where they are types.
    kind = field.type.__name__ if isinstance(field.type, type) else str(field.type)
    plain = field.default is not MISSING and isinstance(field.default, (int, float, str))
    how: dict[str, Any] = {"default": field.default if plain else None}
    if kind == "bool":
        return {**how, "action": "store_true"}
    if kind == "bool | None":
        return {**how, "action": argparse.BooleanOptionalAction}
    if kind in ("int", "int | None"):
        return {**how, "type": whole, "metavar": "N"}
    if kind in ("float", "float | None"):
        return {**how, "type": tolerance, "metavar": "X"}
    return {**how, "metavar": "FILE"}
