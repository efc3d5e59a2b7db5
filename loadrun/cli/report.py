"""`loadrun report a.jsonl b.jsonl ...`: one report, what changed between two, or the history of several."""

from ..base.errors import clean
from ..base.writing import check_targets, text_file
from ..compare.results import EXIT_PASS
from ..replay.options import RunOptions
from ..report.changes import Change, CompareOptions, compare_reports
from ..report.history import history_html, history_table, report_history
from ..report.text import table
from .fields import add_options
from .groups import Parser, slowdown


def parser() -> Parser:
    """Build the parser of `loadrun report`."""
    p = Parser(
        prog="loadrun report",
        description="Of two reports of --json, say what changed from the first to the second: new and fixed failures, "
        "larger errors, other tolerances, policies, inputs, expected values and models, and slower runs; reports of "
        "`loadrun bench --json` are compared likewise. Of one or of more, show how many files passed, run by run in "
        "the order of their start, and which ones changed.",
        epilog="Exit codes: 0 the reports were read, nothing got worse; 1 of two: something newly fails, is missing, "
        "has a larger error, a larger tolerance or a weaker policy, or is slower (bench), or a report is of an "
        "incomplete run; 2 a file is not a report, or bad usage; 3 two reports have no output in common.",
    )
    p.add_argument("reports", nargs="+", metavar="REPORT", help="reports of --json")
    add_options(p, CompareOptions, max_slowdown={"type": slowdown, "metavar": "10%"})
    add_options(p, RunOptions, "html")
    return p


def main(argv: list[str]) -> int:
    """Read the reports, and print what changed or their history."""
    p = parser()
    args = p.parse_args(argv)
    check_targets({"--html": args.html}, args.reports)
    pair = len(args.reports) == 2
    if not pair:
        p.only(vars(args), ("html",), f"applies to two reports, found {len(args.reports)}")
    history = None if pair and args.html is None else report_history(args.reports)
    if history is not None and args.html is not None:
        with text_file(args.html, "utf-8") as file:
            file.write(history_html(history))
    if pair:
        return _compare(args.reports[0], args.reports[1], p.record(CompareOptions, vars(args)))
    assert history is not None
    print(history_table(history))
    return EXIT_PASS


def _compare(old: str, new: str, options: CompareOptions) -> int:
    """Print what changed."""
    comparison = compare_reports(old, new, options)
    if comparison.changes:
        # The order of kinds is kept: what newly fails stands first.
        alike: dict[tuple[str, str], list[Change]] = {}
        for change in comparison.changes:
            alike.setdefault((change.kind, change.file), []).append(change)
        rows = [
            (
                first.kind,
                *map(clean, (first.file, first.testcase, first.output, first.before, first.now)),
                f"+{len(others)}" if others else "",
            )
            for first, *others in alike.values()
        ]
        print(table(rows, ("change", "file", "testcase", "output", "before", "now", "more"), right=(2, 6)))
        print()
    both = f"{comparison.common} {comparison.things} in both reports"
    print(f"{both}, {len(comparison.changes)} changes, {comparison.bad} for the worse")
    return comparison.exit_code
