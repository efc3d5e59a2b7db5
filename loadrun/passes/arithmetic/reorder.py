"""Reordering long sums, products, maxima and minima so that constants and small terms meet first.

MegEngine's ReorderArithChain: constants among each other, then terms of equal shape, then those that broadcast to each
other, from small to large. Sums and products of floats agree to within rounding, maxima and minima to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod

from ...graph import Graph, Opr, Var
from ...graph.params import ElemwiseMode
from ...ops.elemwise.table import ModeTrait, modes
from ...ops.numeric.chunks import broadcast
from ...ops.registry import Shape
from ..rewriter import Rewriter
from .identities import elemwise
from .terms import ends_chain, leaves, mode_of, uniform

__all__ = ["reorder_chains"]

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
    _merge(r, mode, constants, broadcasting=False)
    _merge(r, mode, others, broadcasting=False)
    _merge(r, mode, constants, broadcasting=True)
    joined = constants + others
    _merge(r, mode, joined, broadcasting=False)
    _merge(r, mode, joined, broadcasting=True)
    joined.sort(key=lambda t: prod(t.shape))
    total = joined[0].var
    for term in joined[1:]:
        total = elemwise(r, mode, total, term.var)
    return total


def _merge(r: Rewriter, mode: ElemwiseMode, terms: list[_Term], *, broadcasting: bool) -> None:
    """Join terms in place whose joined shape is that of one of them, into the smallest that will do."""
    merged = True
    while merged:
        merged = False
        for i, source in enumerate(terms):
            places = [j for j, t in enumerate(terms) if j != i and _fits(source.shape, t.shape, broadcasting)]
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


def _fits(a: Shape, b: Shape, broadcasting: bool) -> bool:
    return a == b or (broadcasting and _broadcast(a, b) in (a, b))
