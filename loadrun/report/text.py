"""Results and model descriptions as text tables, in colour on terminals."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from ..base.errors import clean, indented
from ..base.registry import late
from ..compare.results import Verdict
from ..runner import FileResult, OutputResult, Result

with late(__name__):
    import tabulate

    from . import fitting

if TYPE_CHECKING:
    from ..verify.bench import Timing

_COLOURS = {
    Verdict.PASS: "32",
    Verdict.NOT_COMPARED: "33",
    Verdict.FAIL: "1;31",
    Verdict.ERROR: "1;35",
    Verdict.TIMEOUT: "1;35",
    Verdict.CRASH: "1;35",
}


_NAMES = ("alive", "engine", "file", "holds", "model", "name", "operator", "output", "type")
"""Columns whose cells are shortened in their middle where the terminal is too narrow."""
_KEPT = ("testcase", "verdict", "checks")
"""Columns that stay in their rows, however narrow the terminal is."""


class Style:
    """Paints words by verdict, or leaves them as they are.

    Args:
        colour: whether to paint.
        width: columns of the terminal that tables are to fit, None for none.

    >>> Style(True).verdict(Verdict.PASS, "pass"), Style(False).verdict(Verdict.PASS, "pass")
    ('\\x1b[32mpass\\x1b[0m', 'pass')
    """

    def __init__(self, colour: bool = False, width: int | None = None) -> None:
        self.colour = colour
        self.width = width

    def verdict(self, verdict: Verdict, word: str) -> str:
        """Return a word in the colour of a verdict."""
        return f"\x1b[{_COLOURS[verdict]}m{word}\x1b[0m" if self.colour and word.strip() else word


PLAIN = Style()


def window(out: TextIO) -> int | None:
    """Return the columns of a terminal, None if there is none."""
    if not out.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(out.fileno()).columns or None
    except (OSError, ValueError):
        return None


def style_for(out: TextIO) -> Style:
    """Return the style for a stream: colours on a terminal or with FORCE_COLOR, unless NO_COLOR is set."""
    forced = os.environ.get("FORCE_COLOR", "0") not in ("", "0")
    terminal = out.isatty() and os.environ.get("TERM") != "dumb"
    return Style((forced or terminal) and not os.environ.get("NO_COLOR"), window(out))


def table(rows: Iterable[Sequence[Any]], headers: Sequence[str], right: Iterable[int] = ()) -> str:
    """Return a plain table that fits the terminal; `right` lists the columns that are aligned to the right."""
    cells = [[str(c) for c in row] for row in rows]
    width, numbers = window(sys.stdout), set(right)
    names = [h for h in headers if h in _NAMES]
    how = (
        None
        if width is None
        else fitting.fit(headers, cells, width, names=names, kept=(headers[0], *_KEPT), margin=2)
    )
    shown = [*range(len(headers))] if how is None else how.row
    limit = {i: how.name for i in shown if headers[i] in names} if how is not None else {}
    lines = tabulate.tabulate(
        [[fitting.shortened(r[i], limit[i]) if i in limit else r[i] for i in shown] for r in cells],
        [headers[i] for i in shown],
        tablefmt="simple",
        colalign=["right" if i in numbers else "left" for i in shown] if cells else None,
        disable_numparse=True,
    ).splitlines()
    return "\n".join(
        lines if how is None or width is None else fitting.with_rest(lines, headers, cells, how, width)
    )


def shape_text(shape: Sequence[int] | None) -> str:
    """``1x3x224x224``, or ``?`` when unknown."""
    return "?" if shape is None else "x".join(map(str, shape)) or "scalar"


def _error_text(x: float | None) -> str:
    return "-" if x is None else f"{x:.4g}"


def head(file: FileResult) -> str:
    """Return the lines above a file's results."""
    lines = [clean(file.path, 200), *(warning(w) for w in file.warnings)]
    return "\n".join(lines)


def engine(file: FileResult) -> str:
    """Return the line that says what executed a file; empty for the reference engine, the default."""
    about = None if file.entrants else file.engine
    return "" if about is None or about.engine == "reference" else f"  engine: {clean(about.text, 300)}"


def warning(text: str) -> str:
    """Return a warning line."""
    return f"  warning: {clean(text, 300)}"


def error(message: str) -> str:
    """Return lines on why a file could not be read or executed."""
    return "  error: " + indented(message)


_HEADERS = ("testcase", "output", "shape", "dtype", "max error", "tolerance", "verdict", "ms")
_BESIDE = (
    "testcase",
    "output",
    "engine",
    "shape",
    "dtype",
    "max error",
    "tolerance",
    "max abs",
    "from first",
    "abs from first",
    "verdict",
    "ms",
)
"""The columns where several engines run side by side; an error is relative for numbers beyond 1, "abs" in units."""
_RIGHT = ("testcase", "max error", "tolerance", "max abs", "from first", "abs from first", "ms")
_WORDS = {
    "pass": Verdict.PASS,
    "FAIL": Verdict.FAIL,
    "ERROR": Verdict.ERROR,
    "not compared": Verdict.NOT_COMPARED,
}


