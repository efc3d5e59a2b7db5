"""Conditional execution: a merge becomes If nodes whose subgraphs hold its branches."""

from collections.abc import Sequence

import numpy as np

from ...graph import Opr, Var
from ...graph import params as P
from ..encode import ElemType, GraphMessage, NodeMessage, ValueMessage
from .emitter import UnsupportedOprError
from .writer import OnnxWriter, elem_of, translation

_Mode = P.CondExecMergeMode


@translation("CondExecMark")
def mark(w: OnnxWriter, opr: Opr) -> list[str]:
    """Return the inputs, inside the branch that they enter."""
    return [w.name(v) for v in opr.inputs[:-1]]


@translation("CondExecMarkIfNeed")
def mark_if_need(w: OnnxWriter, opr: Opr) -> str:
    """Return the second input."""
    return w.name(opr.inputs[1])


@translation("CondExecMerge")
def merge(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit nested Ifs if exactly one branch is taken, sums of If if any may be."""
    p = opr.get(P.CondExecMerge)
    n = int(p.nr_output)
    predicates = w.merged.get(opr.id)
    if predicates is None:
        raise UnsupportedOprError("a merge whose branches are not known")
    branches = [opr.inputs[i * n : (i + 1) * n] for i in range(len(predicates))]
    if p.mode in (_Mode.EXACT_ONE, _Mode.EXACT_ONE_SAME_SHAPE):
        return _chosen(w, list(zip(predicates, branches, strict=True)))
    shapes = opr.inputs[n * len(branches) :]
    total: list[str] = []
    for i, (predicate, values) in enumerate(zip(predicates, branches, strict=True)):
        first = p.mode == _Mode.SUM_COND_OUT and len(branches) == 1
        parts = _chosen(w, [(predicate, values)]) if first else _or_zero(w, predicate, values, shapes, p.mode)
        total = parts if not i else [_plus(w, a, b, v) for a, b, v in zip(total, parts, values, strict=True)]
    return total


def _plus(w: OnnxWriter, a: str, b: str, var: Var) -> str:
    elem = elem_of(w.dtype(var))
    if w.dtype(var).is_float or elem is ElemType.INT32:
        return w.op("Add", a, b)
    return w.cast(w.op("Add", w.cast(a, ElemType.INT32), w.cast(b, ElemType.INT32)), elem)


def _chosen(w: OnnxWriter, branches: list[tuple[Var, list[Var]]]) -> list[str]:
    """Emit the values of the branch that is taken, the last one if none of the others is."""
    predicate, values = branches[0]
    if len(branches) == 1:
        w.translate_for(values)
        return [w.op("Identity", w.name(v)) for v in values]
    flag = w.cast(w.name(predicate), ElemType.BOOL)
    with w.subgraph() as body:
        outputs = _chosen(w, branches[:1])
    first = _branch(w, body, values, outputs)
    with w.subgraph() as body:
        outputs = _chosen(w, branches[1:])
    second = _branch(w, body, values, outputs)
    return w.ops("If", flag, out=len(values), then_branch=first, else_branch=second)


def _or_zero(
    w: OnnxWriter, predicate: Var, values: list[Var], shapes: Sequence[Var], mode: _Mode
) -> list[str]:
    """Emit the values of a branch if it is taken, else zeros."""
    flag = w.cast(w.name(predicate), ElemType.BOOL)
    with w.subgraph() as body:
        outputs = _chosen(w, [(predicate, values)])
    first = _branch(w, body, values, outputs)
    with w.subgraph() as body:
        zeros = []
        for i, var in enumerate(values):
            if mode == _Mode.SUM:
                shape = w.vector(w.split_dims(shapes[i]))
            else:
                shape = w.vector(list(w.fixed(var)))
            zeros.append(w.expand(w.const(np.zeros((), elem_of(w.dtype(var)).numpy)), shape))
    second = _branch(w, body, values, zeros)
    return w.ops("If", flag, out=len(values), then_branch=first, else_branch=second)


def _branch(w: OnnxWriter, body: list[NodeMessage], values: list[Var], names: list[str]) -> GraphMessage:
    """Build a subgraph of nodes that ends in those values."""
    outputs = [ValueMessage(n, elem_of(w.dtype(v)), None) for n, v in zip(names, values, strict=True)]
    return GraphMessage(w.fresh("branch"), body, [], [], outputs)
