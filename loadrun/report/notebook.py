"""Results and models as notebooks show them: tables, histograms, the graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from ..base.errors import clean
from ..graph.dtypes import Array
from ..runner import OutputResult, Result
from ..testcase import Bundle
from ..verify.describe import inferred
from ..verify.pictures import picture
from .drawing import flat_svg
from .plots import bars, histogram
from .text import shape_text

_STYLE = """<style>
.loadrun { --mark: #2563a8; --line: #b5bdc6; --fail: #c0262d; } .loadrun .bars rect { fill: var(--mark); }
.loadrun .axis { stroke: var(--line); } .loadrun .limit { stroke: var(--fail); stroke-dasharray: 4 3; }
.loadrun svg text { font-size: 11px; fill: currentColor; } .loadrun td.fail, .loadrun td.error { color: var(--fail); }
</style>"""
_ROWS = 50
"""Outputs that a table shows."""


def results_html(results: Sequence[Result]) -> str:
    """Return the table of a run: a row for each testcase and output."""
    rows = [row for result in results for row in _rows(result)]
    more = f"<p>... and {len(rows) - _ROWS} more</p>" if len(rows) > _ROWS else ""
    heads = ("testcase", "output", "shape", "dtype", "max error", "tolerance", "verdict", "ms")
    return _framed(_table(heads, rows[:_ROWS]) + more)


def output_html(out: OutputResult) -> str:
    """Return what is known of an output: its line, and a histogram of its errors or, without a check, of its values."""
    plot = ""
    if out.expect is not None and out.value is not None:
        plot = histogram(picture(out.expect, out.value), out.maxerr)
    elif out.real is not None:
        plot = _values(out.real)
    return _framed(f"<code>{escape(clean(repr(out), 500))}</code>{plot}")


def bundle_html(bundle: Bundle) -> str:
    """Return what a model takes and gives, and its graph."""
    oprs = bundle.graph.needed(bundle.outputs.values())
    known, _ = inferred(bundle, oprs)
    rows = [
        [kind, name, shape_text(known.shapes.get(v.id, v.shape)), "" if v.dtype is None else v.dtype.text]
        for kind, ports in (
            ("input", [(v.name or "", v) for v in bundle.inputs]),
            ("output", [*bundle.outputs.items()]),
        )
        for name, v in ports
    ]
    said = escape(clean(repr(bundle).partition("\n")[0].removeprefix("Bundle(").rstrip(")"), 500))
    drawn = flat_svg(oprs, known.shapes, bundle.outputs.values())
    table = _table(("", "name", "shape", "dtype"), rows)
    return _framed(f"<p>{said}</p>{table}<div style='max-height:30em;overflow:auto'>{drawn}</div>")


def _rows(result: Result) -> Iterator[list[str]]:
    case = "-" if result.index is None else str(result.index)
    if result.message is not None:
        yield [case, "", "", "", "", "", f"{result.verdict.value}: {result.message}", ""]
    for i, out in enumerate(result.outputs):
        error = "" if out.error is None else f"{out.error:.4g}"
        limit = "" if out.maxerr is None else f"{out.maxerr:.4g}"
        took = f"{result.seconds * 1e3:.2f}" if i == 0 else ""
        yield [case, out.name, shape_text(out.shape), out.dtype.text, error, limit, out.verdict.value, took]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{h}</th>" for h in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    kind = f" class={text[:5].rstrip(':')}" if text.startswith(("fail", "error")) else ""
    return f"<td{kind}>{escape(clean(text, 300))}</td>"


def _values(value: Array) -> str:
    numbers = np.asarray(value, np.float64).reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return ""
    counts, edges = np.histogram(finite, 24)
    ends = (f"{edges[0]:.4g}", f"{edges[-1]:.4g}")
    left = numbers.size - finite.size
    caption = f"{finite.size} values" + (f", {left} are not finite" if left else "")
    said = [f"{n} values from {a:.4g} to {b:.4g}" for n, a, b in zip(counts, edges, edges[1:], strict=False)]
    return bars([int(n) for n in counts], said, caption, ends)


def _framed(inside: str) -> str:
    return f"<div class=loadrun>{_STYLE}{inside}</div>"
