"""Reordering long sums, products, maxima and minima so that constants and small terms meet first.

MegEngine's ReorderArithChain: constants among each other, then terms of equal shape, then those that broadcast to each
other, from small to large. Sums and products of floats agree to within rounding, maxima and minima to the bit.
"""

from dataclasses import dataclass
from functools import partial
from math import prod

from ...graph import Graph, Opr, Var
from ...graph.params import ElemwiseMode
from ...ops.elemwise.table import ModeTrait, modes
from ...ops.numeric.special import broadcast
from ...ops.registry import Shape
from ..rewriter import Rewriter
from .identities import elemwise
from .terms import ends_chain, leaves, mode_of, uniform

M = ElemwiseMode
_MODES = modes(ModeTrait.ASSOCIATIVE)


@dataclass
class _Term:
    shape: Shape
    var: Var


def reorder_chains(graph: Graph) -> Graph:
    """Rewrite chains of at least three terms."""
    r = Rewriter(graph)
    r.rewrite(partial(_visit, r))
    return r.finish()


def _visit(r: Rewriter, opr: Opr) -> Var | None:
    mode = mode_of(opr)
    if mode not in _MODES or uniform(r, opr) is None or not ends_chain(r, opr, [mode]):
        return None
    return _reordered(r, opr, mode)


def _reordered(r: Rewriter, end: Opr, mode: ElemwiseMode) -> Var | None:
    terms = leaves(r, end.outputs[0], mode)
    if len(terms) < 3 or all(r.constant(r.var(v)) for v in terms):
        return None
    constants: list[_Term] = []
    others: list[_Term] = []
    for old in sorted(terms, key=lambda v: v.id):
        shape = r.old_shape(old)
        if shape is None:
            return None
        new = r.var(old)
        (constants if r.constant(new) else others).append(_Term(shape, new))
    constants = _merge_equal(r, mode, constants)
    others = _merge_equal(r, mode, others)
    _merge_broadcast(r, mode, constants)
    joined = _merge_equal(r, mode, constants + others)
    _merge_broadcast(r, mode, joined)
    joined.sort(key=lambda t: prod(t.shape))
    total = joined[0].var
    for term in joined[1:]:
        total = elemwise(r, mode, total, term.var)
    return total


def _merge_equal(r: Rewriter, mode: ElemwiseMode, terms: list[_Term]) -> list[_Term]:
    """Join each term with the next one of its shape; what is left has as many terms as there are shapes."""
    following: dict[int, _Term] = {}
    last: dict[Shape, _Term] = {}
    for term in reversed(terms):
        if term.shape in last:
            following[id(term)] = last[term.shape]
        last[term.shape] = term
    for term in terms:
        target = following.get(id(term))
        if target is not None:
            target.var = elemwise(r, mode, term.var, target.var)
    return [t for t in terms if id(t) not in following]


def _merge_broadcast(r: Rewriter, mode: ElemwiseMode, terms: list[_Term]) -> None:
    """Join terms of different shapes in place where the joined shape is that of one, into the smallest that will do."""
    merged = True
    while merged:
        merged = False
        for i, source in enumerate(terms):
            places = [
                j
                for j, t in enumerate(terms)
                if j != i and _broadcast(source.shape, t.shape) in (source.shape, t.shape)
            ]
            if not places:
                continue
            best = min(places, key=lambda j: (prod(_broadcast(source.shape, terms[j].shape)), j))
            target = terms[best]
            terms[best] = _Term(
                _broadcast(source.shape, target.shape), elemwise(r, mode, source.var, target.var)
            )
            del terms[i]
            merged = True
            break


def _broadcast(a: Shape, b: Shape) -> Shape:
    return a if a == b else broadcast([a, b])
