"""The graph of a model: data for the page that draws it, and the form that Model Explorer reads."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from ..base.errors import clean
from ..graph import Opr, Var, readers_of
from ..ops.catalog import CATALOG
from ..testcase import Bundle
from ..verify.describe import attributes, inferred
from ..verify.diff import Differences
from .page import page
from .text import shape_text

_AROUND, _STEPS = 60, 3
"""How many operators around a blamed one are drawn, and how many steps from it."""
_GRADIENT = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#c0262d"}]
_BACK = {"to blame": "#ff9a94", "differs": "#ffdf9e", "agrees": "#cfead5"}

Shapes = Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class GraphMarks:
    """What is known of operators beside what they are, by their ids.

    Attributes:
        verdicts: "agrees", "differs" or "to blame".
        errors: how far their values are apart, relative to the largest of the tensor.
        seconds: what they took.
    """

    verdicts: Mapping[int, str] = field(default_factory=dict)
    errors: Mapping[int, float] = field(default_factory=dict)
    seconds: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, differences: Differences, blamed: Collection[int] = ()) -> GraphMarks:
        """Return the marks of a comparison; those `blamed` besides its roots are to blame as well."""
        verdicts = {r.opr.id: "agrees" if r.agrees else "differs" for r in differences.rows}
        blamed = {*blamed, *(r.opr.id for r in differences.roots)}
        errors = {r.opr.id: r.distance.relative for r in differences.rows if r.distance is not None}
        return cls(verdicts | dict.fromkeys(blamed, "to blame"), errors)


def graph_element(
    label: str,
    oprs: Sequence[Opr],
    shapes: Shapes,
    outputs: Iterable[Var],
    marks: GraphMarks | None = None,
    *,
    whole: bool = False,
) -> str:
    """Return the element that the page's script draws a graph in.

    Args:
        label: the model.
        oprs: the operators, in execution order.
        shapes: the shapes that are known, by variable id.
        outputs: the model's outputs.
        marks: verdicts, errors and times.
        whole: whether it takes the width of the window, and tells ranges of weights.
    """
    nodes = _nodes(oprs, shapes, outputs, marks or GraphMarks(), ranges=whole)
    text = json.dumps({"label": clean(label, 200), "nodes": nodes}, separators=(",", ":"), ensure_ascii=False)
    inside = escape(text, quote=False).replace("'", "&#39;")
    return f"<div class='graph{' whole' if whole else ''}' data-graph='{inside}'></div>\n"


def model_element(bundle: Bundle, marks: GraphMarks | None = None) -> str:
    """Draw a whole model; below what keeps shapes from being known."""
    oprs = bundle.graph.needed(bundle.outputs.values())
    known, problems = inferred(bundle, oprs)
    said = "".join(f"<p class=warning>{escape(clean(p, 500))}</p>" for p in problems)
    return said + graph_element(bundle.path, oprs, known.shapes, bundle.outputs.values(), marks, whole=True)


def graph_page(bundle: Bundle) -> str:
    """Draw a model as a page of its own.

    >>> import loadrun
    >>> graph_page(loadrun.load("fixtures/nets/mlp.mge")).count("data-graph=")
    1
    """
    return page(bundle.path, model_element(bundle))


def explorer_json(bundle: Bundle) -> str:
    """Return a model's graph as JSON for Model Explorer."""
    oprs = bundle.graph.needed(bundle.outputs.values())
    known, _ = inferred(bundle, oprs)
    return json.dumps(
        explorer_graph(clean(bundle.path, 200), oprs, known.shapes, bundle.outputs.values()), indent=1
    )


def explorer_graph(
    label: str, oprs: Sequence[Opr], shapes: Shapes, outputs: Iterable[Var], marks: GraphMarks | None = None
) -> list[dict[str, Any]]:
    """Return a graph as Model Explorer reads it from JSON: a list of one collection of one graph."""
    nodes = []
    for n in _nodes(oprs, shapes, outputs, marks or GraphMarks(), ranges=True):
        told = {"name": [n["n"]], "attributes": n["a"], "weights": n["w"], "verdict": [n.get("v")]}
        nodes.append(
            {
                "id": str(n["i"]),
                "label": n["t"],
                "namespace": n["s"],
                "incomingEdges": [
                    {"sourceNodeId": str(x), "sourceNodeOutputId": "0", "targetNodeInputId": str(k)}
                    for k, x in enumerate(n["x"])
                ],
                "attrs": [{"key": k, "value": "; ".join(v)} for k, v in told.items() if any(v)],
                "outputsMetadata": [
                    {"id": str(k), "attrs": [{"key": "value", "value": said}]}
                    for k, said in enumerate(n["o"])
                ],
            }
        )
    return [{"label": label, "graphs": [{"id": label, "nodes": nodes}]}]


