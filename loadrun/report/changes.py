"""What changed between two JSON reports, of runs or benchmarks: verdicts, errors, times, and what was asked."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..base.errors import FormatError, UsageError
from ..compare.policy import Policy, parse
from ..compare.results import EXIT_FAIL, EXIT_NOT_COMPARED, EXIT_PASS
from ..verify.bench.files import BASELINE, VERSION, counterparts, subject_keys, timing_of
from ..verify.bench.timing import Timing, change
from .reading import checked_report, load_report

_ORDER = (
    "cut",
    "newly failing",
    "missing",
    "greater tolerance",
    "weaker policy",
    "fixed",
    "new",
    "greater error",
    "smaller tolerance",
    "other policy",
    "other inputs",
    "other expected values",
    "other model",
    "other engine",
    "slower",
)
_BAD = ("fail", "error", "timeout", "crash")
_SHARE = 0.1
"""An error below this share of its tolerance, or what it grew from, is no growth."""
_GROWTH = 2.0
"""How many times an error must be greater to be told."""
_LEAST = 0.01
"""Seconds by which a single run may be slower for what else the machine does."""
_FEW = 9
"""Testcases that tell how much chance is in their times."""
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        kind: newly failing, missing, greater tolerance, weaker policy, fixed, new, greater error, smaller tolerance,
            other policy, other inputs, other expected values, other model, other engine (or another way of it),
            slower; cut for a report whose run did not come to its end.
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
        return self.kind in (
            "cut",
            "newly failing",
            "missing",
            "greater tolerance",
            "weaker policy",
            "greater error",
            "slowdown",
        )


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Describe what of two reports is told.

    Attributes:
        max_slowdown: of two: report runs that are slower by more than this: 10% or 1.1x (default 50%; for reports of
            bench, 10%, which counts as a failure). A run that is slower by less than 10 ms is not. In Python,
            0.1 for 10 %.
    """

    max_slowdown: float | None = None


@dataclass(frozen=True)
class ReportChanges:
    """What changed between two reports.

    Attributes:
        changes: each of them, worst kind first.
        common: how many outputs both reports tell of.
        things: what is counted so, "outputs", or "measurements" of a benchmark.
    """

    changes: list[Change]
    common: int
    things: str = "outputs"

    @property
    def bad(self) -> int:
        """How many of the changes are for the worse."""
        return sum(c.bad for c in self.changes)

    @property
    def exit_code(self) -> int:
        """What `loadrun report` exits with for two: 0 when nothing is for the worse."""
        if self.bad:
            return EXIT_FAIL
        return EXIT_PASS if self.common else EXIT_NOT_COMPARED


