"""`loadrun judge RESULTS --maxerr X`: apply other tolerances and policies to saved results, without running."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..base.writing import check_targets
from ..compare.policy import parse_all
from ..compare.results import FileResult, Result, exit_code
from ..report import text
from ..verify.saved import JudgeOptions, judge_results
from .groups import (
    Parser,
    add_json_option,
    add_maxerr_option,
    add_policy_option,
    add_quiet_option,
    tolerances,
)
from .stream import json_file, show

if TYPE_CHECKING:
    from ..report.json import JsonWriter

__all__ = ["main"]


def parser() -> Parser:
    """Add the options of `loadrun judge`."""
    p = Parser(
        prog="loadrun judge",
        description="Judge results saved by `loadrun --save-results` with other tolerances, without running anything.",
        epilog="Exit codes as for `loadrun run`. Outputs that pass only with a larger tolerance than the file's are "
        "marked LOOSENED.",
    )
    p.add_argument("file", metavar="RESULTS", help="a file of --save-results")
    add_maxerr_option(p, "the file's")
    add_policy_option(p)
    add_json_option(p)
    add_quiet_option(p)
    return p


def main(argv: list[str]) -> int:
    """Judge and return the exit code of the verdict."""
    args = parser().parse_args(argv)
    options = JudgeOptions(maxerr=tolerances(args.maxerr), policies=parse_all(args.check or ()))
    check_targets({"--json": args.json}, [args.file])
    shown = sys.stderr if args.json == "-" else sys.stdout
    results: list[FileResult] = []
    with json_file(args.json) as report:
        for judged in judge_results(args.file, options):
            results.append(judged.file)
            if report is not None:
                report.begin(judged.file)
            show(judged.file, _reported(judged, report), None if args.quiet else shown)
            if report is not None:
                report.end(judged.file)
            if not args.quiet:
                print(file=shown)
        print(text.summary(results), file=shown)
        code = exit_code(f.verdict for f in results)
        if report is not None:
            report.close(code)
    return code


def _reported(results: Iterable[Result], report: JsonWriter | None) -> Iterator[Result]:
    for result in results:
        if report is not None:
            report.add(result)
        yield result
