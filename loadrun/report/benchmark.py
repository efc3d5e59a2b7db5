"""Benchmarks as text and as data for JSON, and the comparison with a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base import schema
from ..base.errors import FormatError, InputError
from ..base.text import clean
from ..verify.bench.comparing import Ratio, paired_ratio, ratio
from ..verify.bench.running import Measurement, Subject
from ..verify.bench.timing import needed
from .environment import environment
from .profile import bytes_text
from .text import table

__all__ = [
    "Regression",
    "benchmark_json",
    "benchmark_table",
    "columns",
    "comparisons",
    "regressions",
    "rows",
]

_PERCENTILES = (50, 90, 99)
VERSION = 1
_MOST_SAMPLES = 100_000
_SUBJECT = schema.record(
    {
        "file": schema.text,
        "engine": schema.text,
        "threads": schema.either(schema.integer(0, 2**16)),
        "batch": schema.either(schema.integer(0, 2**32)),
        "wall_seconds": schema.items(schema.number(1e-12), _MOST_SAMPLES, 1),
    }
)
_BASELINE = schema.record(
    {"benchmark": schema.integer(0, 2**16), "subjects": schema.items(_SUBJECT)},
    {"environment": schema.record({}, {"processor": schema.either(schema.text)})},
)
"""What of a baseline is looked at."""


def benchmark_table(found: Sequence[Measurement]) -> str:
    """One line for each subject; times are milliseconds of one pass through all testcases."""
    text = table(rows(found), columns(), range(1, 11))
    return text + "".join(f"\n{line}" for line in _refused(found))


def columns() -> tuple[str, ...]:
    """What the cells of a row are."""
    head = ("model", "testcases", "load ms", "first ms", "p50 ms", "p90 ms", "p99 ms")
    return (*head, "cpu ms", "GFLOP/s", "memory", "passes", "checks")


def rows(found: Sequence[Measurement]) -> list[tuple[object, ...]]:
    """The cells of one row for each subject."""
    subjects = [m.subject for m in found]
    return [(_label(m.subject, subjects), m.cases, *_times(m), *_rest(m)) for m in found]


def _label(subject: Subject, others: Sequence[Subject]) -> str:
    return clean(subject.label(others), 80)


def _times(m: Measurement) -> list[str]:
    shown = [m.timing.percentile(p) for p in _PERCENTILES]
    return [_ms(t) for t in (m.load, m.first, *shown)]


def _rest(m: Measurement) -> list[str]:
    cpu = sum(m.processor) / len(m.processor)
    memory = "-" if m.memory is None else bytes_text(m.memory + m.weights)
    rate = "-" if m.rate is None else f"{m.rate / 1e9:.2f}"
    return [_ms(cpu), rate, memory, str(len(m.wall)), m.verdict.value]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.3f}"


def _refused(found: Sequence[Measurement]) -> list[str]:
    """Why percentiles are left out."""
    least = min(len(m.wall) for m in found)
    missing = [p for p in _PERCENTILES if least < needed(p)]
    return [
        f"p{p} takes {needed(p)} passes, there are {least}: a longer --min-time gives them" for p in missing
    ]


def comparisons(found: Sequence[Measurement]) -> list[str]:
    """Every subject beside the first, whose passes it took turns with."""
    subjects = [m.subject for m in found]
    return [
        paired_ratio(found[0].wall, m.wall).text(_label(m.subject, subjects), _label(subjects[0], subjects))
        for m in found[1:]
    ]


def benchmark_json(found: Sequence[Measurement], warnings: Sequence[str]) -> dict[str, Any]:
    """Everything that was measured, raw samples included; also what a baseline holds."""
    return {
        "benchmark": VERSION,
        "environment": environment(),
        "warnings": list(warnings),
        "subjects": [_subject(m) for m in found],
        "comparisons": [
            {"base": 0, "subject": i, **_ratio(paired_ratio(found[0].wall, m.wall))}
            for i, m in enumerate(found)
            if i
        ],
    }


def _ratio(r: Ratio) -> dict[str, float]:
    return {"ratio": r.value, "low": r.low, "high": r.high}


def _subject(m: Measurement) -> dict[str, Any]:
    return {
        **m.subject.key,
        "path": m.subject.path,
        "about": m.about,
        "verdict": m.verdict.value,
        "testcases": m.cases,
        "load_seconds": m.load,
        "first_seconds": m.first,
        "median_seconds": m.timing.median,
        "percentiles": {str(p): m.timing.percentile(p) for p in _PERCENTILES},
        "deviation_seconds": m.timing.deviation,
        "wall_seconds": m.wall,
        "processor_seconds": m.processor,
        "testcase_seconds": m.each,
        "operations": m.flops,
        "operations_per_second": m.rate,
        "peak_bytes": m.memory,
        "weight_bytes": m.weights,
    }


@dataclass(frozen=True)
class Regression:
    """A subject beside its baseline.

    Attributes:
        text: one line.
        failed: whether it is slower than allowed.
        compared: whether the baseline has it.
    """

    text: str
    failed: bool
    compared: bool = True


def regressions(
    found: Sequence[Measurement], baseline: Mapping[str, Any], allowed: float
) -> list[Regression]:
    """Compare with what `benchmark_json` gave some time ago.

    A subject fails when its median is slower by more than `allowed` and the 95 % interval of the ratio says that it is
    slower at all.

    Args:
        found: what was measured.
        baseline: the data of the baseline.
        allowed: the largest slowdown, 0.1 for 10 %.

    Raises:
        InputError: the baseline holds none of the subjects, or is none.
    """
    try:
        baseline = _BASELINE(baseline, "the baseline")
    except FormatError as e:
        raise InputError(
            f"the baseline is not a file of `loadrun bench --save-baseline`: {e.message}"
        ) from None
    if baseline["benchmark"] != VERSION:
        raise InputError(f"the baseline has the version {baseline['benchmark']}, expected {VERSION}")
    subjects = [m.subject for m in found]
    known = {tuple(s[k] for k in m.subject.key): s for m in found for s in baseline["subjects"]}
    lines = []
    for m in found:
        label = _label(m.subject, subjects)
        was = known.get(tuple(m.subject.key.values()))
        if was is None:
            lines.append(Regression(f"{label}: not compared, it is not in the baseline", False, False))
            continue
        speed = ratio(was["wall_seconds"], m.wall)
        slower = 1 / speed.value - 1
        failed = slower > allowed and speed.high < 1
        verdict = f"FAIL: {slower:.1%} slower, allowed {allowed:.0%}" if failed else "ok"
        lines.append(Regression(f"{speed.text(label, 'its baseline')}: {verdict}", failed))
    if not any(line.compared for line in lines):
        raise InputError(
            "the baseline holds none of what was measured: same file name, engine, threads and batch"
        )
    was_there = baseline.get("environment", {}).get("processor")
    here = environment()["processor"]
    if was_there != here:
        lines.append(
            Regression(f"the baseline was measured on another processor: {was_there}, here {here}", False)
        )
    return lines
