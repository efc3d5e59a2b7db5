"""Fused elementwise modes: FUSE_MUL_ADD3, FUSE_MUL_ADD4 and FUSE_ADD_* (MegEngine's ArithFuse).

The fused modes compute what their parts compute, so that only the order of the summands can change a result, to within
rounding.
"""

from functools import partial
from math import prod

from ...graph import Graph, Opr, Var
from ...graph.params import ElemwiseMode
from ...ops.elemwise.table import ROWS
from ...ops.registry import Shape
from ..rewriter import Rewriter
from .identities import elemwise
from .terms import ends_chain, is_large, leaves, mode_of, uniform

M = ElemwiseMode
_ACTIVATIONS = {row.after_add: mode for mode, row in ROWS.items() if row.after_add is not None}


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
