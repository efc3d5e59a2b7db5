"""Options that choose the engine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..base.errors import UsageError
from ..engines import Choice, check_engine, split_engines
from ..engines.registry import NAMES

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["add_engine_options", "all_chosen", "engine_list"]


def add_engine_options(
    p: argparse.ArgumentParser, *, several: bool = False, default: str | None = "reference"
) -> None:
    """Add ``--engine``, ``--strict-engine`` and ``--cache``.

    Args:
        several: the option takes several names, see `all_chosen`.
        default: the engine where none is named.
    """
    g = p.add_argument_group("engine")
    what = f"{', '.join(NAMES)}, or an engine from an installed package"
    if several:
        g.add_argument(
            "--engine",
            metavar="NAME[,NAME...]",
            type=engine_list,
            action="append",
            help=f"{what}; several (separated by commas, or the option repeated) are compared",
        )
    else:
        g.add_argument("--engine", metavar="NAME", type=_engine, default=default, help=what)
    g.add_argument(
        "--strict-engine",
        action="store_true",
        help="reject models with operators that the engine does not support, which otherwise run on the reference "
        "engine",
    )
    g.add_argument("--cache", metavar="DIR", type=_folder, help="cache converted models in this folder")


def _folder(name: str) -> Path:
    from pathlib import Path  # for start-up

    return Path(name)


def all_chosen(given: Sequence[Sequence[str]] | None, strict: bool, cache: Path | None) -> tuple[Choice, ...]:
    """Return the selected engines, in order.

    Args:
        given: the names, one sequence for each ``--engine``.
        strict, cache: the other two options.

    Raises:
        UsageError: an engine is named twice.
    """
    found = [name for names in given or [["reference"]] for name in names]
    doubled = sorted({n for n in found if found.count(n) > 1})
    if doubled:
        raise UsageError(f"the engine {doubled[0]} is named twice; a comparison needs different engines")
    return tuple(Choice(name, strict, cache) for name in found)


def _engine(text: str) -> str:
    try:
        return check_engine(text).spec
    except UsageError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def engine_list(text: str) -> list[str]:
    """Read engine names separated by commas."""
    try:
        return split_engines(text)
    except UsageError as e:
        raise argparse.ArgumentTypeError(str(e)) from None
