"""Multiplying out sums where that saves work (MegEngine's ArithMulDistribute)."""

from math import prod

from ...graph import Graph, Opr, Var
from ...graph.params import ElemwiseMode
from ...ops.numeric.special import broadcast
from ...ops.registry import Shape
from ..rewriter import Rewriter
from .identities import elemwise
from .terms import leaves, mode_of, uniform

M = ElemwiseMode


def distribute_products(graph: Graph) -> Graph:
    """Write ``(x * a + y * b) * m`` as ``x * (a * m) + y * (b * m)`` where that saves work.

    That is, where `m` is smaller than the sum, and so are `a` and `b` together. Results agree to within rounding.
    """
    r = Rewriter(graph)
    r.rewrite(lambda o: _distributed(r, o) if mode_of(o) == M.MUL and uniform(r, o) is not None else None)
    return r.finish()


def _distributed(r: Rewriter, opr: Opr) -> Var | None:
    total, factor = opr.inputs
    shapes = [r.old_shape(total), r.old_shape(factor)]
    if shapes[0] is None or shapes[1] is None or prod(shapes[0]) == prod(shapes[1]):
        return None
    if prod(shapes[0]) < prod(shapes[1]):
        total, factor = factor, total
    shape, small = r.old_shape(total), r.old_shape(factor)
    if shape is None or small is None or r.old_shape(opr.outputs[0]) != shape or not r.single(total):
        return None
    terms = leaves(r, total, M.ADD)
    if len(terms) < 2 or mode_of(total.owner) != M.ADD or r.frozen(total.owner):
        return None
    saved = prod(shape)
    plans = []
    for term in terms:
        factors = leaves(r, term, M.MUL) if r.single(term) else [term]
        best = _smallest(r, factors, small, saved)
        if best is None:
            return None
        saved -= prod(r.old_shape(factors[best]) or ())
        plans.append((factors, best))
    result: Var | None = None
    for factors, best in plans:
        parts = [r.var(v) for v in factors]
        parts[best] = elemwise(r, M.MUL, parts[best], r.var(factor))
        product = parts[0]
        for part in parts[1:]:
            product = elemwise(r, M.MUL, product, part)
        result = product if result is None else elemwise(r, M.ADD, result, product)
    return result


def _smallest(r: Rewriter, factors: list[Var], small: Shape, limit: int) -> int | None:
    """Return the smallest factor that a product with `small` does not make larger."""
    best = None
    for i, var in enumerate(factors):
        shape = r.old_shape(var)
        if shape is not None and broadcast([shape, small]) == shape and prod(shape) < limit:
            best, limit = i, prod(shape)
    return best