def compare_reports(
    old: str | os.PathLike[str], new: str | os.PathLike[str], options: CompareOptions | None = None
) -> ReportChanges:
    """Compare two reports that ``loadrun --json`` (or both ``loadrun bench --json``) wrote: what is for the worse.

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
    slowdown = (options or CompareOptions()).max_slowdown
    before, now = load_report(old), load_report(new)
    kinds = [isinstance(x, dict) and "benchmark" in x for x in (before, now)]
    if any(kinds):
        if not all(kinds):
            raise FormatError("one report is of `loadrun bench`, the other of `loadrun --json`")
        return benchmark_changes(before, now, 1 + (0.1 if slowdown is None else slowdown))
    was, is_now = _Report(before, os.fspath(old)), _Report(now, os.fspath(new))
    deltas = [*_cut(was, is_now), *_verdicts(was, is_now), *_asked(was, is_now)]
    # A testcase must take 10 ms longer at least, since it is a single run.
    deltas += _times(was, is_now, 1 + (0.5 if slowdown is None else slowdown))
    deltas.sort(key=lambda c: _ORDER.index(c.kind))
    return ReportChanges(deltas, len(was.outputs.keys() & is_now.outputs.keys()))


def _engine_text(engine: Mapping[str, Any]) -> str:
    """Return an engine and the way it took, without its version."""
    provider = f" ({engine['provider']})" if engine.get("provider") else ""
    parts = (f"{engine['engine']}{provider}", engine.get("arithmetic"), engine.get("way"))
    return ", ".join(p for p in (*parts, *engine.get("options", ())) if p)


class _Report:
    """Verdict, error and tolerance of every output, seconds and data of every testcase, the model of every file."""

    def __init__(self, data: object, path: str | None = None) -> None:
        self.outputs: dict[Key, tuple[str, float | None]] = {}
        self.tolerances: dict[Key, float] = {}
        self.policies: dict[Key, str] = {}
        self.seconds: dict[Key, float] = {}
        self.inputs: dict[Key, tuple[str, str, str | None]] = {}
        self.models: dict[Key, str] = {}
        self.engines: dict[tuple[str, str], str] = {}
        report = checked_report(data, path)
        self.cut: str | None = report.get("cut")
        for file in report["files"]:
            name = file["file"]
            if file.get("model_digest") is not None:
                self.models[name, "", ""] = file["model_digest"]
            for engine in (file.get("engine"), *file.get("engines", ())):
                if engine and engine.get("engine"):
                    self.engines[name, engine.get("name", "")] = _engine_text(engine)
            for case in file["testcases"]:
                self._add(name, case)
            ended = file.get("verdict")
            if ended in ("timeout", "crash") or (ended == "error" and not file["testcases"]):
                self.outputs[name, "-", ""] = ended, None

    def _add(self, name: str, case: Mapping[str, Any]) -> None:
        """Note a testcase of a file."""
        number = "-" if case["testcase"] is None else str(case["testcase"])
        # One of several engines is distinguished by its name.
        key = name, f"{number} {case['engine']}" if "engine" in case else number
        self.seconds[key + ("",)] = case["seconds"]
        if case.get("data_digest") is not None:
            shapes = ", ".join(f"{n} {s}" for n, s in (case.get("inputs") or {}).items())
            self.inputs[key + ("",)] = case["data_digest"], shapes, case.get("input_digest")
        if case["verdict"] == "error":
            self.outputs[key + ("",)] = "error", None
        for out in case["outputs"]:
            self.outputs[key + (out["name"],)] = out["verdict"], out["max_error"]
            if out.get("maxerr") is not None:
                self.tolerances[key + (out["name"],)] = out["maxerr"]
            if "policy" in out:
                self.policies[key + (out["name"],)] = out["policy"] or ""


def _verdicts(before: _Report, now: _Report) -> Iterator[Change]:
    for key, (was, old_error) in before.outputs.items():
        if key not in now.outputs:
            yield Change("missing", *key, was, "-")
            continue
        verdict, error = now.outputs[key]
        passed, holds = was in ("pass", "not compared"), verdict == "pass" or verdict == was
        if passed and not holds:
            yield Change("newly failing", *key, was, verdict)
        elif was in _BAD and verdict == "pass":
            yield Change("fixed", *key, was, verdict)
        elif _grew(old_error, error, before.tolerances.get(key, 0.0)):
            yield Change("greater error", *key, f"{old_error:.4g}", f"{error:.4g}")
    for key in now.outputs.keys() - before.outputs.keys():
        yield Change(
            "newly failing" if now.outputs[key][0] in _BAD[1:] else "new", *key, "-", now.outputs[key][0]
        )


def _grew(before: float | None, now: float | None, tolerance: float) -> bool:
    """Return whether an error is greater by more than a factor, beyond what is far within its tolerance.

    >>> _grew(1e-7, 1e-6, 1e-4), _grew(0.025, 999.0, 1000.0), _grew(0.1, math.nan, 1e-4)
    (False, True, True)
    """
    if before is None or now is None or math.isnan(before):
        return False
    # NaN is the largest error.
    return not now <= _GROWTH * max(before, _SHARE * tolerance, 1e-12)


def _cut(old: _Report, new: _Report) -> Iterator[Change]:
    for name, report in (("old", old), ("new", new)):
        if report.cut:
            yield Change("cut", f"the {name} report", "", "", "", report.cut)


def _asked(before: _Report, now: _Report) -> Iterator[Change]:
    """Name what ran on other numbers or by other tolerances, so that equal verdicts do not say the same."""
    for key, was in before.tolerances.items():
        limit = now.tolerances.get(key, was if key not in now.outputs else float("inf"))
        if limit != was:
            kind = "greater tolerance" if limit > was else "smaller tolerance"
            yield Change(kind, *key, f"{was:g}", "none" if key not in now.tolerances else f"{limit:g}")
    for key, terms in before.policies.items():
        # Reports of older versions do not tell.
        others = now.policies.get(key, terms)
        if others != terms and (how := _policy_change(terms, others)):
            yield Change(how, *key, terms or "none", others or "none")
    for key, inputs in before.inputs.items():
        other = now.inputs.get(key, inputs)
        if other != inputs:
            alike, same = other[1] == inputs[1], other[2] is not None and other[2] == inputs[2]
            yield Change(
                "other expected values" if same else "other inputs",
                *key,
                *(f"digest {x[0][:8]}" if alike else x[1] for x in (inputs, other)),
            )
    for key, model in before.models.items():
        if now.models.get(key, model) != model:
            yield Change("other model", *key, f"digest {model[:8]}", f"digest {now.models[key][:8]}")
    moved: dict[tuple[str, str], list[str]] = {}
    for place, engine in before.engines.items():
        if now.engines.get(place, engine) != engine:
            moved.setdefault((engine, now.engines[place]), []).append(place[0])
    for pair, files in moved.items():
        yield Change("other engine", files[0] if len(files) == 1 else f"{len(files)} files", "", "", *pair)


def _policy_change(before: str, now: str) -> str | None:
    """Name the change of a policy; None if only its spelling is another."""
    try:
        old, new = (parse(text) if text else Policy() for text in (before, now))
    except UsageError:
        # A version of loadrun with other terms wrote one of them.
        return "other policy"
    if new.is_weaker(old):
        return "weaker policy"
    return "other policy" if old.is_weaker(new) else None


def _times(before: _Report, now: _Report, slower: float) -> Iterator[Change]:
    """Tell of testcases that take longer by more than chance makes testcases of these two reports differ."""
    limit = max(slower, _spread(before, now))
    for key, seconds in before.seconds.items():
        later = now.seconds.get(key)
        if later is not None and later > limit * seconds and later - seconds > _LEAST:
            yield Change("slower", *key, f"{seconds * 1e3:.2f} ms", f"{later * 1e3:.2f} ms")


def _spread(before: _Report, now: _Report) -> float:
    """Return the factor that times of equal testcases differ by, as the reports show it; 1 where they are few.

    It is three deviations of the ratios about their median, so that it stays 1 where all are slower alike.
    """
    both = [(before.seconds[k], now.seconds[k]) for k in before.seconds.keys() & now.seconds.keys()]
    ratios = [math.log(b / a) for a, b in both if a and b]
    if len(ratios) < _FEW:
        return 1.0
    middle = median(ratios)
    return math.exp(3 * 1.4826 * median(abs(r - middle) for r in ratios))


def benchmark_changes(old: object, new: object, slower: float) -> ReportChanges:
    """Compare two reports that `loadrun bench --json` wrote.

    A model is slower or faster when the ratio of the medians exceeds `slower`, its 95 % interval leaves no doubt, and
    the medians differ by more than the samples of either spread (median absolute deviation). Times are those of the
    processor where runs of either waited for it.

    Args:
        old, new: the parsed reports.
        slower: how many times longer a run must take.

    Returns:
        changes with engine, threads and batch in place of an output.

    Raises:
        FormatError: one is no such report.

    >>> def report(seconds):
    ...     key = {"file": "m.mge", "engine": "reference", "threads": None, "batch": None}
    ...     return {"benchmark": 2, "subjects": [{**key, "wall_seconds": seconds}]}
    >>> (slow,) = benchmark_changes(report([1.0, 1.1, 0.9] * 9), report([2.0, 2.1, 1.9] * 9), 1.1).changes
    >>> slow.kind, slow.output, slow.before, slow.now
    ('slowdown', 'reference', '1000.000 ms', '2000.000 ms')
    >>> benchmark_changes(report([1.0, 1.9, 0.5] * 9), report([1.2, 1.9, 0.5] * 9), 1.1).changes
    []
    """
    was, now = _benchmark(old, "the old report"), _benchmark(new, "the new report")
    before, after = was["subjects"], now["subjects"]
    others = counterparts(before, after)
    changes: list[Change] = []
    was_on, is_on = (report.get("environment", {}).get("processor") for report in (was, now))
    if was_on != is_on:
        changes.append(Change("other processor", "", "", "", str(was_on), str(is_on)))
    for key, subject, other in zip(subject_keys(before), before, others, strict=True):
        changes += _subject_changes((key[0], "", _label(key)), subject, other, slower)
    kept = {id(other) for other in others}
    for key, subject in zip(subject_keys(after), after, strict=True):
        if id(subject) not in kept:
            changes.append(Change("new", key[0], "", _label(key), "-", _ms(timing_of(subject))))
    return ReportChanges(changes, sum(other is not None for other in others), "measurements")


def _subject_changes(
    where: Key, was: Mapping[str, Any], current: Mapping[str, Any] | None, slower: float
) -> Iterator[Change]:
    """Compare a subject with the same one of the new report."""
    if current is None:
        yield Change("missing", *where, _ms(timing_of(was)), "-")
        return
    if current.get("verdict") in ("fail", "error") and was.get("verdict") not in ("fail", "error"):
        yield Change("newly failing", *where, str(was.get("verdict", "-")), str(current["verdict"]))
    a, b = timing_of(was), timing_of(current)
    speed = change(a, b)
    if speed.share is not None:
        a, b = a.cpu, b.cpu
    of = "" if speed.share is None else " of the processor"
    told = speed.told and abs(a.median - b.median) > max(a.deviation, b.deviation)
    if told and b.median > slower * a.median:
        yield Change("slowdown", *where, f"{_ms(a)}{of}", f"{_ms(b)}{of}")
    elif told and a.median > slower * b.median:
        yield Change("speedup", *where, f"{_ms(a)}{of}", f"{_ms(b)}{of}")


def _benchmark(report: object, name: str) -> Mapping[str, Any]:
    """Check what of a report of `loadrun bench --json` is looked at."""
    data: Mapping[str, Any] = BASELINE(report, name)
    if data["benchmark"] != VERSION:
        raise FormatError(f"{name} is of version {data['benchmark']} of `loadrun bench`, expected {VERSION}")
    return data


def _label(key: tuple[Any, ...]) -> str:
    _, engine, threads, batch = key
    parts = [engine, *([f"{threads} threads"] if threads else []), *([f"batch {batch}"] if batch else [])]
    return ", ".join(parts)


def _ms(timing: Timing) -> str:
    return f"{timing.median * 1e3:.3f} ms"
