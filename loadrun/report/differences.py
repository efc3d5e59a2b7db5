"""What `loadrun diff` says, as text and as JSON."""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from ..base.errors import LoadRunError, clean
from ..graph.dtypes import Array
from ..ops.infer import describe
from ..verify.blame_pass import BlamedPass, runtime_blame
from ..verify.diff import TOLERANCE, Bisected, ChangedConstant, Differences, FileSide, Finding, SuspectVar
from .page import page
from .text import shape_text, table

_ROWS = 12
"""How many lines of a kind there are at most."""
_MOST_TOLERATED = 3
"""Optimized models have many other operators whose values agree."""


def differences(comparison: Differences, *, everything: bool = False) -> Iterator[str]:
    """Describe what a comparison gave: what was matched, a table, the first difference, and what is to blame.

    Args:
        comparison: what a comparison gave.
        everything: whether the table has all rows.
    """
    yield from _compared(comparison, everything)
    for side, stops in zip(("the model", "the reference"), comparison.stops, strict=True):
        yield from (f"{side} stops: {clean(s.why, 500)}" for s in stops[:3])
    yield from findings(comparison.findings[:_ROWS], None) if comparison.findings else ()
    if comparison.untouched:
        yield _untouched(comparison)
    if comparison.agree:
        yield _agreement(comparison)
        yield from _without_effect(comparison)
        return
    yield from _blamed(comparison)


def _untouched(comparison: Differences) -> str:
    """Say how an engine's own run differs from the one that was asked for every value."""
    wrong = [r for r in comparison.untouched if not r.agrees]
    if not wrong:
        return "the engine's outputs agree as it is used; it computes otherwise once every value is asked for"
    name = clean(wrong[0].var.label, 100)
    return f"output {name!r} differs as the engine is used, and agrees once every value is asked for"


def _compared(comparison: Differences, everything: bool) -> Iterator[str]:
    counted = ", ".join(f"{n} by {how}" for how, n in sorted(comparison.matched.items()))
    matched = sum(comparison.matched.values())
    yield f"{len(comparison.rows)} values compared; {matched} of {comparison.total} variables matched ({counted})"
    if comparison.unjudged:
        yield (
            f"{comparison.unjudged} of them are float64 in the model: both sides compute these with the same code, "
            "which proves nothing; use --against ENGINE, such as onnxruntime"
        )
    chosen = comparison.rows if everything else _chosen(comparison)
    if chosen:
        yield ""
        yield table(
            [_cells(r, comparison) for r in chosen],
            ["operator", "variable", "shape", "relative", "absolute", "matched by", "verdict"],
            right=(3, 4),
        )
    left = sum(not r.agrees for r in comparison.rows) - sum(not r.agrees for r in chosen)
    if left > 0:
        yield f"... and {left} more that do not agree (--verbose shows them)"
    yield ""


def _blamed(comparison: Differences) -> Iterator[str]:
    """Say what is to blame."""
    first = comparison.first
    if first is not None:
        yield f"first to diverge: {clean(describe(first.opr), 200)}{_worst(first)}"
    for root in comparison.roots[:_ROWS]:
        causes = comparison.causes(root)
        if root.missing:
            yield f"to blame: {_missing(root)}"
            continue
        module = f" in module {clean(repr(root.label), 100)}" if root.how == "module" else ""
        yield f"to blame: {clean(describe(root.opr), 200)}{module}: {_why(root, bool(causes))}"
        for cause in causes:
            yield f"  {_constant(cause)}"
        if root.between:
            names = ", ".join(clean(describe(o), 80) for o in root.between[:5])
            more = f" and {len(root.between) - 5} more" if len(root.between) > 5 else ""
            yield f"  or operators before it without a counterpart: {names}{more}"
    if len(comparison.roots) > _ROWS:
        yield f"... and {len(comparison.roots) - _ROWS} more operators whose inputs agree"
    blamed = {c.var.id for r in comparison.roots for c in comparison.causes(r)}
    for constant in comparison.constants:
        if constant.var.id not in blamed:
            yield _constant(constant)


def _missing(root: SuspectVar) -> str:
    one, *others = (clean(describe(o), 100) for o in root.missing)
    more = f" and {len(others)} more" if others else ""
    return f"{one}{more} of the reference: the model lacks it before {clean(describe(root.opr), 200)}"


def _without_effect(comparison: Differences) -> Iterator[str]:
    """Say which constants and operators differ although the outputs agree: those of folded operators, and others."""
    folded = sum(c.is_scaled for c in comparison.constants)
    if folded:
        # A bias beside them takes in what batch norm adds.
        yield f"{folded} weight{'s' * (folded > 1)} multiplied by a factor per channel: batch norm is folded"
    others = [c for c in comparison.constants if not c.is_scaled and (c.is_weight or not folded)]
    operators = [*comparison.tolerated()]
    if others or operators:
        if comparison.nearly:
            yield f"these differences have an effect within the tolerance, {comparison.nearly:.3g} at most:"
        else:
            yield "these differences have no effect on the inputs used:"
    yield from (_constant(c) for c in others[:_ROWS])
    for row, said in operators[:_MOST_TOLERATED]:
        yield f"{clean(describe(row.opr), 200)}: {clean(said, 500)}"
    if len(operators) > _MOST_TOLERATED:
        yield f"... and {len(operators) - _MOST_TOLERATED} more operators that are other ones in the reference"


