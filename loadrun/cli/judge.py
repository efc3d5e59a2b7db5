"""`loadrun judge RESULTS --maxerr X`: other tolerances and policies for results that were saved, without running."""

from __future__ import annotations

import sys

from ..base.files import check_targets
from ..compare.policy import parse_all
from ..compare.results import FileResult
from ..report import text
from ..verify.saved import judge_saved, read_saved
from .groups import Parser, exit_code
from .limits import add_policy_option, tolerance
from .stream import json_file, show

__all__ = ["main"]


def parser() -> Parser:
    """The options of `loadrun judge`."""
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
    given = tolerance(args.maxerr)
    limits = given if isinstance(given, dict) or given is None else {"": given}
    policies = parse_all(args.check or ())
    check_targets({"--json": args.json}, [args.file])
    shown = sys.stderr if args.json == "-" else sys.stdout
    found: list[FileResult] = []
    with json_file(args.json) as report:
        for saved in read_saved(args.file):
            file = FileResult(saved.path, warnings=list(saved.missed), missed=saved.missed)
            found.append(file)
            if report is not None:
                report.begin(file)
            results = judge_saved(saved, limits, policies)
            show(file, results, None if args.quiet else shown, report.add if report is not None else None)
            if report is not None:
                report.end(file)
            if not args.quiet:
                print(file=shown)
        print(text.summary(found), file=shown)
        code = exit_code(f.verdict for f in found)
        if report is not None:
            report.close(code)
    return code
