"""What MegEngine simplifies while it makes an operator, at every level but 0.

- ``x - x`` is 0 and ``x / x`` is 1, also for infinities, NaN and 0, where computing would give NaN;
- ``log(exp(x))`` is ``x``, ``log(exp(x) + exp(y))`` is ``log_sum_exp(x, y)``, ``log(exp(x) * y)`` is ``x + log(y)``, as
  for the quotient: these neither overflow nor lose digits;
- ``log(1 + x)`` is ``log1p(x)``, ``exp(x) - 1`` is ``expm1(x)``.
"""

from __future__ import annotations

import numpy as np

from ...graph import Graph, Opr, Var
from ...params import Elemwise, ElemwiseMode, Empty, OptionalAxisV1
from ..arithmetic.identities import elemwise, neutral
from ..rewriter import Rewriter, each

__all__ = ["stabilize"]

M = ElemwiseMode


def stabilize(graph: Graph) -> Graph:
    """Simplify arithmetic as the module says.

    >>> from loadrun.dtypes import DType
    >>> from loadrun.graph import StoredTensor
    >>> from loadrun.params import Host2DeviceCopy
    >>> g = Graph()
    >>> (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"],
    ...              tensors=[StoredTensor(DType("Float32"), (2,), "x")])
    >>> (e,) = g.add("Elemwise", Elemwise(mode=M.EXP), inputs=[x])
    >>> g.outputs = g.add("Elemwise", Elemwise(mode=M.LOG), inputs=[e], names=["y"])
    >>> [o.title for o in stabilize(g).oprs]
    ['Host2DeviceCopy', 'Identity']
    """
    return each(graph, _visit, "Elemwise")


def _visit(r: Rewriter, opr: Opr) -> Var | None:
    given = [r.var(v) for v in opr.inputs]
    dtype = opr.outputs[0].dtype
    if dtype is None or dtype.is_quantized or any(r.dtype(v) != dtype for v in given):
        return None
    mode = opr.get(Elemwise).mode
    if mode in (M.SUB, M.TRUE_DIV, M.FLOOR_DIV) and given[0] is given[1]:
        return _number_like(r, given[0], 0 if mode == M.SUB else 1)
    if not dtype.is_float:
        return None
    if mode == M.LOG:
        return _log(r, given[0])
    if mode == M.SUB and (inner := _of(given[0], M.EXP)) is not None and neutral(r, given[1], 1.0, inner):
        return elemwise(r, M.EXPM1, inner)
    return None


def _of(var: Var, mode: ElemwiseMode) -> Var | None:
    """The first input of the operator that gives a variable, if that is of the mode."""
    owner = var.owner
    return owner.inputs[0] if owner.type == "Elemwise" and owner.get(Elemwise).mode == mode else None


def _log(r: Rewriter, x: Var) -> Var | None:
    if (inner := _of(x, M.EXP)) is not None:
        return inner
    owner = x.owner
    if owner.type != "Elemwise" or len(owner.inputs) != 2:
        return None
    a, b = owner.inputs
    mode = owner.get(Elemwise).mode
    ea, eb = _of(a, M.EXP), _of(b, M.EXP)
    if mode in (M.MUL, M.TRUE_DIV) and (ea is not None or eb is not None):
        parts = [v if e is None else e for v, e in ((a, ea), (b, eb))]
        logs = [p if e is not None else elemwise(r, M.LOG, p) for p, e in zip(parts, (ea, eb), strict=True)]
        return elemwise(r, M.ADD if mode == M.MUL else M.SUB, *logs)
    if mode == M.ADD:
        if ea is not None and eb is not None:
            return elemwise(r, M.LOG_SUM_EXP, ea, eb)
        for one, other in ((a, b), (b, a)):
            if neutral(r, one, 1.0, other):
                return elemwise(r, M.LOG1P, other)
    return None


def _number_like(r: Rewriter, x: Var, number: int) -> Var:
    """A number in the shape of a variable."""
    constant = r.put(np.full((1,), number, r.dtype(x).np), r.dtype(x))
    (shape,) = r.add("GetVarShapeV1", OptionalAxisV1(), inputs=[x])
    return r.add("Broadcast", Empty(), inputs=[constant, shape])[0]
