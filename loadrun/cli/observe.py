"""Options of load_and_run that make sense beside a replay: optimized graphs, dumps of values, profiles."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from ..base.errors import UsageError
from ..load_and_run.flags import LAYOUTS, OPTIMIZE, by_name
from ..ops.numeric.parallel import set_threads, threads
from .groups import Parser, whole

__all__ = ["LOOKS", "add_observing_options", "add_profile_options", "flags_of", "observed", "threaded"]

_SWITCHES = (*LAYOUTS, *OPTIMIZE)
LOOKS = ("io_dump", "bin_io_dump", "bin_out_dump", "check_finite", "range", "model_info")
"""Options that watch operators while they run."""


def add_observing_options(p: Parser) -> None:
    """Add the options, those with underscores in MegEngine's tool with dashes as well."""
    changed = p.add_argument_group("the model, changed before it is run")
    for name in _SWITCHES:
        _add(changed, name, action="store_true", help=by_name(name).what)
    _add(changed, "batch_size", metavar="N", type=whole, help="repeat or cut testcases along axis 0")
    _add(changed, "threads", metavar="N", type=whole, help="use this many threads (default: all processors)")
    seen = p.add_argument_group("what operators do (the first file, run once more on the reference engine)")
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


def flags_of(args: argparse.Namespace) -> tuple[str, ...]:
    """The optimizations that were asked for, as `loadrun.replay.prepared` takes them."""
    return tuple("enable_" + n if n == "fuse_grain" else n for n in _SWITCHES if getattr(args, n))


@contextmanager
def threaded(count: int | None) -> Iterator[None]:
    """Use that many threads meanwhile.

    Raises:
        UsageError: the number is 0.
    """
    if count == 0:
        raise UsageError("--threads takes a number of at least 1, found 0")
    before = threads()
    try:
        if count is not None:
            set_threads(count)
        yield
    finally:
        set_threads(before)


def observed(args: argparse.Namespace) -> bool:
    """Whether anything was asked for besides the replay."""
    watched = any(getattr(args, n) not in (None, False) for n in LOOKS)
    return watched or bool(args.profile or args.perfetto or args.top or args.memory)


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
