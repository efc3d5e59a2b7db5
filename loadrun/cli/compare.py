"""`loadrun compare old.json new.json`: what changed between two reports."""

from __future__ import annotations

from ..base.errors import clean
from ..report.changes import CompareOptions, compare_reports
from ..report.text import table
from .groups import Parser

__all__ = ["main"]


def parser() -> Parser:
    """Add the options of `loadrun compare`."""
    p = Parser(
        prog="loadrun compare",
        description="Compare two reports of `loadrun --json`, or of `loadrun bench --json`: what newly fails, is "
        "mended, has a greater error, another tolerance or policy, was fed other inputs, is another model or is "
        "slower.",
        epilog="Exit codes: 0 nothing is for the worse, 1 something newly fails, is missing, has a greater "
        "tolerance or a weaker policy, or is slower (bench), or a report is of a run that was cut, 2 bad usage, "
        "3 the reports have no output in common.",
    )
    p.add_argument("old", metavar="OLD.json")
    p.add_argument("new", metavar="NEW.json")
    p.add_argument(
        "--growth", metavar="X", type=float, default=2.0, help="report errors that are X times larger (2)"
    )
    p.add_argument(
        "--slower",
        metavar="X",
        type=float,
        help="report runs that take X times longer (1.5; 1.1 for reports of bench, where that fails)",
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
    print(f"{both}, {len(comparison.changes)} changes, {comparison.bad} of them for the worse")
    return comparison.exit_code