def _agreement(comparison: Differences) -> str:
    lonely = comparison.lonely
    if not comparison.outputs_agree:
        return "all of them agree; the model's outputs were not all compared"
    if not lonely:
        return "all of them agree"
    values = "inner value has" if lonely == 1 else "inner values have"
    return f"outputs agree; {lonely} {values} no counterpart"


def _why(root: SuspectVar, reads: bool) -> str:
    if root.changes:
        return clean("; ".join(root.changes), 500)
    if reads:
        return "its inputs differ"
    if root.is_stop:
        alone = "it cannot run, and has no counterpart"
        return "its inputs agree, but only one side can run it" if root.label else alone
    if root.distance is None or (len(set(root.shapes)) > 1 and (root.agrees or not root.distance.absolute)):
        return f"its inputs agree, but its shape is {list(root.shapes[0])} against {list(root.shapes[1])}"
    return "its inputs agree, but its output does not"


def _chosen(comparison: Differences) -> list[SuspectVar]:
    """Choose what a reader needs: the rows around the first difference, the roots, the outputs."""
    wrong = [i for i, r in enumerate(comparison.rows) if not r.agrees]
    if not wrong:
        return sorted(comparison.rows, key=_apart, reverse=True)[:3]
    start = max(wrong[0] - 2, 0)
    keep = set(range(start, min(start + _ROWS, len(comparison.rows))))
    named = {v.id for v in (*comparison.graph.outputs, *(r.var for r in comparison.roots[:_ROWS]))}
    keep |= {i for i, r in enumerate(comparison.rows) if r.var.id in named}
    return [comparison.rows[i] for i in sorted(keep)]


def _apart(row: SuspectVar) -> float:
    return float("inf") if row.distance is None else row.distance.relative


def _cells(row: SuspectVar, comparison: Differences) -> list[str]:
    d = row.distance
    roots = {r.var.id for r in comparison.roots}
    verdict = "agrees" if row.agrees else "differs: to blame" if row.var.id in roots else "differs"
    return [
        clean(row.opr.title, 40),
        clean(row.var.label, 40),
        shape_text(row.shapes[0]) if row.shapes else "",
        "stops" if row.is_stop else "other size" if d is None else f"{d.relative:.3g}",
        "" if d is None else f"{d.absolute:.3g}",
        row.how,
        verdict,
    ]


def _worst(row: SuspectVar) -> str:
    d = row.distance
    if row.is_stop:
        return ", which only one side can run"
    if d is None or (not d.absolute and len(set(row.shapes)) > 1):
        return f": shape {list(row.shapes[0])} against {list(row.shapes[1])}"
    worst = f", worst at {list(d.index)}: {d.found:.9g} against {d.expected:.9g}"
    if d.size < 2:
        return worst
    return (
        f"{worst}; {d.count} of {d.size} values exceed the tolerance, the largest absolute difference is "
        f"{d.absolute:.3g}, the largest relative one {d.elementwise:.3g} at {list(d.at)}"
    )


def _constant(c: ChangedConstant) -> str:
    return (
        f"constant {clean(c.var.label, 100)!r} differs in {c.count} of {c.size} elements, most at {list(c.index)}: "
        f"{c.found:.9g} against {c.expected:.9g}"
    )


def bisected(result: Bisected) -> str:
    """Describe what `--bisect` gave."""
    if result.var is None:
        return "the outputs agree"
    d = result.distance
    worst = (
        "another size"
        if d is None
        else f"the engine gives {d.found:.9g}, the reference {d.expected:.9g} at {list(d.index)}"
    )
    return f"first to diverge: {clean(describe(result.var.owner), 200)}: {worst}"


def findings(defects: list[Finding], limit: float | None) -> Iterator[str]:
    """Describe what `--range` gave: where it began, and where it went unseen."""
    if not defects:
        limited = limit is not None and limit < math.inf
        yield "all values are finite" + (f" and at most {limit:g} in size" if limited else "")
        return
    for f in defects:
        if not (f.origin or f.hidden):
            continue
        word = "begins at" if f.origin else "is hidden behind"
        what = f.what.replace("beyond", "what is beyond the range of")
        yield (
            f"{what} {word} {clean(describe(f.var.owner), 200)}: {f.count} of {f.size} elements of "
            f"{clean(f.var.label, 100)!r}, first at {list(f.index)}: {f.value:.9g}"
            + ("; no operator that reads it passes it on" if f.hidden else "")
        )


