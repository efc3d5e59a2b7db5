"""`loadrun verify FILE`: is the file what was packed, and do its checks hold?"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ..base.text import clean
from ..compare.recorded import header
from ..dump import load_all
from ..engines import Choice
from ..report.text import summary
from ..runner import FileResult, Result, Runner, Verdict
from ..testcase import Bundle
from ..verify.pack.unpacking import mismatches
from ..verify.pack.witness import testimony
from .engines import add_engine_options, chosen
from .groups import (
    EXIT_FAIL,
    EXIT_NOT_COMPARED,
    EXIT_PASS,
    Parser,
    add_copy_option,
    exit_code,
    failure,
    model_files,
    progress,
    seed,
)
from .models import add_model_options, model_options
from .stream import show

__all__ = ["main"]

_SHOWN = 20
"""Differences that are shown one by one."""


def parser() -> Parser:
    """The options of `loadrun verify`."""
    p = Parser(
        prog="loadrun verify",
        description="Compare model and testcases with the digests that `loadrun pack` recorded, then replay them.",
        epilog="Exit codes as those of `loadrun run`; 1 also where something differs from its digest, or the "
        "digests or what stands behind them are damaged, 3 where none were recorded.",
    )
    p.add_argument("files", nargs="+", metavar="FILE.mge")
    p.add_argument("--seed", type=seed, default=0, help="seed of random operators (default 0)")
    add_engine_options(p)
    add_model_options(p)
    add_copy_option(p)
    p.add_argument("-q", "--quiet", action="store_true", help="print no table")
    p.add_argument("--no-check", action="store_true", help="nothing to compare is wanted: exit with 0, not 3")
    return p


def main(argv: list[str]) -> int:
    """Verify the files."""
    args = parser().parse_args(argv)
    found: list[FileResult] = []
    states: set[bool | None] = set()
    read = model_options(args)
    for path in model_files(args.files, sys.stderr):
        try:
            bundles = load_all(path, copy=args.copy, **read)
        except Exception as e:
            why = failure(e)
            found.append(FileResult(path, message=why.message, fault=why.fault))
            show(found[-1], (), None if args.quiet else sys.stdout)
            continue
        for i, bundle in enumerate(bundles):
            name = path if i == 0 else f"{path} (dump {i + 1})"
            states.add(_digests(name, bundle))
            for text in bundle.missed:
                print(f"{clean(name, 200)}: {clean(text, 300)}")
            found.append(
                FileResult(name, warnings=list(bundle.warnings), missed=bundle.missed, free=args.no_check)
            )
            results = _results(bundle, chosen(args), args.seed)
            show(found[-1], results, None if args.quiet else sys.stdout)
            if not args.quiet:
                print()
    print(summary(found))
    fault = any(f.fault for f in found)
    code = exit_code((f.verdict for f in found), no_check=args.no_check, fault=fault)
    if code == EXIT_PASS and None in states and not args.no_check:
        return EXIT_NOT_COMPARED
    return code if False not in states or Verdict.ERROR in {f.verdict for f in found} else EXIT_FAIL


def _digests(name: str, bundle: Bundle) -> bool | None:
    """Say what differs from its digest; whether nothing does, None where there are no digests."""
    shown = clean(name, 200)
    if bundle.damage:
        print(f"{shown}: {bundle.damage}")
        return False
    if bundle.trailing and (bundle.is_container or bundle.record is not None):
        print(
            f"{shown}: {bundle.trailing} bytes behind it are not part of it; a record that stood there is damaged"
        )
        return False
    if not isinstance(bundle.record, memoryview):
        print(f"{shown}: no digests were recorded, so there is nothing to verify")
        return None
    count = 0
    try:
        for count, found in enumerate(mismatches(bundle), 1):
            place = "" if found.testcase is None else f"testcase {found.testcase}: "
            if count <= _SHOWN:
                print(f"{shown}: {place}{clean(found.what, 300)}")
        if count > _SHOWN:
            print(f"{shown}: {count} differences in all")
        if not count:
            whence = header(bundle.record).get("provenance")
            known = whence if isinstance(whence, dict) else {}
            by = ", ".join(f"{k} {known[k]}" for k in ("time", "loadrun", "engine", "seed") if k in known)
            print(f"{shown}: all digests agree" + (f" ({clean(by, 300)})" if by else ""))
            for said in testimony(bundle):
                print(f"{shown}: {clean(said, 300)}")
    except Exception as e:
        print(f"{shown}: {clean(failure(e).message, 300)}")
        return False
    return not count


def _results(bundle: Bundle, engine: Choice, seed: int) -> Iterator[Result]:
    if len(bundle.testcases):
        runner = Runner(bundle, engine, seed=seed)
        yield from progress(runner.replay(), len(bundle.testcases), "testcase")
