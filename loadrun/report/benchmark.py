"""Benchmarks as text and as data for JSON, and the comparison with a baseline."""

from collections.abc import Sequence
from typing import Any

from ..base.errors import clean
from ..verify.bench.baseline import VERSION
from ..verify.bench.comparing import Ratio, paired_ratio
from ..verify.bench.environment import environment
from ..verify.bench.measurement import Measurement, Subject
from ..verify.bench.timing import needed
from .profile import bytes_text
from .text import table

_PERCENTILES = (50, 90, 99)
_NEVER = 1 << 30


def benchmark_table(measurements: Sequence[Measurement]) -> str:
    """Return a line for each subject; times are milliseconds of one run of a testcase."""
    text = table(rows(measurements), columns(), range(1, 12))
    return text + "".join(f"\n{line}" for line in _refused(measurements))


def columns() -> tuple[str, ...]:
    """Return what the cells of a row are."""
    head = ("model", "testcases", "load ms", "first ms", "p50 ms", "p90 ms", "p99 ms")
    return (*head, "runs/s", "cpu ms", "GFLOP/s", "memory", "passes", "checks")


def rows(measurements: Sequence[Measurement]) -> list[tuple[object, ...]]:
    """Return the cells of one row for each subject."""
    subjects = [m.subject for m in measurements]
    return [(_label(m.subject, subjects), m.cases, *_times(m), *_rest(m)) for m in measurements]


def _label(subject: Subject, others: Sequence[Subject]) -> str:
    return clean(subject.label(others), 80)


def _times(m: Measurement) -> list[str]:
    shown = [m.timing.percentile(p) for p in _PERCENTILES]
    return [_ms(t) for t in (m.load, m.first, *shown)]


def _rest(m: Measurement) -> list[str]:
    cpu = sum(m.processor) / len(m.processor)
    memory = "-" if m.memory is None else bytes_text(m.memory + m.weights)
    rate = "-" if m.rate is None else f"{m.rate / 1e9:.2f}"
    return [f"{m.throughput:.4g}", _ms(cpu), rate, memory, str(len(m.wall)), m.verdict.value]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.3f}"


def _refused(measurements: Sequence[Measurement]) -> list[str]:
    """Why percentiles are left out."""
    least = min((len(m.wall) for m in measurements), default=_NEVER)
    missing = [p for p in _PERCENTILES if least < needed(p)]
    return [f"p{p} takes {needed(p)} passes, there were {least}: increase --min-time" for p in missing]


def comparisons(measurements: Sequence[Measurement]) -> list[str]:
    """Compare every subject with the first, whose passes it alternated with."""
    subjects = [m.subject for m in measurements]
    return [
        _paired(measurements, m).text(_label(m.subject, subjects), _label(subjects[0], subjects))
        for m in measurements[1:]
    ]


def _paired(measurements: Sequence[Measurement], m: Measurement) -> Ratio:
    """Return how fast one is beside the first, by its passes."""
    return paired_ratio(measurements[0].paces(), m.paces())


def benchmark_json(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Everything that was measured, raw samples included; also what a baseline holds."""
    return {
        "benchmark": VERSION,
        "environment": environment(),
        "subjects": [_subject(m) for m in measurements],
        "comparisons": [
            {"base": 0, "subject": i, **_ratio(_paired(measurements, m))}
            for i, m in enumerate(measurements)
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
        "round_passes": m.rounds,
        "round_seconds": m.spans,
        "runs_per_second": m.throughput,
        "operations": m.flops,
        "operations_per_second": m.rate,
        "peak_bytes": m.memory,
        "weight_bytes": m.weights,
    }