def differences_page(title: str, said: str, agree: bool, graph: str) -> str:
    """Return what a comparison gave as a page: what is to blame, the graph with errors, all that is said.

    Args:
        title: the two that were compared.
        said: the lines of `differences` and its like.
        agree: whether nothing differs.
        graph: the element that draws the model.
    """
    lines = [line for line in said.splitlines() if line.startswith(("to blame: ", "first to diverge: "))]
    verdict = "everything that was compared agrees" if agree else max(lines, default="the models differ")
    return page(
        title,
        f"<p class='total {'pass' if agree else 'fail'}'>{escape(verdict)}</p>\n{graph}\n<pre>{escape(said)}</pre>\n",
    )


def interface(changes: Sequence[str]) -> Iterator[str]:
    """Describe how the inputs and outputs of a model are others than the reference's."""
    yield from (f"the models differ before they run: {clean(said, 500)}" for said in changes)


def as_json(comparison: Differences | None, interface: Sequence[str] = ()) -> dict[str, Any]:
    """Return the whole comparison as plain values; numbers that JSON does not have are strings.

    Args:
        comparison: what was compared, None where the models could not run on the same inputs.
        interface: how the inputs and outputs of the model are others than the reference's.
    """
    if comparison is None:
        return {"agree": False, "interface": list(interface)}
    roots = {r.var.id: r for r in comparison.roots}
    # What was located by its effect, and what optimization merged, need not be among the rows.
    rows = {**{r.var.id: r for r in comparison.rows}, **roots}
    return {
        "interface": list(interface),
        "matched": comparison.matched,
        "variables": comparison.total,
        "agree": comparison.agree and not interface,
        "first": None if comparison.first is None else comparison.first.var.label,
        "roots": [r.var.label for r in comparison.roots],
        "missing": [describe(o) for r in comparison.roots for o in r.missing],
        "changes": {r.var.label: list(r.changes) for r in comparison.roots if r.changes},
        "stops": [[s.why for s in stops] for stops in comparison.stops],
        "without_counterpart": comparison.lonely,
        "same_code": comparison.unjudged,
        "as_used": [_json_row(r, r.var.id in roots) for r in comparison.untouched],
        "findings": [
            {
                "variable": f.var.label,
                "what": f.what,
                "count": f.count,
                "size": f.size,
                "index": list(f.index),
                "value": _json_number(f.value),
            }
            for f in comparison.findings
        ],
        "constants": [
            {
                "name": c.var.label,
                "count": c.count,
                "size": c.size,
                "index": list(c.index),
                "found": _json_number(c.found),
                "expected": _json_number(c.expected),
            }
            for c in comparison.constants
        ],
        "rows": [_json_row(rows[i], i in roots) for i in sorted(rows)],
    }


def _json_row(r: SuspectVar, to_blame: bool) -> dict[str, Any]:
    return {
        "operator": r.opr.type,
        "title": r.opr.title,
        "variable": r.var.label,
        "against": r.label,
        "matched_by": r.how,
        "shape": list(r.shapes[0]) if r.shapes else None,
        "agrees": r.agrees,
        "to_blame": to_blame,
        "relative": None if r.distance is None else _json_number(r.distance.relative),
        "absolute": None if r.distance is None else _json_number(r.distance.absolute),
        "error": None if r.distance is None else _json_number(r.distance.error),
        "index": None if r.distance is None else list(r.distance.index),
        "count": None if r.distance is None else r.distance.count,
        "size": None if r.distance is None else r.distance.size,
    }


def _json_number(x: float) -> float | str:
    return x if x - x == 0 else str(x)


def optimized(side: FileSide, feeds: Mapping[str, Array], tolerance: float | None) -> Iterator[str]:
    """Say which optimization of ONNX Runtime changes a file's outputs; nothing of other runtimes.

    Args:
        side: the file on the runtime.
        feeds: arrays by input name.
        tolerance: how far an output may be off, relative to its largest value; None for `TOLERANCE`.
    """
    if str(side).partition(":")[0] != "onnxruntime":
        return
    try:
        blamed = runtime_blame(side.source, feeds, TOLERANCE if tolerance is None else tolerance)
    except LoadRunError as e:
        yield f"which optimization it is cannot be told: {clean(str(e), 500)}"
        return
    if blamed is not None:
        yield from optimization(blamed)


def optimization(blame: BlamedPass) -> list[str]:
    """Describe an optimization that makes outputs diverge, with the commands that show and avoid it."""
    names = " and ".join(blame.names) or "its parts cannot be separated"
    level = f" at {blame.level}" if blame.level else ""
    d = blame.distance
    worst = "another number of elements, or the optimized model cannot run"
    if d is not None:
        off = f"{d.count} of {d.size} values exceed the tolerance"
        worst = f"{d.found:.9g} against {d.expected:.9g} at {list(d.index)}, {off}"
    lines = [f"to blame: {blame.of}{level}: {names} ({blame.runs} runs)"]
    lines.append(f"  output {clean(blame.output, 100)!r}: {worst}")
    commands = (("reproduce with", blame.command), ("avoid with", blame.without))
    return [*lines, *(f"  {what}: {clean(text, 500)}" for what, text in commands if text)]