class Rows:
    """A table of results that is printed piece by piece, a row per output; columns grow with what they hold.

    Where several engines run side by side, the rows say which and how far it is apart from the first one.

    Args:
        style: colours of verdicts.
        metrics: whether outputs that pass are explained as well.
        engines: names of the engines that run side by side, by which their column is wide enough from the first row on.

    >>> import loadrun
    >>> rows, results = Rows(), loadrun.run("fixtures/nets/mlp.mge")
    >>> [len(rows.block(results[i : i + 2]).splitlines()) for i in (0, 2)]
    [4, 1]
    """

    def __init__(self, style: Style = PLAIN, *, metrics: bool = False, engines: Sequence[str] = ()) -> None:
        self.headers: tuple[str, ...] = ()
        self.shown: tuple[str, ...] = ()
        self.widths: list[int] = []
        self.style = style
        self.metrics = metrics
        self.engines = engines

    def block(self, results: Iterable[Result]) -> str:
        """Yield the rows of further results, the first time below headers, and details of every failure."""
        rows: list[list[str]] = []
        notes: list[str] = []
        for r in results:
            self.headers = self.headers or (_HEADERS if r.choice is None else _BESIDE)
            case = "-" if r.index is None else str(r.index)
            where = f"testcase {case}" if r.choice is None else f"testcase {case}, {clean(r.choice, 60)}"
            if r.verdict is Verdict.ERROR or (r.message and not r.outputs):
                word = "ERROR" if r.verdict is Verdict.ERROR else "not run"
                cells = {"testcase": case, "engine": clean(r.choice or "", 60), "verdict": word}
                rows.append([cells.get(h, "") for h in self.headers])
                notes.append(f"  {where}: {clean(r.message or '', 2000)}")
            for i, out in enumerate(r.outputs):
                cells = _cells(case, out, r, f"{r.seconds * 1e3:.2f}" if i == 0 else "")
                rows.append([cells[h] for h in self.headers])
                if out.verdict is Verdict.FAIL or (self.metrics and out.comparison is not None):
                    notes += _failure(where, out)
                notes += _notes(where, out)
        return "\n".join([*self._lines(rows), *notes])

    def _lines(self, rows: list[list[str]]) -> list[str]:
        if not rows:
            return []
        if self.style.width is None:
            return self._aligned(self.headers, rows)

        how = fitting.fit(self.headers, rows, self.style.width, names=_NAMES, kept=_KEPT)
        shown = tuple(self.headers[i] for i in how.row)
        lines = self._aligned(
            shown,
            [
                [fitting.shortened(r[i], how.name) if self.headers[i] in _NAMES else r[i] for i in how.row]
                for r in rows
            ],
        )
        return fitting.with_rest(lines, self.headers, rows, how, self.style.width)

    def _aligned(self, headers: tuple[str, ...], rows: list[list[str]]) -> list[str]:
        if headers != self.shown:
            self.shown, self.widths = headers, []
        first = not self.widths
        # Written here, in the form of `table`, since every replay needs it and few need tabulate.
        names = max((len(clean(e, 60)) for e in self.engines), default=0)
        more = 2 if self.style.width is None else 0
        widths = self.widths or [max(len(h) + more, names if h == "engine" else 0) for h in headers]
        columns = zip(widths, zip(*rows, strict=True), strict=True)
        self.widths = [max(width, *map(len, column)) for width, column in columns]
        above = [list(headers), ["-" * width for width in self.widths]] if first else []
        return [self._line(row) for row in (*above, *rows)]

    def _line(self, row: list[str]) -> str:
        columns = zip(self.shown, row, self.widths, strict=True)
        cells = [c.rjust(width) if h in _RIGHT else c.ljust(width) for h, c, width in columns]
        at = self.shown.index("verdict")
        verdict = _WORDS.get(row[at].split(" LOOSENED")[0])
        if verdict is not None:
            cells[at] = self.style.verdict(verdict, row[at]) + " " * (self.widths[at] - len(row[at]))
        return "  ".join(cells).rstrip()


def verdict_text(out: OutputResult, result: Result) -> str:
    """Return an output's verdict, or what several engines make of it where no value is expected."""
    if out.is_between:
        return "compared with each other only"
    return "baseline" if out.is_free and result.baseline else out.verdict.value


