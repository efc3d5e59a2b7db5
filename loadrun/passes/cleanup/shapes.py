"""Simplifying operators that only move axes about: pairs that undo or follow each other, and those without effect."""

from __future__ import annotations

from collections.abc import Callable

from ...base.registry import Registry
from ...graph import Graph, Opr, Var
from ...graph.params import AxisAddRemove, AxisDesc, Dimshuffle, OptionalAxisV1
from ..rewriter import Rewriter, each

__all__ = ["is_shape_of", "remove_shape_changes"]

_NO_AXIS = 7
_Rule = Callable[[Rewriter, Opr], "Var | None"]
_RULES: Registry[str, _Rule] = Registry("rule of shapes")


def remove_shape_changes(graph: Graph) -> Graph:
    """Join neighbouring Dimshuffle, Reshape, AxisAddRemove and Broadcast operators; results are the same bits.

    >>> from loadrun.graph.dtypes import DType
    >>> from loadrun.graph import StoredTensor
    >>> from loadrun.graph.params import Host2DeviceCopy
    >>> g = Graph()
    >>> (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"],
    ...              tensors=[StoredTensor(DType("Float32"), (2, 3), "x")])
    >>> turn = Dimshuffle(pattern=(1, 0), ndim=2)
    >>> (y,) = g.add("Dimshuffle", turn, inputs=g.add("Dimshuffle", turn, inputs=[x]), names=["y"])
    >>> g.outputs = [y]
    >>> [o.type for o in remove_shape_changes(g).oprs]
    ['Host2DeviceCopy', 'Identity']
    """
    return each(graph, _visit_shape, *_RULES)


def _visit_shape(r: Rewriter, opr: Opr) -> Var | None:
    return _RULES[opr.type](r, opr)


@_RULES.register("Dimshuffle")
def _dimshuffle(r: Rewriter, opr: Opr) -> Var | None:
    p = opr.get(Dimshuffle)
    source = r.var(opr.inputs[0])
    pattern, ndim, inner = p.pattern, p.ndim or max(p.pattern, default=-1) + 1, source.owner
    joined = inner.type == "Dimshuffle"
    if joined:
        q = inner.get(Dimshuffle)
        pattern = tuple(-1 if a < 0 else q.pattern[a] for a in pattern)
        source, ndim = inner.inputs[0], q.ndim or max(q.pattern, default=-1) + 1
    if pattern == tuple(range(ndim)):
        return source
    if not joined:
        return None
    return r.add("Dimshuffle", Dimshuffle(pattern=pattern, ndim=ndim), inputs=[source], like=opr)[0]


@_RULES.register("ReshapeV1")
def _reshape(r: Rewriter, opr: Opr) -> Var | None:
    source, target = map(r.var, opr.inputs)
    if opr.get(OptionalAxisV1).axis == _NO_AXIS and is_shape_of(target, source):
        return source
    if source.owner.type != "ReshapeV1":
        return None
    # An empty tensor may not determine an open axis of its shape.
    if opr.get(OptionalAxisV1).axis != _NO_AXIS and not r.shape(source):
        return None
    first = source.owner.inputs[0]
    if opr.get(OptionalAxisV1).axis == _NO_AXIS and is_shape_of(target, first):
        return first
    return r.add("ReshapeV1", *opr.params, inputs=[first, target], like=opr)[0]


@_RULES.register("Broadcast")
def _broadcast(r: Rewriter, opr: Opr) -> Var | None:
    source, target = map(r.var, opr.inputs)
    if is_shape_of(target, source):
        return source
    if source.owner.type == "Broadcast":
        return r.add("Broadcast", *opr.params, inputs=[source.owner.inputs[0], target], like=opr)[0]
    return None


def is_shape_of(target: Var, source: Var) -> bool:
    """Tell whether a target shape is the shape of `source`."""
    opr = target.owner
    return opr.type == "GetVarShapeV1" and opr.inputs == [source] and opr.get(OptionalAxisV1).axis == _NO_AXIS


@_RULES.register("AxisAddRemove")
def _axes(r: Rewriter, opr: Opr) -> Var | None:
    source = r.var(opr.inputs[0])
    steps = list(opr.get(AxisAddRemove).desc)
    if source.owner.type == "AxisAddRemove":
        steps = [*source.owner.get(AxisAddRemove).desc, *steps]
        source = source.owner.inputs[0]
    kept: list[AxisDesc] = []
    for step in (AxisDesc(*s) for s in steps):
        last = kept[-1] if kept else None
        if last is not None and (last.method, step.method, last.axis) == (0, 1, step.axis) and step.axis >= 0:
            kept.pop()
        else:
            kept.append(step)
    if not kept:
        return source
    if tuple(kept) == tuple(AxisDesc(*s) for s in opr.get(AxisAddRemove).desc):
        return None
    return r.add("AxisAddRemove", AxisAddRemove(desc=tuple(kept)), inputs=[source], like=opr)[0]
