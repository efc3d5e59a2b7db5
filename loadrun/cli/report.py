"""`loadrun report a.jsonl b.jsonl ...`: reports of several runs, side by side."""

from __future__ import annotations

from ..base.writing import check_targets, text_file
from ..compare.results import EXIT_PASS
from ..report.history import history_html, history_table, report_history
from .groups import Parser, add_html_option

__all__ = ["main", "parser"]


def parser() -> Parser:
    """Add the options of `loadrun report`."""
    p = Parser(
        prog="loadrun report",
        description="Show reports of several runs side by side, ordered by start time: how many files passed, and "
        "which ones changed.",
        epilog="Exit codes: 0 the reports were read, 2 a file is not a report, or bad usage.",
    )
    p.add_argument("reports", nargs="+", metavar="REPORT", help="reports of --json or --json-lines")
    add_html_option(p)
    return p


def main(argv: list[str]) -> int:
    """Read the reports and print their history."""
    args = parser().parse_args(argv)
    check_targets({"--html": args.html}, args.reports)
    history = report_history(args.reports)
    print(history_table(history))
    if args.html is not None:
        with text_file(args.html, "utf-8") as file:
            file.write(history_html(history))
    return EXIT_PASS