def _cells(case: str, out: OutputResult, result: Result, ms: str) -> dict[str, str]:
    """Return what is in the row of an output, by column."""
    verdict = "FAIL" if out.verdict is Verdict.FAIL else verdict_text(out, result)
    if out.tolerance.loosened is not None:
        verdict += " LOOSENED"
    apart = result.apart.get(out.name)
    return {
        "testcase": case,
        "output": clean(out.name),
        "engine": clean(result.choice or "", 60),
        "shape": shape_text(out.shape),
        "dtype": out.dtype.text,
        "max error": _error_text(out.error),
        "tolerance": _error_text(out.tolerance.maxerr),
        "max abs": "-" if out.comparison is None else _error_text(out.comparison.measures.max_abs),
        "abs from first": "" if apart is None else _error_text(apart.measures.max_abs),
        "from first": "" if apart is None else _error_text(apart.max_error),
        "verdict": verdict,
        "ms": ms,
    }


def _failure(where: str, out: OutputResult) -> list[str]:
    comparison = out.comparison
    lead = f"  {where}, output {clean(out.name)}: "
    if comparison is None:
        return [f"{lead}the check failed"]
    return [
        lead + line if i == 0 else "    " + line for i, line in enumerate(comparison.explain().splitlines())
    ]


def _notes(where: str, out: OutputResult) -> list[str]:
    """Return lines on why nothing was compared, and notes on a verdict."""
    said = [*([f"not compared: {out.reason}"] if out.reason else []), *out.notes]
    loosened, policy = out.tolerance.loosened, out.tolerance.policy
    if loosened is not None:
        replaced = f"LOOSENED: {policy.text} in place of the file's own check"
        said.append(replaced if policy.loosens else f"LOOSENED: the tolerance was {loosened:g}")
    return [f"  {where}, output {clean(out.name)}: {clean(line, 400)}" for line in said]


def file_line(file: FileResult, seconds: float, style: Style = PLAIN) -> str:
    """Return the line of a file among many: verdict, name, what was checked, seconds of loading and running it."""
    verdict = file.verdict
    word = verdict.value if verdict in (Verdict.PASS, Verdict.NOT_COMPARED) else verdict.value.upper()
    if file.excused:
        word = "xfail"
    n = file.counts
    parts = [f"{n.failed} of {_count(n.passed + n.failed, 'check')} failed"] if n.failed else []
    if not parts:
        parts = [_count(n.passed, "check"), *([_count(n.testcases, "testcase")] if n.testcases else [])]
    if n.errors:
        parts.append(_count(n.errors, "error"))
    return f"{style.verdict(verdict, f'{word:12}')}  {clean(file.path, 200)}  {', '.join(parts)}, {seconds:.2f} s"


def timing_line(timing: Timing) -> str:
    """Return a line of statistics, in milliseconds."""
    which = "" if timing.testcase is None else f"testcase {timing.testcase}: "
    parts = [f"{which}{len(timing.samples)} runs after {timing.warmup} warm-up"]
    parts += [
        f"median {timing.median * 1e3:.3f} ms",
        f"min {timing.best * 1e3:.3f}",
        f"mean {timing.mean * 1e3:.3f}",
    ]
    parts.append(f"MAD {timing.deviation * 1e3:.3f}")
    for p in (90, 99):
        value = timing.percentile(p)
        if value is not None:
            parts.append(f"p{p} {value * 1e3:.3f}")
    if timing.processor:
        parts.append(f"cpu {timing.cpu.median * 1e3:.3f}")
    if timing.disturbed:
        parts.append(f"they got {timing.share:.0%} of a processor")
    return ", ".join(parts)


def summary(files: Sequence[FileResult]) -> str:
    """Return the summary line of all files."""
    passed, failed = sum(f.counts.passed for f in files), sum(f.counts.failed for f in files)
    errors = sum(f.counts.errors + (not f.complete and f.verdict is Verdict.ERROR) for f in files)
    silent = [f.counts for f in files if f.verdict is Verdict.NOT_COMPARED]
    part = sum(n.passed > 0 for n in silent)
    between = sum(n.between > 0 and not n.passed for n in silent)
    runs = sum(f.counts.testcases for f in files)
    parts = [_count(len(files), "file"), _count(runs, "testcase"), _count(passed + failed, "check")]
    parts[-1] += f": {passed} passed, {failed} failed"
    if errors:
        parts.append(_count(errors, "error"))
    for verdict, word in ((Verdict.TIMEOUT, "timeout"), (Verdict.CRASH, "crash")):
        if n := sum(f.verdict is verdict for f in files):
            parts.append(f"{n} {word if n == 1 else {'timeout': 'timeouts', 'crash': 'crashes'}[word]}")
    if len(silent) > part + between:
        parts.append(f"{_count(len(silent) - part - between, 'file')} with nothing compared")
    if between:
        parts.append(f"{_count(between, 'file')} compared between engines only")
    if part:
        parts.append(f"{_count(part, 'file')} not compared in full")
    if n := sum(f.excused for f in files):
        parts.append(_count(n, "expected failure"))
    return ", ".join(parts)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
