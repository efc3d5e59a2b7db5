"""Results and model descriptions as text tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..bench import Timing
from ..dtypes import DType
from ..runner import FileResult, OutputResult, Result, Verdict
from ..shown import clean, indented

__all__ = [
    "Rows",
    "dtype_text",
    "error",
    "head",
    "shape_text",
    "summary",
    "table",
    "timing_line",
    "warning",
]


def table(rows: Iterable[Sequence[Any]], headers: Sequence[str], right: Iterable[int] = ()) -> str:
    """A plain table; `right` lists the columns that are aligned to the right."""
    from tabulate import tabulate  # for start-up

    align = ["right" if i in set(right) else "left" for i in range(len(headers))]
    return tabulate(
        [[str(c) for c in row] for row in rows],
        headers,
        tablefmt="simple",
        colalign=align,
        disable_numparse=True,
    )


def shape_text(shape: Sequence[int] | None) -> str:
    """``1x3x224x224``, or ``?`` when unknown."""
    return "?" if shape is None else "x".join(map(str, shape))


def dtype_text(dtype: DType) -> str:
    """Short dtype: numpy's name for plain types, the quantized type with its scale otherwise."""
    return str(dtype) if dtype.is_quantized or dtype.name == "BFloat16" else str(dtype.np)


def _number(x: float | None) -> str:
    return "-" if x is None else f"{x:.4g}"


def head(file: FileResult) -> str:
    """The lines above a file's results."""
    lines = [clean(file.path, 200), *(warning(w) for w in file.warnings)]
    return "\n".join(lines)


def warning(text: str) -> str:
    """A line for something that deserves a look."""
    return f"  warning: {clean(text, 300)}"


def error(message: str) -> str:
    """The lines for why a file could not be read or executed."""
    return "  error: " + indented(message, 9)


_HEADERS = ("testcase", "output", "shape", "dtype", "max error", "tolerance", "verdict", "ms")
_RIGHT = (0, 4, 5, 7)


class Rows:
    """A table of results that is printed piece by piece, a row per output; columns grow with what they hold.

    >>> import loadrun
    >>> rows, results = Rows(), loadrun.run("fixtures/nets/mlp.mge")
    >>> [len(rows.block(results[i : i + 2]).splitlines()) for i in (0, 2)]
    [4, 1]
    """

    def __init__(self) -> None:
        self.widths: list[int] = []

    def block(self, results: Iterable[Result]) -> str:
        """The rows of further results, the first time below headers, and details of every failure."""
        rows: list[list[str]] = []
        notes: list[str] = []
        for r in results:
            case = "-" if r.index is None else str(r.index)
            if r.verdict is Verdict.ERROR:
                rows.append([case, "", "", "", "", "", "ERROR", ""])
                notes.append(f"  testcase {case}: {clean(r.message or '', 2000)}")
            for i, out in enumerate(r.outputs):
                rows.append(_row(case, out, f"{r.seconds * 1e3:.2f}" if i == 0 else ""))
                if out.verdict is Verdict.FAIL:
                    notes += _failure(case, out)
                notes += _notes(case, out)
        return "\n".join([*self._lines(rows), *notes])

    def _lines(self, rows: list[list[str]]) -> list[str]:
        if not rows:
            return []
        if not self.widths:
            lines = table(rows, _HEADERS, right=_RIGHT).splitlines()
            self.widths = [len(dashes) for dashes in lines[1].split()]
            return lines
        columns = zip(self.widths, zip(*rows, strict=True), strict=True)
        self.widths = [max(width, *map(len, column)) for width, column in columns]
        return ["  ".join(_cell(i, c, self.widths[i]) for i, c in enumerate(row)).rstrip() for row in rows]


def _cell(column: int, text: str, width: int) -> str:
    return text.rjust(width) if column in _RIGHT else text.ljust(width)


def _row(case: str, out: OutputResult, ms: str) -> list[str]:
    verdict = {Verdict.PASS: "pass", Verdict.FAIL: "FAIL"}.get(out.verdict, out.verdict.value)
    if out.loosened is not None:
        verdict += " LOOSENED"
    return [
        case,
        clean(out.name),
        shape_text(out.shape),
        dtype_text(out.dtype),
        _number(out.error),
        _number(out.maxerr),
        verdict,
        ms,
    ]


def _failure(case: str, out: OutputResult) -> list[str]:
    found = out.comparison
    lead = f"  testcase {case}, output {clean(out.name)}: "
    if found is None:
        return [f"{lead}the check failed"]
    return [lead + line if i == 0 else "    " + line for i, line in enumerate(found.explain().splitlines())]


def _notes(case: str, out: OutputResult) -> list[str]:
    """Lines for why nothing was compared, and for what deserves a look beside a verdict."""
    said = [*([f"not compared: {out.reason}"] if out.reason else []), *out.notes]
    if out.loosened is not None:
        said.append(f"LOOSENED: the tolerance was {out.loosened:g}")
    return [f"  testcase {case}, output {clean(out.name)}: {clean(line, 400)}" for line in said]


def timing_line(timing: Timing) -> str:
    """One line of statistics, in milliseconds."""
    parts = [f"{len(timing.samples)} runs after {timing.warmup} warm-up"]
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
    return ", ".join(parts)


def summary(files: Sequence[FileResult]) -> str:
    """One line over all files."""
    passed, failed = sum(f.passed for f in files), sum(f.failed for f in files)
    errors = sum(f.errors + bool(f.message) for f in files)
    silent = sum(f.verdict is Verdict.NOT_COMPARED for f in files)
    runs = sum(f.testcases for f in files)
    parts = [_count(len(files), "file"), _count(runs, "testcase"), _count(passed + failed, "check")]
    parts[-1] += f": {passed} passed, {failed} failed"
    if errors:
        parts.append(_count(errors, "error"))
    if silent:
        parts.append(f"{_count(silent, 'file')} with nothing compared")
    return ", ".join(parts)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
