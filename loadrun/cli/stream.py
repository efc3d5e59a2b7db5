"""Print results as they come, without keeping them."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from ..base.errors import clean, failure
from ..base.registry import late
from ..report import text
from ..report.text import PLAIN, Style
from ..runner import FileResult, Result, Verdict

with late(__name__):
    from ..report import engines as engine_report

_ROWS = 200
_SECONDS = 1.0
"""Rows are printed when this many have gathered, or after this many seconds."""
_FAILING = 20
"""How many failing testcases of a file are printed when there are many files."""


def show(
    file: FileResult,
    results: Iterable[Result],
    out: TextIO | None,
    *,
    style: Style = PLAIN,
    metrics: bool = False,
    engines: Sequence[str] = (),
) -> None:
    """Print results as they come.

    Args:
        file: what is known about the file; warnings added during the run are printed when they appear.
        results: the results, one after another, counted into the file.
        out: where to print; None for errors only, on standard error.
        style: colours.
        metrics: show metrics for passing outputs as well.
        engines: names of the engines that run side by side.
    """
    rows = text.Rows(style, metrics=metrics, engines=engines)
    said: list[str] | None = None

    def tell(block: str = "") -> None:
        nonlocal said
        if out is None:
            if file.failure is not None:
                print(f"{clean(file.path, 200)}\n{text.error(file.failure.message)}", file=sys.stderr)
            return
        clear_progress()
        new = [text.head(file)] if said is None else [text.warning(w) for w in file.warnings if w not in said]
        said = list(file.warnings)
        if lines := [*new, *([block] if block else [])]:
            print("\n".join(lines), file=out, flush=True)

    def table(block: list[Result]) -> str:
        try:
            return rows.block(block)
        except Exception as e:
            file.failure = failure(e, named=True)
            return ""

    for block in _blocks(results):
        if out is not None:
            tell(table(block))
    last = [text.error(file.failure.message) if file.failure else "", *_engines(file)]
    tell("\n".join(line for line in last if line))


def _engines(file: FileResult) -> list[str]:
    """Return lines about the engines of a file, unless it was the reference engine alone."""
    if not file.entrants:
        return [text.engine(file)]

    return list(engine_report.entrants_lines(list(file.entrants.values())))


def show_line(
    file: FileResult, results: Iterable[Result], out: TextIO | None, *, style: Style = PLAIN
) -> None:
    """Print one line about a file, followed by the rows of failing testcases; otherwise as `show`."""
    failing: list[Result] = []
    more = 0
    spent = 0.0
    for result in results:
        spent += result.seconds
        if result.verdict in (Verdict.FAIL, Verdict.ERROR):
            if len(failing) < _FAILING:
                failing.append(result)
            else:
                more += 1
    if out is None:
        return
    lines = [text.file_line(file, file.load_seconds + spent, style)]
    lines += [text.warning(w) for w in file.warnings]
    if failing:
        lines.append(text.Rows(style).block(failing))
    if more:
        lines.append(f"  ... and {more} more testcases that fail")
    if file.failure is not None:
        lines.append(text.error(file.failure.message))
    if failing or file.failure is not None:
        lines += filter(None, _engines(file))
    clear_progress()
    print("\n".join(lines), file=out, flush=True)


def _blocks(results: Iterable[Result]) -> Iterator[list[Result]]:
    pending: list[Result] = []
    last = time.monotonic()
    for result in results:
        pending.append(result)
        if len(pending) >= _ROWS or time.monotonic() - last > _SECONDS:
            yield pending
            pending, last = [], time.monotonic()
    if pending:
        yield pending


def clear_progress() -> None:
    """Erase the progress line before other output."""
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class FileProgress:
    """Show progress on a terminal after the first second: files, testcases of the current file, time left.

    Args:
        files: how many there are.
    """

    def __init__(self, files: int) -> None:
        self.files = files
        self.done = 0
        self.bad = 0
        self._started = self._last = time.monotonic()

    def file(self, done: int, bad: int) -> None:
        """Note how many files are done and how many of them did not pass."""
        self.done, self.bad = done, bad
        self.testcase(0, 0)

    def testcase(self, done: int, total: int) -> None:
        """Show how many testcases of the current file are done."""
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self._started < 1 or now - self._last < 0.2:
            return
        self._last = now
        print(f"\r\x1b[K{self.line(now - self._started, done, total)}", end="", file=sys.stderr, flush=True)

    def line(self, seconds: float, done: int, total: int) -> str:
        """Return the progress line.

        >>> progress = FileProgress(10)
        >>> progress.done, progress.bad = 4, 1
        >>> progress.line(8.0, 50, 100)
        '4/10 files, 1 not passed, testcase 50/100, about 10 s left'
        """
        parts = [f"{self.done}/{self.files} files"] if self.files > 1 else []
        if self.bad:
            parts.append(f"{self.bad} not passed")
        if total > 1:
            parts.append(f"testcase {done}/{total}")
        whole = self.done + (done / total if total else 0.0)
        if whole and whole < self.files:
            parts.append(f"about {seconds / whole * (self.files - whole):.0f} s left")
        return ", ".join(parts)
