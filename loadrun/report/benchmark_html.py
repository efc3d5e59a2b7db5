"""Benchmarks as one page of HTML, with the times of every pass as a plot."""

from collections.abc import Sequence
from html import escape

from ..base.errors import clean
from ..verify.bench.environment import environment
from ..verify.bench.timing import Measurement
from .benchmark import columns, comparisons, rows
from .html import pairs
from .page import FOOT, HEAD, Series, times


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
    head = "".join(f"<th scope=col>{escape(c)}</th>" for c in columns())
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>\n" for row in shown)
    out.append(f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>\n")
    out += [f"<p>{escape(clean(line, 300))}</p>\n" for line in (*comparisons(measurements), *more)]
    for row, measured in zip(shown, measurements, strict=True):
        series = Series()
        for seconds in measured.wall:
            series.add(seconds)
        label = escape(str(row[0]))
        out.append(
            f"<h2>{label}</h2><div class=plots>{times(series, 'runs of a testcase, means of passes')}</div>\n"
        )
    if graph:
        out.append(f"<h2>Operators of {escape(str(shown[0][0]))}, by time</h2>{graph}")
    out.append(f"<h2>Environment</h2>{pairs(environment())}")
    return "".join([*out, FOOT])
