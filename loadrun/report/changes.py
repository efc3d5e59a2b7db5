"""What changed between two JSON reports: newly failing, mended, larger errors, slower runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..base.errors import FormatError
from ..compare.codes import EXIT_FAIL, EXIT_NOT_COMPARED, EXIT_PASS
from .reading import load_report

__all__ = ["Change", "CompareOptions", "ReportChanges", "changes", "compare_reports", "same_checks"]

_ORDER = ("newly failing", "missing", "mended", "new", "greater error", "slower")
_BAD = ("fail", "error", "timeout", "crash")
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        kind: newly failing, missing, mended, new, greater error or slower.
        file, testcase, output: where; no output for what concerns the whole testcase.
        before, now: verdict, error or milliseconds in words.
    """

    kind: str
    file: str
    testcase: str
    output: str
    before: str
    now: str

    @property
    def bad(self) -> bool:
        """Whether something holds no longer."""
        return self.kind in ("newly failing", "missing")


def changes(old: Any, new: Any, *, growth: float = 2.0, slower: float = 1.5) -> list[Change]:
    """Compare two reports that `loadrun --json` wrote.

    Args:
        old, new: the parsed reports.
        growth: how many times an error must be greater to be told.
        slower: how many times longer a testcase must take to be told, and a millisecond at least.

    Returns:
        the changes, worst kind first.

    Raises:
        FormatError: one is no such report.

    >>> def report(verdict, error):
    ...     out = {"name": "y", "verdict": verdict, "max_error": error}
    ...     case = {"testcase": 0, "verdict": verdict, "seconds": 0.1, "outputs": [out]}
    ...     return {"files": [{"file": "m.mge", "testcases": [case]}]}
    >>> [c.kind for c in changes(report("pass", 0.0), report("fail", 1.0))]
    ['newly failing']
    """
    before, now = _Report(old), _Report(new)
    found = [*_verdicts(before, now, growth), *_times(before, now, slower)]
    return sorted(found, key=lambda c: _ORDER.index(c.kind))


def same_checks(old: Any, new: Any) -> int:
    """How many outputs both reports tell of."""
    return len(_Report(old).outputs.keys() & _Report(new).outputs.keys())


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Say what of two reports is told.

    Attributes:
        growth: how many times an error must be greater.
        slower: how many times longer a testcase must take, and a millisecond at least.
    """

    growth: float = 2.0
    slower: float = 1.5


@dataclass(frozen=True)
class ReportChanges:
    """What changed between two reports.

    Attributes:
        changes: each of them, worst kind first.
        common: how many outputs both reports tell of.
    """

    changes: list[Change]
    common: int

    @property
    def bad(self) -> int:
        """How many of the changes are for the worse."""
        return sum(c.bad for c in self.changes)

    @property
    def exit_code(self) -> int:
        """What `loadrun compare` exits with: 0 when nothing newly fails or is missing."""
        if self.bad:
            return EXIT_FAIL
        return EXIT_PASS if self.common else EXIT_NOT_COMPARED


def compare_reports(
    old: str | os.PathLike[str], new: str | os.PathLike[str], options: CompareOptions | None = None
) -> ReportChanges:
    """Compare two reports that ``loadrun --json`` wrote: what newly fails, is mended, has a greater error, is slower.

    Args:
        old, new: the files.
        options: what is told.

    Raises:
        FormatError: one is no such report.
        OSError: one cannot be read.

    >>> import os, tempfile, loadrun
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = os.path.join(folder, "r.json")
    ...     _ = loadrun.replay_files(["fixtures/nets/mlp.mge"], loadrun.RunOptions(json=report))
    ...     found = compare_reports(report, report)
    >>> found.changes, found.common, found.exit_code
    ([], 3, 0)
    """
    options = options or CompareOptions()
    before, now = load_report(old), load_report(new)
    found = changes(before, now, growth=options.growth, slower=options.slower)
    return ReportChanges(found, same_checks(before, now))


class _Report:
    """Verdict and error of every output, seconds of every testcase."""

    def __init__(self, data: Any) -> None:
        self.outputs: dict[Key, tuple[str, float | None]] = {}
        self.seconds: dict[Key, float] = {}
        try:
            for file in data["files"]:
                for case in file["testcases"]:
                    number = "-" if case["testcase"] is None else str(case["testcase"])
                    # One of several engines is told apart by its name.
                    key = str(file["file"]), f"{number} {case['engine']}" if "engine" in case else number
                    self.seconds[key + ("",)] = float(case["seconds"])
                    if case["verdict"] == "error":
                        self.outputs[key + ("",)] = "error", None
                    for out in case["outputs"]:
                        error = None if out["max_error"] is None else float(out["max_error"])
                        self.outputs[key + (str(out["name"]),)] = str(out["verdict"]), error
                ended = file.get("verdict")
                if ended in ("timeout", "crash") or (ended == "error" and not file["testcases"]):
                    self.outputs[str(file["file"]), "-", ""] = str(ended), None
        except (KeyError, TypeError, ValueError) as e:
            raise FormatError(
                f"this is not a report that `loadrun --json` wrote: {type(e).__name__} {e}"
            ) from None


def _verdicts(before: _Report, now: _Report, growth: float) -> Iterator[Change]:
    for key, (was, old_error) in before.outputs.items():
        if key not in now.outputs:
            yield Change("missing", *key, was, "-")
            continue
        verdict, error = now.outputs[key]
        held, holds = was in ("pass", "not compared"), verdict == "pass" or verdict == was
        if held and not holds:
            yield Change("newly failing", *key, was, verdict)
        elif was in _BAD and verdict == "pass":
            yield Change("mended", *key, was, verdict)
        elif error is not None and old_error is not None and error > growth * max(old_error, 1e-12):
            yield Change("greater error", *key, f"{old_error:.4g}", f"{error:.4g}")
    for key in now.outputs.keys() - before.outputs.keys():
        yield Change(
            "newly failing" if now.outputs[key][0] in _BAD[1:] else "new", *key, "-", now.outputs[key][0]
        )


def _times(before: _Report, now: _Report, slower: float) -> Iterator[Change]:
    for key, seconds in before.seconds.items():
        later = now.seconds.get(key)
        if later is not None and later > slower * seconds and later - seconds > 1e-3:
            yield Change("slower", *key, f"{seconds * 1e3:.2f} ms", f"{later * 1e3:.2f} ms")