def explorer_data(label: str, marks: GraphMarks) -> dict[str, Any]:
    """Return errors and verdicts, or times in milliseconds, as Model Explorer's data of nodes."""
    if marks.errors:
        results = {
            str(i): {"value": e, **({"bgColor": _BACK[marks.verdicts[i]]} if i in marks.verdicts else {})}
            for i, e in marks.errors.items()
            if math.isfinite(e)
        }
        return {label: {"results": results}}
    results = {str(i): {"value": s * 1e3} for i, s in marks.seconds.items()}
    return {label: {"results": results, "gradient": _GRADIENT}}


def neighbourhood(oprs: Sequence[Opr], blamed: Collection[int]) -> list[Opr]:
    """List the operators around the blamed ones, in execution order; those nearest to them, where there are many."""
    read_by = readers_of(oprs)
    chosen = {o.id: o for o in oprs if o.id in blamed}
    edge = list(chosen.values())
    for _ in range(_STEPS):
        near = [v.owner for o in edge for v in o.inputs]
        near += [o for e in edge for v in e.outputs for o in read_by.get(v.id, ())]
        edge = [o for o in {o.id: o for o in near}.values() if o.id not in chosen and not _is_io(o)]
        edge = edge[: _AROUND - len(chosen)]
        chosen |= {o.id: o for o in edge}
    return sorted(chosen.values(), key=lambda o: o.id)


def _is_io(opr: Opr) -> bool:
    return CATALOG[opr.type].category == "io" if opr.type in CATALOG else False


def _nodes(
    oprs: Sequence[Opr], shapes: Shapes, outputs: Iterable[Var], marks: GraphMarks, *, ranges: bool
) -> list[dict[str, Any]]:
    """Return what is drawn: the operators and the model's inputs and outputs, with short names, since they repeat."""
    scopes, nodes = _scopes(oprs), []
    drawn = {o.id for o in oprs if not _is_io(o) or o.type == "Host2DeviceCopy"}
    for opr in oprs:
        if opr.id not in drawn:
            continue
        is_input = opr.type == "Host2DeviceCopy"
        weights = {v.id: v for v in opr.inputs if v.owner.tensors and v.owner.type != "Host2DeviceCopy"}
        node: dict[str, Any] = {
            "i": opr.id,
            "t": "input" if is_input else clean(opr.title, 80),
            "n": clean(opr.outputs[0].label if is_input else opr.name or "", 120),
            "s": "" if is_input else "/".join(clean(p, 60).replace("/", ".") for p in scopes[opr.id]),
            "x": [*dict.fromkeys(v.owner.id for v in opr.inputs if v.owner.id in drawn)],
            "o": [_said(v, shapes) for v in opr.outputs[:8]],
            "a": [clean(text, 300) for text in attributes(opr)],
            "w": [_weight(v, ranges=ranges) for v in weights.values()],
        }
        if opr.id in marks.verdicts:
            node["v"] = marks.verdicts[opr.id]
        for key, known in (("e", marks.errors), ("m", marks.seconds)):
            if opr.id in known:
                # JSON has no infinity.
                node[key] = known[opr.id] if math.isfinite(known[opr.id]) else 1e30
        nodes.append(node)
    ends = [v for v in outputs if v.owner.id in drawn]
    for number, var in enumerate(ends, 1):
        said = {"i": -number, "t": "output", "n": clean(var.label, 120), "s": "", "a": [], "w": []}
        nodes.append({**said, "x": [var.owner.id], "o": [_said(var, shapes)]})
    return nodes


def _scopes(oprs: Sequence[Opr]) -> dict[int, tuple[str, ...]]:
    """Return the module path of every operator: by its name, by its weights' names, else that of what it reads."""
    scope_of: dict[int, tuple[str, ...]] = {}
    for opr in oprs:
        constants = (v for v in opr.inputs if v.owner.tensors and v.owner.type != "Host2DeviceCopy")
        weights = (v.owner.tensors[v.index].name for v in constants)
        paths = (tuple((n or "").replace("/", ".").strip(".").split("."))[:-1] for n in (opr.name, *weights))
        before = (scope_of[v.owner.id] for v in opr.inputs if v.owner.id in scope_of)
        scope_of[opr.id] = next((p for p in paths if p), next(before, ()))
    return scope_of


def _said(var: Var, shapes: Shapes) -> str:
    shape, dtype = shapes.get(var.id, var.shape), var.dtype or var.described
    text = f"{clean(var.label, 80)} {shape_text(None if shape is None else tuple(shape))}"
    return text if dtype is None else f"{text} {dtype.text}"


def _weight(var: Var, *, ranges: bool) -> str:
    """Say what a weight is, and between which values its elements are."""
    tensor = var.owner.tensors[var.index]
    text = f"{clean(tensor.name or var.label, 80)} {shape_text(tensor.shape)} {tensor.dtype.text}"
    if not ranges or tensor.data is None:
        return text
    value = np.asarray(tensor.value())
    if not value.size or value.dtype.kind not in "fiub":
        return text
    return (
        f"{text}, from {float(value.min()):.4g} to {float(value.max()):.4g}, mean {float(value.mean()):.4g}"
    )
