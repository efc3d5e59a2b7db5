"""`loadrun compare old.json new.json`: what changed between two reports."""

from __future__ import annotations

from ..base.errors import clean
from ..report.changes import CompareOptions, compare_reports
from ..report.text import table
from .groups import Parser, factor

__all__ = ["main"]


def parser() -> Parser:
    """Add the options of `loadrun compare`."""
    p = Parser(
        prog="loadrun compare",
        description="Compare two reports of `loadrun --json`, or of `loadrun bench --json`: new failures, fixed "
        "failures, larger errors, changed tolerances, policies, inputs, expected values and models, and slower runs.",
        epilog="Exit codes: 0 nothing got worse, 1 something newly fails, is missing, has a larger error, a larger "
        "tolerance or a weaker policy, or is slower (bench), or a report is of an incomplete run, 2 bad usage, 3 the "
        "reports have no output in common.",
    )
    p.add_argument("old", metavar="OLD.json", help="the report to compare with")
    p.add_argument("new", metavar="NEW.json", help="the report that is judged")
    p.add_argument(
        "--growth",
        metavar="X",
        type=factor,
        default=2.0,
        help="report errors that grew by a factor of X (default 2)",
    )
    p.add_argument(
        "--slower",
        metavar="X",
        type=factor,
        help="report runs that are slower by a factor of X (default 1.5; for reports of bench, 1.1, which counts as a "
        "failure)",
    )
    return p


def main(argv: list[str]) -> int:
    """Compare; 1 when something newly fails or is missing."""
    p = parser()
    args = p.parse_args(argv)
    comparison = compare_reports(args.old, args.new, p.record(CompareOptions, vars(args)))
    if comparison.changes:
        rows = [
            (c.kind, *map(clean, (c.file, c.testcase, c.output, c.before, c.now))) for c in comparison.changes
        ]
        print(table(rows, ("change", "file", "testcase", "output", "before", "now"), right=(2,)))
        print()
    both = f"{comparison.common} {comparison.things} in both reports"
    print(f"{both}, {len(comparison.changes)} changes, {comparison.bad} for the worse")
    return comparison.exit_code
