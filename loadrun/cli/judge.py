"""`loadrun judge RESULTS --maxerr X`: other tolerances and policies for results that were saved, without running."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..base.files import check_targets
from ..compare.policy import parse_all
from ..compare.results import FileResult, Result, exit_code
from ..report import text
from ..verify.saved import JudgeOptions, judge_results
from .groups import Parser, add_policy_option, tolerances
from .stream import json_file, show

if TYPE_CHECKING:
    from ..report.json import JsonWriter

__all__ = ["main"]


def parser() -> Parser:
    """Add the options of `loadrun judge`."""
    p = Parser(
        prog="loadrun judge",
        description="Judge results that `loadrun --save-results` wrote by other tolerances, without running anything.",
        epilog="Exit codes as those of `loadrun run`. What passes by a greater tolerance than the file's is LOOSENED.",
    )
    p.add_argument("file", metavar="RESULTS")
    p.add_argument("--maxerr", metavar="[NAME=]X", action="append", help="tolerance of all outputs or of one")
    add_policy_option(p, "may be repeated")
    p.add_argument("--json", metavar="FILE", help="write the verdicts as JSON (- for standard output)")
    p.add_argument("-q", "--quiet", action="store_true", help="print the summary line only")
    return p


def main(argv: list[str]) -> int:
    """Judge; the exit code tells the verdict."""
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
