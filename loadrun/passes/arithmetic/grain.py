"""Means and global pooling that are written in small operators (MegEngine's FoldingReduceMean and
FoldingGlobalPooling)."""

from __future__ import annotations

import numpy as np

from ...graph import Graph, Opr, Var
from ...graph import params as P
from ...graph.dtypes import DType
from ...ops.catalog import TypeParam
from ..rewriter import Rewriter, each
from .terms import mode_of

_POOLING = {P.ReduceMode.MAX: P.PoolingMode.MAX, P.ReduceMode.MEAN: P.PoolingMode.AVERAGE}


def fold_means(graph: Graph) -> Graph:
    """Replace a sum along an axis that is divided by the axis' length by the mean; results agree to within rounding."""

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        if mode_of(opr) != P.ElemwiseMode.TRUE_DIV:
            return None
        total, length = (v.owner for v in opr.inputs)
        squeeze = None
        if total.type == "AxisAddRemove":
            squeeze, total = total, total.inputs[0].owner
        if total.type != "ReduceV2" or length.type != "TypeCvtV2" or r.frozen(total):
            return None
        sizes = length.inputs[0].owner
        p = total.get(P.Reduce)
        if sizes.type != "GetVarShapeV1" or p.mode != P.ReduceMode.SUM or len(total.inputs) != 1:
            return None
        if length.get(TypeParam).dtype != DType("Float32") or sizes.inputs != total.inputs[:1]:
            return None
        if sizes.get(P.OptionalAxisV1).axis != p.axis or r.dtype(r.var(total.inputs[0])).name != "Float32":
            return None
        mean = p.replace(mode=P.ReduceMode.MEAN)
        (new,) = r.add("ReduceV2", mean, inputs=[r.var(total.inputs[0])], like=total)
        if squeeze is not None:
            (new,) = r.add("AxisAddRemove", *squeeze.params, inputs=[new], like=squeeze)
        return new

    return each(graph, visit, "Elemwise")


def fold_global_pooling(graph: Graph) -> Graph:
    """Replace the maximum or mean over merged height and width by adaptive pooling to one position."""

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        reduce = _reduced(r, opr)
        shape = r.old_shape(opr.outputs[0])
        if reduce is None or shape is None or len(shape) != 4 or shape[2:] != (1, 1):
            return None
        p, reshape = reduce.get(P.Reduce), reduce.inputs[0].owner
        if p.mode not in _POOLING or p.axis != 2 or len(reduce.inputs) != 1 or reshape.type != "ReshapeV1":
            return None
        flat, source = (r.old_shape(v) for v in (reshape.outputs[0], reshape.inputs[0]))
        if flat is None or source is None or (len(flat), len(source)) != (3, 4):
            return None
        if flat != (*source[:2], source[2] * source[3]) or not r.dtype(r.var(reshape.inputs[0])).is_float:
            return None
        one = r.put(np.ones(2, np.int32), DType("Int32"))
        pooling = P.AdaptivePooling(mode=_POOLING[p.mode])
        return r.add("AdaptivePoolingV1", pooling, inputs=[r.var(reshape.inputs[0]), one], like=opr)[0]

    return each(graph, visit, "AxisAddRemove", "Dimshuffle")


def _reduced(r: Rewriter, opr: Opr) -> Opr | None:
    """Return the reduction whose axes an operator puts in order."""
    inner = opr.inputs[0].owner
    if opr.type == "Dimshuffle":
        if opr.get(P.Dimshuffle).pattern != (0, 1, -1, -1) or inner.type != "AxisAddRemove":
            return None
        inner = inner.inputs[0].owner
    else:
        while inner.type == "AxisAddRemove" and r.single(inner.outputs[0]):
            inner = inner.inputs[0].owner
    return inner if inner.type == "ReduceV2" and not r.frozen(inner) else None
