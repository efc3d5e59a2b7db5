"""Reductions that take over what stands before them."""

from __future__ import annotations

from ...graph import Graph, Opr, Var
from ...graph.dtypes import DType
from ...graph.params import Elemwise, ElemwiseMode, PowC, Reduce, ReduceDataType, ReduceMode
from ..rewriter import Rewriter, each


def combine_conversions(graph: Graph) -> Graph:
    """Reduce float16 values with float32 results instead of converting them first (MegEngine's
    CombineAstypeAndReduce); results are the same bits."""

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        inner, p = r.var(opr.inputs[0]).owner, opr.get(Reduce)
        if inner.type != "TypeCvtV2" or p.data_type != ReduceDataType.DEFAULT:
            return None
        source = inner.inputs[0]
        if (r.dtype(source), opr.inputs[0].dtype) != (DType("Float16"), DType("Float32")):
            return None
        wide = p.replace(data_type=ReduceDataType.FLOAT_O32xC32)
        return r.add("ReduceV2", wide, inputs=[source, *map(r.var, opr.inputs[1:])], like=opr)[0]

    return each(graph, visit, "ReduceV2")


def fuse_squares(graph: Graph) -> Graph:
    """Sum squares in one operator: ``sum(x * x)`` and ``sum(x ** 2)``; results agree to within rounding."""

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        source, p = opr.inputs[0], opr.get(Reduce)
        if p.mode != ReduceMode.SUM or p.data_type != ReduceDataType.DEFAULT or not r.single(source):
            return None
        inner = r.var(source).owner
        mode = inner.get(Elemwise).mode if inner.type == "Elemwise" else None
        square = mode == ElemwiseMode.SQUARE or (
            mode == ElemwiseMode.MUL and inner.inputs[0] is inner.inputs[1]
        )
        square |= inner.type == "PowC" and inner.get(PowC).exp == 2
        if not square or any(r.dtype(v) != DType("Float32") for v in inner.inputs):
            return None
        inputs = [inner.inputs[0], *map(r.var, opr.inputs[1:])]
        return r.add("ReduceV2", p.replace(mode=ReduceMode.SUM_SQR), inputs=inputs, like=opr)[0]

    return each(graph, visit, "ReduceV2")
