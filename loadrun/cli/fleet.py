"""Many files in several processes, a line for each, and reports."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from ..base import __version__
from ..base.registry import late
from ..base.writing import check_targets, text_file
from ..report.json import dumps

with late(__name__):
    from ..report import junit as junit_report


@dataclass
class FleetReports:
    """Where the verdicts on files go.

    Attributes:
        out: where lines are printed.
        junit: the JUnit report, None where none is wanted.
        files: what the JSON report says of each file.
        exit_code: what it says of all.
    """

    out: TextIO
    junit: junit_report.JUnitWriter | None
    files: list[object] = field(default_factory=list)
    exit_code: int = 0


@contextmanager
def fleet_reports(json: str | None, junit: str | None, read: Sequence[str]) -> Iterator[FleetReports]:
    """Open the reports that are wanted, and write them in the end.

    Args:
        json, junit: their files.
        read: the models, none of which may be a report.
    """
    check_targets({"--json": json, "--junit": junit}, read)
    with ExitStack() as stack:
        writer = None
        if junit is not None:
            writer = junit_report.JUnitWriter(stack.enter_context(text_file(junit, "utf-8")))
            stack.callback(writer.discard)
        reports = FleetReports(sys.stderr if json == "-" else sys.stdout, writer)
        yield reports
        if writer is not None:
            writer.close(reports.exit_code)
        if json is None:
            return
        text = dumps({"loadrun": __version__, "exit_code": reports.exit_code, "files": reports.files})
        out = sys.stdout if json == "-" else stack.enter_context(text_file(json))
        print(text, file=out)
