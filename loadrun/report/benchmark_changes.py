"""What changed between two benchmarks: what is slower or faster beyond what chance and the clock do."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..base.errors import FormatError
from ..verify.bench.files import BASELINE, VERSION, counterparts, subject_keys, timing_of
from ..verify.bench.timing import Timing, change


def benchmark_changes(
    old: object, new: object, slower: float
) -> Iterator[tuple[str, str, str, str, str, str]]:
    """Compare two reports that `loadrun bench --json` wrote.

    A model is slower or faster when the ratio of the medians exceeds `slower`, its 95 % interval leaves no doubt, and
    the medians differ by more than the samples of either spread (median absolute deviation). Times are those of the
    processor where runs of either waited for it.

    Args:
        old, new: the parsed reports.
        slower: how many times longer a run must take.

    Yields:
        kind, file, an empty text, engine with threads and batch, before and now.

    Raises:
        FormatError: one is no such report.

    >>> def report(seconds):
    ...     key = {"file": "m.mge", "engine": "reference", "threads": None, "batch": None}
    ...     return {"benchmark": 2, "subjects": [{**key, "wall_seconds": seconds}]}
    >>> list(benchmark_changes(report([1.0, 1.1, 0.9] * 9), report([2.0, 2.1, 1.9] * 9), 1.1))
    [('slowdown', 'm.mge', '', 'reference', '1000.000 ms', '2000.000 ms')]
    >>> list(benchmark_changes(report([1.0, 1.9, 0.5] * 9), report([1.2, 1.9, 0.5] * 9), 1.1))
    []
    """
    before, now = _subjects(old, "the old report"), _subjects(new, "the new report")
    pairs = list(zip(before, counterparts(before, now), strict=True))
    was_on, is_on = (_processor(x) for x in (old, new))
    if was_on != is_on:
        yield "other processor", "", "", "", str(was_on), str(is_on)
    for key, (was, current) in zip(subject_keys(before), pairs, strict=True):
        where = key[0], "", _label(key)
        if current is None:
            yield "missing", *where, _ms(timing_of(was)), "-"
            continue
        bad = current.get("verdict") in ("fail", "error") and was.get("verdict") not in ("fail", "error")
        if bad:
            yield "newly failing", *where, str(was.get("verdict", "-")), str(current["verdict"])
        a, b = timing_of(was), timing_of(current)
        speed = change(a, b)
        if speed.share is not None:
            a, b = a.cpu, b.cpu
        of = "" if speed.share is None else " of the processor"
        told = speed.told and abs(a.median - b.median) > max(a.deviation, b.deviation)
        if told and b.median > slower * a.median:
            yield "slowdown", *where, f"{_ms(a)}{of}", f"{_ms(b)}{of}"
        elif told and a.median > slower * b.median:
            yield "speedup", *where, f"{_ms(a)}{of}", f"{_ms(b)}{of}"
    kept = {id(current) for _, current in pairs}
    for key, current in zip(subject_keys(now), now, strict=True):
        if id(current) not in kept:
            yield "new", key[0], "", _label(key), "-", _ms(timing_of(current))


def common_subjects(old: object, new: object) -> int:
    """Return how many subjects both reports measured."""
    before, now = _subjects(old, "the old report"), _subjects(new, "the new report")
    return sum(other is not None for other in counterparts(before, now))


def _subjects(report: object, name: str) -> list[Mapping[str, Any]]:
    data = BASELINE(report, name)
    if data["benchmark"] != VERSION:
        raise FormatError(f"{name} is of version {data['benchmark']} of `loadrun bench`, expected {VERSION}")
    subjects: list[Mapping[str, Any]] = data["subjects"]
    return subjects


def _processor(report: object) -> object:
    environment: Mapping[str, Any] = BASELINE(report, "a report").get("environment", {})
    return environment.get("processor")


def _label(key: tuple[Any, ...]) -> str:
    _, engine, threads, batch = key
    parts = [engine, *([f"{threads} threads"] if threads else []), *([f"batch {batch}"] if batch else [])]
    return ", ".join(parts)


def _ms(timing: Timing) -> str:
    return f"{timing.median * 1e3:.3f} ms"
