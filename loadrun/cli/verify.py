"""`loadrun verify FILE`: is the file as it was packed, and do its checks pass?"""

from __future__ import annotations

import sys
from typing import TextIO

from ..base.errors import clean
from ..engines import Choice
from ..report.text import file_line, summary
from ..verify.pack.verifying import VerifiedSummary, VerifyOptions, verified, verify_summaries
from .fleet import FleetReports, add_fleet_options, fleet_reports
from .groups import (
    Parser,
    add_copy_option,
    add_limit_options,
    add_no_check_option,
    add_quiet_option,
    add_seed_option,
    limited,
    model_files,
)
from .models import add_engine_options, add_model_options, model_options
from .stream import show

__all__ = ["main"]

_SHOWN = 20
"""How many differences are listed."""


def parser() -> Parser:
    """Add the options of `loadrun verify`."""
    p = Parser(
        prog="loadrun verify",
        description="Compare model and testcases with the digests that `loadrun pack` recorded, then replay them.",
        epilog="Exit codes as for `loadrun run`; also 1 if something differs from its digest or stands behind the "
        "record, and 3 if no digests were recorded.",
    )
    p.add_argument("files", nargs="+", metavar="MODEL", help="files, patterns and folders")
    add_seed_option(p)
    add_engine_options(p)
    add_model_options(p)
    add_copy_option(p)
    add_fleet_options(p)
    add_quiet_option(p)
    add_no_check_option(p)
    add_limit_options(p)
    return p


def main(argv: list[str]) -> int:
    """Verify the files."""
    p = parser()
    args = p.parse_args(argv)
    options = p.record(
        VerifyOptions,
        vars(args),
        engine=Choice(args.engine, args.strict_engine, args.cache),
        **model_options(args.input_shape, args.constant),
    )
    files = model_files(args.files, sys.stderr)
    many = len(files) > 1
    dumps: list[VerifiedSummary] = []
    with limited(args.max_memory, args.timeout), fleet_reports(args.json, args.junit, files) as reports:
        for dump in verify_summaries(files, options):
            dumps.append(dump)
            if many:
                _line(dump, reports.out, quiet=args.quiet)
            else:
                _table(dump, reports.out, quiet=args.quiet)
            _report(dump, reports)
        print(summary([d.file for d in dumps]), file=reports.out)
        reports.exit_code = verified(dumps, no_check=args.no_check)
    return reports.exit_code


def _digests(dump: VerifiedSummary) -> str:
    return {True: "digests agree", False: "differs from its digests", None: "no digests"}[dump.agrees]


def _line(dump: VerifiedSummary, out: TextIO, *, quiet: bool) -> None:
    """Print a line about a file among many, with what is wrong with it."""
    good = dump.agrees is not False and dump.file.good
    if quiet and good:
        return
    seconds = dump.file.load_seconds + sum(r.seconds for r in dump.results)
    print(f"{file_line(dump.file, seconds)}, {_digests(dump)}", file=out, flush=True)
    if good:
        return
    for said in [*(dump.said[:_SHOWN] if dump.agrees is False else ()), *dump.file.missed, dump.file.message]:
        if said:
            print(f"  {clean(said, 300)}", file=out)


def _table(dump: VerifiedSummary, out: TextIO, *, quiet: bool) -> None:
    """Print all that is known of the only file."""
    name = clean(dump.file.path, 200)
    shown = _SHOWN if dump.differences else len(dump.said)
    for said in dump.said[:shown]:
        print(f"{name}: {clean(said, 300)}", file=out)
    if dump.differences > _SHOWN:
        print(f"{name}: {dump.differences} differences in all", file=out)
    for said in dump.file.missed:
        print(f"{name}: {clean(said, 300)}", file=out)
    show(dump.file, dump.results, None if quiet else out)
    if not quiet and dump.opened:
        print(file=out)


def _report(dump: VerifiedSummary, reports: FleetReports) -> None:
    """Put a dump into the reports."""
    file = dump.file
    reports.files.append(
        {
            "file": file.path,
            "verdict": file.verdict.value,
            "agrees": dump.agrees,
            "differences": dump.differences,
            "said": dump.said,
            "message": file.message,
            "missed": list(file.missed),
            "testcases": file.testcases,
            "passed": file.passed,
            "failed": file.failed,
        }
    )
    if reports.junit is not None:
        reports.junit.begin(file)
        for result in dump.results:
            reports.junit.add(result)
        if dump.opened:
            kind = {True: "", False: "failure", None: "skipped"}[dump.agrees]
            reports.junit.case("digests", kind, "\n".join(dump.said) if kind else "")
        reports.junit.end(file)
