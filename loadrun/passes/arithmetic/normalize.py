"""Sums and products in a normal form: one term per variable, differences and quotients as negated terms.

MegEngine's ExpandFusedArith, NormalizeArithChain and FinalArithTransform. In between, `redistribute` and `reorder` find
constants wherever they are in a chain; the last pass writes differences, quotients and powers as operators of their
own again. Results agree to within rounding. Unlike MegEngine, roots are never merged with powers: ``(x ** 2) ** 0.5``
stays ``|x|``; terms that cancel altogether stay, since they are NaN where the term is infinite; and what a step shows
to the last bit (`terms.on_grid`) stays as it is, so that quotients do not become products with a rounded inverse.
"""

from __future__ import annotations

from collections import deque
from functools import partial

import numpy as np

from ...graph import Graph, Opr, Var
from ...graph.params import Elemwise, ElemwiseMode, PowC
from ...ops.catalog import select
from ...ops.elemwise.modes import stored_scalar
from ...ops.elemwise.table import ROWS, ModeTrait, modes
from ..rewriter import Rewriter, each
from .identities import elemwise
from .terms import is_large, mode_of, uniform

M = ElemwiseMode
_FUSED = {mode: row.after_add for mode, row in ROWS.items() if row.after_add is not None}
_SUMS, _PRODUCTS = modes(ModeTrait.SUM), modes(ModeTrait.PRODUCT)
_INVERSE = {mode: row.inverse for mode, row in ROWS.items() if row.inverse is not None}
_CHAINED = select(lambda op: op.family == "elemwise.modes")


def expand_fused(graph: Graph) -> Graph:
    """Write FUSE_MUL_ADD3, FUSE_MUL_ADD4 and FUSE_ADD_* as the operators that they fuse."""

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        mode, dtype = opr.get(Elemwise).mode, uniform(r, opr)
        # Fused operators differ from the others when integers overflow.
        if dtype is None or not dtype.is_float:
            return None
        operands = [r.var(v) for v in opr.inputs]
        if mode == M.FUSE_MUL_ADD3:
            return elemwise(r, M.ADD, elemwise(r, M.MUL, *operands[:2]), operands[2])
        if mode == M.FUSE_MUL_ADD4:
            return elemwise(r, M.ADD, elemwise(r, M.MUL, *operands[:2]), elemwise(r, M.MUL, *operands[2:]))
        return elemwise(r, _FUSED[mode], elemwise(r, M.ADD, *operands)) if mode in _FUSED else None

    return each(graph, visit, "Elemwise")


def normalize_chains(graph: Graph) -> Graph:
    """Rewrite chains of sums and of products with differences, quotients or repeated terms."""
    r = Rewriter(graph)
    r.rewrite(partial(_rewritten, r))
    return r.finish()


def _rewritten(r: Rewriter, opr: Opr) -> Var | None:
    family = _family(r, opr)
    if family is M.ADD and is_large(r, opr.outputs[0]):
        return None
    return _normalized(r, opr, family) if family is not None and _ends(r, opr, family) else None


def _family(r: Rewriter, opr: Opr) -> ElemwiseMode | None:
    """Return ADD for sums and what becomes one, MUL for products, quotients and powers."""
    if opr.type not in _CHAINED or r.frozen(opr) or uniform(r, opr) is None:
        return None
    mode = mode_of(opr)
    if mode in _SUMS:
        return M.ADD
    if mode in _PRODUCTS or _exponent(opr) is not None:
        return M.MUL if opr.outputs[0].dtype is not None and opr.outputs[0].dtype.is_float else None
    return None


def _exponent(opr: Opr) -> float | None:
    """Return the constant exponent of a power."""
    if opr.type == "PowC":
        return opr.get(PowC).exp
    return stored_scalar(opr.inputs[1]) if mode_of(opr) == M.POW else None


def _ends(r: Rewriter, opr: Opr, family: ElemwiseMode) -> bool:
    var = opr.outputs[0]
    values = r.value_readers(var)
    return not r.single(var) or not values or r.frozen(values[0]) or _family(r, values[0]) is not family


