"""Computing on small tensors before they are broadcast (MegEngine's DelayBroadcast)."""

from ...graph import Graph, Opr, Var
from ..rewriter import Rewriter, repeat

_ROUNDS = 16


def delay_broadcast(graph: Graph) -> Graph:
    """Let conversions and elementwise operators of one variable and scalars change places with a Broadcast before
    them; results are the same bits."""
    return repeat(graph, _swapped, _ROUNDS, "Elemwise", "TypeCvtV2")


def _swapped(r: Rewriter, opr: Opr) -> Var | None:
    wide = [v for v in opr.inputs if v.owner.type == "Broadcast" and r.old_shape(v) != (1,)]
    if len(wide) != 1 or not r.single(wide[0]) or r.frozen(wide[0].owner):
        return None
    source, shape = wide[0].owner.inputs
    others = [v for v in opr.inputs if v is not wide[0]]
    # Only constants have a shape that no input changes.
    if any(r.old_shape(v) != (1,) or not r.constant(r.var(v)) for v in others):
        return None
    operands = [r.var(source) if v is wide[0] else r.var(v) for v in opr.inputs]
    (inner,) = r.add(opr.type, *opr.params, inputs=operands, output_dtype=opr.output_dtype, like=opr)
    return r.add("Broadcast", *wide[0].owner.params, inputs=[inner, r.var(shape)], like=wide[0].owner)[0]
