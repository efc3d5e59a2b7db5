"""Options of load_and_run that are useful with a replay: optimized graphs, dumps of values, profiles."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from ..load_and_run.flags import LAYOUTS, OPTIMIZE, by_name
from .groups import Parser, tolerance, whole

__all__ = ["add_finite_options", "add_observing_options", "add_profile_options", "optimizations"]

_SWITCHES = (*LAYOUTS, *OPTIMIZE)


def add_observing_options(p: Parser) -> None:
    """Add the options; those spelled with underscores in MegEngine's tool take dashes as well."""
    changed = p.add_argument_group("changes to the model before it runs")
    for name in _SWITCHES:
        _add(changed, name, action="store_true", help=by_name(name).what)
    _add(
        changed, "batch_size", metavar="N", type=whole, help="repeat or cut testcases along axis 0 to N items"
    )
    _add(changed, "threads", metavar="N", type=whole, help="number of threads (default: all processors)")
    seen = p.add_argument_group(
        "operators (an extra run of the first file; values come from the reference engine)"
    )
    _add(seen, "io_dump", metavar="FILE", help="write every variable of every testcase as text")
    _add(
        seen,
        "bin_io_dump",
        metavar="DIR",
        help="write each variable of the first testcase to its own file",
    )
    _add(seen, "bin_out_dump", metavar="DIR", help="write the outputs of every testcase, the first as run0")
    add_finite_options(seen)
    _add(seen, "model_info", action="store_true", help="print inputs and outputs as a table")
    add_profile_options(seen)


def add_finite_options(p: argparse._ActionsContainer) -> None:
    """Add ``--check-finite`` and ``--range``."""
    _add(
        p,
        "check_finite",
        action="store_true",
        help="fail on NaN and infinity, and name the operators where they first appear",
    )
    _add(
        p,
        "range",
        metavar="LIMIT",
        type=tolerance,
        help="fail on absolute values above LIMIT, and name the operators where they first appear",
    )


def _add(group: argparse._ActionsContainer, name: str, **how: object) -> None:
    spellings = dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}"))
    group.add_argument(*spellings, dest=name, **how)  # type: ignore[arg-type]


def optimizations(given: Mapping[str, object]) -> tuple[str, ...]:
    """Return the requested optimizations, as `loadrun.replay.prepared` takes them.

    Args:
        given: values by argument name.
    """
    return tuple("enable_" + n if n == "fuse_grain" else n for n in _SWITCHES if given[n])


def add_profile_options(p: argparse._ActionsContainer) -> None:
    """Add the options that profile single operators."""
    p.add_argument(
        "--profile",
        metavar="FILE",
        help="write the time of each operator, in the format of MegEngine's profiler",
    )
    p.add_argument("--perfetto", metavar="FILE", help="write a trace for the Perfetto viewer")
    p.add_argument("--top", type=whole, metavar="N", help="show the N most expensive groups of operators")
    p.add_argument(
        "--by",
        type=_grouping,
        default="type",
        metavar="WHAT",
        help="group them by type, name or prefix:DEPTH (default: type)",
    )
    p.add_argument(
        "--memory", action="store_true", help="show peak memory and the values that were alive at the peak"
    )


def _grouping(text: str) -> str:
    kind, colon, depth = text.partition(":")
    if kind in ("type", "name") and not colon:
        return text
    if kind == "prefix" and (not colon or (depth.isdigit() and int(depth))):
        return text
    raise argparse.ArgumentTypeError(f"expected type, name or prefix:DEPTH, found {text!r}")
