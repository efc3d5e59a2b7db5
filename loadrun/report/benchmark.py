"""Benchmarks as text, as data for JSON and as a page of HTML, and the comparison with a baseline."""

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any

from ..base.errors import clean
from ..verify.bench.environment import environment
from ..verify.bench.files import VERSION
from ..verify.bench.timing import Measurement, Ratio, Subject, Timing, needed, paired_ratio
from .html import pairs
from .page import FOOT, HEAD, Series, table_head, times
from .profile import bytes_text
from .text import table

_PERCENTILES = (50, 90, 99)
_NEVER = 1 << 30
_SHOWN = 20
"""Testcases whose times are shown."""


def benchmark_table(measurements: Sequence[Measurement]) -> str:
    """Return a line for each subject; times are milliseconds of one run of a testcase."""
    text = table(rows(measurements), columns(), range(1, 13))
    return "\n".join([text, *_by_testcase(measurements), *_refused(measurements)])


def columns() -> tuple[str, ...]:
    """Return what the cells of a row are."""
    head = ("model", "testcases", "load ms", "first ms", "p50 ms", "p90 ms", "p99 ms")
    return (*head, "runs/s", "cpu ms", "share", "GFLOP/s", "memory", "passes", "checks")


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
    timing = m.timing
    memory = "-" if m.memory is None else bytes_text(m.memory + m.weights)
    rate = "-" if m.rate is None else f"{m.rate / 1e9:.2f}"
    times = [f"{m.throughput:.4g}", _ms(timing.cpu.mean), f"{timing.share:.0%}"]
    return [*times, rate, memory, str(len(timing.samples)), m.verdict.value]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.3f}"


def _by_testcase(measurements: Sequence[Measurement]) -> list[str]:
    """Return a line for each subject of several testcases, with the median time of each."""
    subjects = [m.subject for m in measurements]
    lines = []
    for m in measurements:
        if m.cases > 1:
            medians = [_ms(Timing(times).median) for times in list(zip(*_each(m), strict=True))[:_SHOWN]]
            more = f" and {m.cases - _SHOWN} more" if m.cases > _SHOWN else ""
            lines.append(f"{_label(m.subject, subjects)}: {', '.join(medians)} ms by testcase{more}")
    return lines


def _refused(measurements: Sequence[Measurement]) -> list[str]:
    """Why percentiles are left out."""
    least = min((len(m.timing.samples) for m in measurements), default=_NEVER)
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
    """Return how fast one is beside the first, by passes; where either waited for a processor, by its own time."""
    base = measurements[0]
    by_processor = base.timing.disturbed or m.timing.disturbed
    found = paired_ratio(base.paces(processor=by_processor), m.paces(processor=by_processor))
    return replace(found, share=min(base.timing.share, m.timing.share)) if by_processor else found


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


def _ratio(r: Ratio) -> dict[str, float | str]:
    return {"ratio": r.value, "low": r.low, "high": r.high, "by": "wall" if r.share is None else "processor"}


def _each(m: Measurement) -> list[list[float]]:
    return [times for r in m.rounds for times in r.each]


def _subject(m: Measurement) -> dict[str, Any]:
    timing = m.timing
    return {
        **m.subject.key,
        "path": m.subject.path,
        "about": m.about,
        "verdict": m.verdict.value,
        "testcases": m.cases,
        "load_seconds": m.load,
        "first_seconds": m.first,
        "median_seconds": timing.median,
        "percentiles": {str(p): timing.percentile(p) for p in _PERCENTILES},
        "deviation_seconds": timing.deviation,
        "wall_seconds": timing.samples,
        "processor_seconds": timing.processor,
        "testcase_seconds": _each(m),
        "round_passes": [len(r.each) for r in m.rounds],
        "round_seconds": [r.span for r in m.rounds],
        "runs_per_second": m.throughput,
        "operations": m.flops,
        "operations_per_second": m.rate,
        "peak_bytes": m.memory,
        "weight_bytes": m.weights,
    }


def benchmark_html(measurements: Sequence[Measurement], more: Sequence[str] = (), graph: str = "") -> str:
    """Write the page.

    Args:
        measurements: what was measured, the first being what the others are compared with.
        more: lines to show besides, such as those of a baseline.
        graph: the first model, drawn with the times of its operators.

    >>> from loadrun.verify.bench.running import Subject, run_subjects
    >>> found = run_subjects([Subject("fixtures/nets/mlp.mge")], seconds=0, passes=3)
    >>> benchmark_html(found).count("<circle")
    3
    """
    out = [HEAD]
    shown = rows(measurements)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>\n" for row in shown)
    out.append(f"<table>{table_head(columns())}<tbody>\n{body}</tbody></table>\n")
    out += [f"<p>{escape(clean(line, 300))}</p>\n" for line in (*comparisons(measurements), *more)]
    for row, measured in zip(shown, measurements, strict=True):
        drawn = times(Series(measured.timing.samples), "runs of a testcase, means of passes")
        out.append(f"<h2>{escape(str(row[0]))}</h2><div class=plots>{drawn}</div>\n")
    if graph:
        out.append(f"<h2>Operators of {escape(str(shown[0][0]))}, by time</h2>{graph}")
    out.append(f"<h2>Environment</h2>{pairs(environment())}")
    return "".join([*out, FOOT])
