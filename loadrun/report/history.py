"""Reports of several runs side by side: pass rates, and verdict, error and time of each file from run to run."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from ..base.errors import clean
from .page import FOOT, HEAD, bars, history_line, table_head
from .reading import run_report
from .text import table

_SHORT = {
    "pass": "pass",
    "not compared": "none",
    "fail": "FAIL",
    "error": "ERROR",
    "timeout": "LATE",
    "crash": "DIED",
}


@dataclass(frozen=True)
class FileRun:
    """A file in one run.

    Attributes:
        verdict: its verdict; "cut" where the run did not come to its end.
        error: the largest error, as a part of its tolerance; None if nothing was compared.
        seconds: how long its testcases took, with loading.
    """

    verdict: str
    error: float | None
    seconds: float


@dataclass(frozen=True)
class PastRun:
    """One report.

    Attributes:
        path: its file.
        started: when the run began, where the report says so.
        version: of loadrun.
        files: by name.
        cut: that the run did not come to its end, where it did not.
    """

    path: str
    started: str
    version: str
    files: Mapping[str, FileRun] = field(default_factory=dict)
    cut: str | None = None

    @property
    def passed(self) -> int:
        """How many files passed."""
        return sum(f.verdict == "pass" for f in self.files.values())

    @property
    def seconds(self) -> float:
        """How long all files took."""
        return sum(f.seconds for f in self.files.values())


@dataclass(frozen=True)
class History:
    """Runs in the order in which they began; those whose reports do not tell stay where they were named.

    Attributes:
        runs: the reports.
    """

    runs: tuple[PastRun, ...]

    @property
    def names(self) -> list[str]:
        """All files, in the order of their names."""
        return sorted({name for run in self.runs for name in run.files})

    def of(self, name: str) -> list[FileRun | None]:
        """Return a file run by run, None if the run did not have it."""
        return [run.files.get(name) for run in self.runs]


def report_history(reports: Sequence[str | os.PathLike[str]]) -> History:
    """Read the reports of several runs, JSON or JSON lines.

    Raises:
        FormatError: one is no report of `loadrun --json`.
        OSError: one cannot be read.

    >>> import os, tempfile, loadrun
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = os.path.join(folder, "r.jsonl")
    ...     _ = loadrun.replay_files(["fixtures/nets/mlp.mge"], loadrun.RunOptions(json_lines=report))
    ...     found = report_history([report, report])
    >>> [(run.passed, len(run.files)) for run in found.runs], found.of("fixtures/nets/mlp.mge")[0].verdict
    ([(1, 1), (1, 1)], 'pass')
    """
    runs = [_run(os.fspath(path)) for path in reports]
    dated = all(run.started for run in runs)
    return History(tuple(sorted(runs, key=lambda run: run.started) if dated else runs))


def _run(path: str) -> PastRun:
    report = run_report(path)
    files = {f["file"]: _file(f) for f in report["files"]}
    return PastRun(path, report.get("started", ""), report.get("loadrun", ""), files, report.get("cut"))


def _file(entry: Mapping[str, Any]) -> FileRun:
    shares = [
        float(o["max_error"]) / float(o["maxerr"])
        for case in entry["testcases"]
        for o in case["outputs"]
        if o.get("max_error") is not None and o.get("maxerr")
    ]
    # NaN is the largest.
    worst = max(shares, key=lambda x: (x != x, x), default=None)
    seconds = entry.get("load_seconds", 0.0) + sum(case["seconds"] for case in entry["testcases"])
    return FileRun(entry.get("verdict") or "cut", worst, seconds)


def history_table(history: History) -> str:
    """Return the runs as a table, and the files whose verdict is not the same in all of them, or never pass."""
    rows = [
        (i + 1, clean(run.started or run.path, 40), clean(run.version, 20), len(run.files), *_rate(run))
        for i, run in enumerate(history.runs)
    ]
    text = table(rows, ("run", "started", "loadrun", "files", "passed", "rate", "s"), (0, 3, 4, 5, 6))
    odd = [n for n in history.names if {f.verdict for f in history.of(n) if f} != {"pass"}]
    if odd:
        odd = _failing_first(history, odd)
        shown = [
            (clean(n, 80), *(_SHORT.get(f.verdict, f.verdict) if f else "-" for f in history.of(n)))
            for n in odd
        ]
        text += "\n\n" + table(shown, ("file", *(str(i + 1) for i in range(len(history.runs)))))
    steady = len(history.names) - len(odd)
    cut = "".join(f"run {i + 1}: {clean(r.cut, 200)}\n" for i, r in enumerate(history.runs) if r.cut)
    # Runs of a part of the files (-k, --last-failed) leave others out.
    absent = sum(None in history.of(n) for n in history.names)
    partly = (
        f" that have them; {absent} file{'s are' if absent > 1 else ' is'} not in all runs" if absent else ""
    )
    return f"{text}\n\n{cut}{steady} of {len(history.names)} files passed in all runs{partly}"


def _speeds(history: History) -> str:
    """Draw how many files took how much longer in the last run than in the one before."""
    pairs = [(f[-2], f[-1]) for f in map(history.of, history.names) if len(f) > 1]
    factors = [math.log2(b.seconds / a.seconds) for a, b in pairs if a and b and a.seconds and b.seconds]
    if not factors:
        return ""
    counts = [0] * 16
    for factor in factors:
        counts[max(0, min(15, math.floor(4 * factor + 8)))] += 1
    said = [f"2^{k / 4 - 2:g} to 2^{(k + 1) / 4 - 2:g} times as long: {n}" for k, n in enumerate(counts)]
    caption = "files by their time beside the run before; right of the dashed line it is longer"
    return bars(counts, said, caption, ("1/4", "4 times"), 8)


def _failing_first(history: History, names: Sequence[str]) -> list[str]:
    """Order files by how they ended last: those that newly fail, those that fail, the others."""

    def place(name: str) -> int:
        verdicts = [f.verdict for f in history.of(name) if f]
        if verdicts[-1] in ("pass", "not compared"):
            return 2
        return 0 if "pass" in verdicts[-2:-1] else 1

    return sorted(names, key=place)


def _rate(run: PastRun) -> tuple[int, str, str]:
    rate = f"{100 * run.passed / len(run.files):.1f} %" if run.files else "-"
    return run.passed, rate, f"{run.seconds:.2f}"


def history_html(history: History) -> str:
    """Return one page: pass rates, and for each file its verdicts, errors and times as lines over the runs."""
    heads = table_head(("run", "started", "report", "loadrun", "files", "passed", "rate", "s"))
    out = [HEAD, f"<h2>Runs</h2><div class=wide><table>{heads}<tbody>\n"]
    for i, run in enumerate(history.runs):
        path = f"{run.path}: {run.cut}" if run.cut else run.path
        cells = (i + 1, run.started, path, run.version, len(run.files), *_rate(run))
        out.append(f"<tr>{''.join(f'<td>{escape(clean(str(c), 200))}</td>' for c in cells)}</tr>\n")
    rates = [100 * run.passed / len(run.files) if run.files else None for run in history.runs]
    out.append(f"</tbody></table></div>{history_line(rates, 'share of the files that passed', ' %')}")
    out.append(f"{_speeds(history)}\n<h2>Files</h2>\n")
    heads = table_head(("last", "file", "verdicts", "error / tolerance", "s"))
    out.append(f"<div class=wide><table class=overview>{heads}<tbody>\n")
    out += [_file_row(name, history.of(name)) for name in _failing_first(history, history.names)]
    return "".join([*out, "</tbody></table></div>\n", FOOT])


def _file_row(name: str, runs: Sequence[FileRun | None]) -> str:
    last = next((f for f in reversed(runs) if f is not None), FileRun("-", None, 0.0))
    words = " ".join(_SHORT.get(f.verdict, f.verdict) if f else "-" for f in runs)
    error = history_line([f.error if f else None for f in runs])
    seconds = history_line([f.seconds if f else None for f in runs])
    kind = escape(last.verdict.replace(" ", "-"))
    return (
        f'<tr class="{kind}"><td>{escape(clean(last.verdict, 20))}</td><td>{escape(clean(name, 300))}</td>'
        f"<td>{escape(words)}</td>"
        f'<td data-value="{last.error or 0:g}">{error}</td><td data-value="{last.seconds:g}">{seconds}</td></tr>\n'
    )
