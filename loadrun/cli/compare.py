"""`loadrun compare old.json new.json`: what changed between two reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..base.errors import FormatError
from ..base.files import contents
from ..base.text import clean
from ..report.changes import changes, same_checks
from ..report.reading import read_report
from ..report.text import table
from .groups import EXIT_FAIL, EXIT_NOT_COMPARED, EXIT_PASS, Parser

__all__ = ["main"]

_LARGEST = 1 << 30


def parser() -> Parser:
    """The options of `loadrun compare`."""
    p = Parser(
        prog="loadrun compare",
        description="Compare two reports that `loadrun --json` wrote: what newly fails, is mended, has a greater error "
        "or another tolerance, was fed other inputs, is another model or is slower.",
        epilog="Exit codes: 0 nothing is for the worse, 1 something newly fails, is missing or has a greater "
        "tolerance, or a report is of a run that was cut, 2 bad usage, 3 the reports have no output in common.",
    )
    p.add_argument("old", metavar="OLD.json")
    p.add_argument("new", metavar="NEW.json")
    p.add_argument(
        "--growth", metavar="X", type=float, default=2.0, help="report errors that are X times larger (2)"
    )
    p.add_argument(
        "--slower", metavar="X", type=float, default=1.5, help="report runs that take X times longer (1.5)"
    )
    return p


def main(argv: list[str]) -> int:
    """Compare; 1 when something newly fails or is missing."""
    args = parser().parse_args(argv)
    old, new = _report(args.old), _report(args.new)
    found = changes(old, new, growth=args.growth, slower=args.slower)
    common = same_checks(old, new)
    if found:
        rows = [(c.kind, *map(clean, (c.file, c.testcase, c.output, c.before, c.now))) for c in found]
        print(table(rows, ("change", "file", "testcase", "output", "before", "now"), right=(2,)))
        print()
    bad = sum(c.bad for c in found)
    print(f"{common} outputs in both reports, {len(found)} changes, {bad} of them for the worse")
    if bad:
        return EXIT_FAIL
    return EXIT_PASS if common else EXIT_NOT_COMPARED


def _report(path: str) -> Any:
    if Path(path).stat().st_size > _LARGEST:
        raise FormatError(f"{path} is larger than any report ({_LARGEST} bytes)")
    return read_report(contents(path, "a report"), path)
