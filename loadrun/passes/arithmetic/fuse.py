"""Several small operators as one: fused elementwise modes, means, pooling, reductions."""

from functools import partial
from math import prod

import numpy as np

from ...graph import Graph, Opr, Var, params as P
from ...graph.dtypes import DType
from ...ops.catalog import TypeParam
from ...ops.elemwise.table import AFTER_SUM
from ...ops.registry import Shape
from ..rewriter import Rewriter, each
from .identities import elemwise
from .terms import ends_chain, is_large, leaves, mode_of, uniform

# Fused elementwise modes: FUSE_MUL_ADD3, FUSE_MUL_ADD4 and FUSE_ADD_* (MegEngine's ArithFuse).
#
# The fused modes compute what their parts compute, so that only the order of the summands can change a
# result, to within rounding.

M = P.ElemwiseMode
_ACTIVATIONS = {plain: mode for mode, plain in AFTER_SUM.items()}


def fuse_arithmetic(graph: Graph) -> Graph:
    """Fuse products into the sums that read them, and sums into the activation that reads them."""
    r = Rewriter(graph)
    r.rewrite(partial(_fused, r))
    return r.finish()


def _fused(r: Rewriter, opr: Opr) -> Var | None:
    dtype = uniform(r, opr) if opr.type == "Elemwise" else None
    if dtype is None or not dtype.is_float:
        return None
    mode = mode_of(opr)
    if mode == M.ADD and ends_chain(r, opr, [M.ADD]):
        return _sum(r, opr)
    if mode in _ACTIVATIONS and r.single(opr.inputs[0]):
        inner = r.var(opr.inputs[0]).owner
        if mode_of(inner) == M.ADD:
            return elemwise(r, _ACTIVATIONS[mode], *inner.inputs)
    return None


def _sum(r: Rewriter, end: Opr) -> Var | None:
    products: dict[tuple[Shape, Shape], list[tuple[Var, Var]]] = {}
    rest: dict[Shape, list[Var]] = {}
    for old in leaves(r, end.outputs[0], M.ADD):
        factor = old.owner
        shape = r.old_shape(old)
        if shape is None:
            return None
        joined = mode_of(factor) == M.MUL and r.single(old) and not is_large(r, old)
        if joined and uniform(r, factor) and not r.frozen(factor):
            pair = [(r.old_shape(v), r.var(v)) for v in factor.inputs]
            (a, first), (b, second) = sorted(pair, key=lambda p: prod(p[0] or ()))
            assert a is not None
            assert b is not None
            products.setdefault((a, b), []).append((first, second))
        else:
            rest.setdefault(shape, []).append(r.var(old))
    if not products:
        return None
    # Products of equal shapes first: their sums can be summands of the others.
    order = sorted(products, key=lambda s: (s[0] != s[1], prod(s[1]), len(products[s])))
    for shapes in order:
        merged = _products(r, products[shapes], shapes, rest)
        merged_shape = r.shape(merged)
        assert merged_shape is not None
        rest.setdefault(merged_shape, []).append(merged)
    return _add(r, [v for group in rest.values() for v in group])


def _add(r: Rewriter, terms: list[Var]) -> Var:
    total = terms[0]
    for term in terms[1:]:
        total = elemwise(r, M.ADD, total, term)
    return total


def _products(
    r: Rewriter, pairs: list[tuple[Var, Var]], shapes: tuple[Shape, Shape], rest: dict[Shape, list[Var]]
) -> Var:
    """Return the sum of products of one pair of shapes, with a summand of one of the shapes if there is one."""
    terms: list[Var] = []
    while len(pairs) >= 2:
        b, a = pairs.pop(), pairs.pop()
        terms.append(elemwise(r, M.FUSE_MUL_ADD4, *a, *b))
    if pairs:
        first, second = pairs.pop()
        match = next((s for s in shapes if s in rest), None)
        if match is None:
            terms.append(elemwise(r, M.MUL, first, second))
        else:
            terms.append(elemwise(r, M.FUSE_MUL_ADD3, first, second, _add(r, rest.pop(match))))
    return _add(r, terms)


# Means and global pooling that are written in small operators (MegEngine's FoldingReduceMean and
# FoldingGlobalPooling).

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


def combine_conversions(graph: Graph) -> Graph:
    """Reduce float16 values with float32 results instead of converting them first (MegEngine's
    CombineAstypeAndReduce); results are the same bits."""

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        inner, p = r.var(opr.inputs[0]).owner, opr.get(P.Reduce)
        if inner.type != "TypeCvtV2" or p.data_type != P.ReduceDataType.DEFAULT:
            return None
        source = inner.inputs[0]
        if (r.dtype(source), opr.inputs[0].dtype) != (DType("Float16"), DType("Float32")):
            return None
        wide = p.replace(data_type=P.ReduceDataType.FLOAT_O32xC32)
        return r.add("ReduceV2", wide, inputs=[source, *map(r.var, opr.inputs[1:])], like=opr)[0]

    return each(graph, visit, "ReduceV2")


def fuse_squares(graph: Graph) -> Graph:
    """Sum squares in one operator: ``sum(x * x)`` and ``sum(x ** 2)``; results agree to within rounding."""

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        source, p = opr.inputs[0], opr.get(P.Reduce)
        if p.mode != P.ReduceMode.SUM or p.data_type != P.ReduceDataType.DEFAULT or not r.single(source):
            return None
        inner = r.var(source).owner
        mode = inner.get(P.Elemwise).mode if inner.type == "Elemwise" else None
        square = mode == P.ElemwiseMode.SQUARE or (
            mode == P.ElemwiseMode.MUL and inner.inputs[0] is inner.inputs[1]
        )
        square |= inner.type == "PowC" and inner.get(P.PowC).exp == 2
        if not square or any(r.dtype(v) != DType("Float32") for v in inner.inputs):
            return None
        inputs = [inner.inputs[0], *map(r.var, opr.inputs[1:])]
        return r.add("ReduceV2", p.replace(mode=P.ReduceMode.SUM_SQR), inputs=inputs, like=opr)[0]

    return each(graph, visit, "ReduceV2")
