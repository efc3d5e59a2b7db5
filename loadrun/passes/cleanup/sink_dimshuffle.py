"""Moving Dimshuffle after elementwise operators, so that those before and after it can be fused."""

from ...graph import Graph, Opr, Var
from ...ops.catalog import select
from ..rewriter import Rewriter, repeat

_ROUNDS = 16
_ARITHMETIC = select(lambda op: op.family == "elemwise.modes")


def sink_dimshuffle(graph: Graph) -> Graph:
    """Let elementwise operators of one variable and scalar constants change places with a Dimshuffle before them that
    reads an elementwise operator; results are the same bits."""
    return repeat(graph, _swapped, _ROUNDS, *_ARITHMETIC, "TypeCvtV2")


def _swapped(r: Rewriter, opr: Opr) -> Var | None:
    moved = [v for v in opr.inputs if v.owner.type == "Dimshuffle"]
    others = [v for v in opr.inputs if v not in moved]
    if len(moved) != 1 or any(r.old_shape(v) != (1,) or not r.constant(r.var(v)) for v in others):
        return None
    shuffle = moved[0].owner
    source = shuffle.inputs[0]
    if not r.single(moved[0]) or not r.single(source) or source.owner.type not in _ARITHMETIC:
        return None
    operands = [r.var(source) if v is moved[0] else r.var(v) for v in opr.inputs]
    (inner,) = r.add(opr.type, *opr.params, inputs=operands, output_dtype=opr.output_dtype, like=opr)
    return r.add("Dimshuffle", *shuffle.params, inputs=[inner], like=shuffle)[0]