def _terms_of(r: Rewriter, opr: Opr, family: ElemwiseMode) -> list[tuple[Var, float]] | None:
    """Return the terms of one operator with their coefficients (exponents), None if it is a term itself."""
    if opr.type not in _CHAINED or r.frozen(opr) or uniform(r, opr) is None:
        return None
    mode = mode_of(opr)
    if mode == family:
        return [(v, 1.0) for v in opr.inputs]
    if mode == _INVERSE[family]:
        return [(opr.inputs[0], 1.0), (opr.inputs[1], -1.0)]
    if family == M.MUL:
        exponent = _exponent(opr)
        return [(opr.inputs[0], exponent)] if exponent is not None and exponent == int(exponent) else None
    if mode == M.NEGATE:
        return [(opr.inputs[0], -1.0)]
    if mode == M.MUL:
        for x, c in (opr.inputs, opr.inputs[::-1]):
            number = stored_scalar(c)
            if number is not None and stored_scalar(x) is None:
                return [(x, number)]
    if mode == M.TRUE_DIV and opr.outputs[0].dtype is not None and opr.outputs[0].dtype.is_float:
        number = stored_scalar(opr.inputs[1])
        return [(opr.inputs[0], float(np.float32(1) / np.float32(number)))] if number else None
    return None


def _normalized(r: Rewriter, end: Opr, family: ElemwiseMode) -> Var | None:
    queue = deque([(end.outputs[0], 1.0)])
    terms: dict[int, tuple[Var, float]] = {}
    negative = scaled = count = 0
    powers = False
    while queue:
        var, factor = queue.popleft()
        opr = var.owner
        parts = _terms_of(r, opr, family) if opr is end or (r.single(var) and not is_large(r, var)) else None
        if parts is None and opr is end:
            return None
        if parts is None:
            count += 1
            new = r.var(var)
            terms[new.id] = (new, factor + terms.get(new.id, (new, 0.0))[1])
            continue
        negative += mode_of(opr) == _INVERSE[family]
        scaled += len(parts) == 1 and parts[0][1] != 1
        powers |= opr.type == "PowC"
        queue.extend((v, factor * c) for v, c in parts)
    if not (negative or scaled >= 2 or count > len(terms) or powers):
        return None
    if any(not np.isfinite(c) or c == 0 or (len(terms) == 1 and c == 1) for _, c in terms.values()):
        return None
    return _written(r, list(terms.values()), family)


def _written(r: Rewriter, terms: list[tuple[Var, float]], family: ElemwiseMode) -> Var:
    total: Var | None = None
    for x, factor in terms:
        term = x
        if factor != 1:
            if family == M.MUL:
                (term,) = r.add("PowC", PowC(exp=factor), inputs=[x])
            elif factor == -1:
                term = elemwise(r, M.NEGATE, x)
            else:
                dtype = r.dtype(x)
                term = elemwise(r, M.MUL, x, r.put(np.array([factor]).astype(dtype.np), dtype))
        total = term if total is None else elemwise(r, family, total, term)
    assert total is not None
    return total


def finish_arithmetic(graph: Graph) -> Graph:
    """Write sums with negated terms as differences, products with inverse factors as quotients, and constant powers
    as PowC."""

    def visit(r: Rewriter, opr: Opr) -> Var | None:
        if uniform(r, opr) is None:
            return None
        mode = mode_of(opr)
        if mode == M.POW:
            exponent = _exponent(opr)
            return (
                None
                if exponent is None
                else r.add("PowC", PowC(exp=exponent), inputs=[r.var(opr.inputs[0])])[0]
            )
        if mode not in _INVERSE:
            return None
        a, b = (r.var(v) for v in opr.inputs)
        first, second = _inverse(a, mode), _inverse(b, mode)
        back = _INVERSE[mode]
        if first is not None and second is not None:
            inner = elemwise(r, mode, first, second)
            if mode == M.ADD:
                return elemwise(r, M.NEGATE, inner)
            return r.add("PowC", PowC(exp=-1.0), inputs=[inner])[0]
        if first is not None:
            return elemwise(r, back, b, first)
        return elemwise(r, back, a, second) if second is not None else None

    return each(graph, visit, "Elemwise")


def _inverse(var: Var, mode: ElemwiseMode) -> Var | None:
    opr = var.owner
    if mode == M.ADD:
        return opr.inputs[0] if mode_of(opr) == M.NEGATE else None
    return opr.inputs[0] if opr.type == "PowC" and opr.get(PowC).exp == -1 else None
