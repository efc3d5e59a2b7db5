"""Options of load_and_run that make sense beside a replay: optimized graphs, dumps of values, profiles."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from ..load_and_run.flags import LAYOUTS, OPTIMIZE, by_name
from .groups import Parser, whole

__all__ = ["add_observing_options", "add_profile_options", "optimizations"]

_SWITCHES = (*LAYOUTS, *OPTIMIZE)


def add_observing_options(p: Parser) -> None:
    """Add the options, those with underscores in MegEngine's tool with dashes as well."""
    changed = p.add_argument_group("the model, changed before it is run")
    for name in _SWITCHES:
        _add(changed, name, action="store_true", help=by_name(name).what)
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


def optimizations(given: Mapping[str, object]) -> tuple[str, ...]:
    """Return the optimizations that were asked for, as `loadrun.replay.prepared` takes them.

    Args:
        given: values by the names of arguments.
    """
    return tuple("enable_" + n if n == "fuse_grain" else n for n in _SWITCHES if given[n])


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
