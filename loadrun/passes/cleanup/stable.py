"""The simplifications that MegEngine does while it makes an operator, at every level but 0.

- ``x + 0``, ``x * 1`` and ``x ** 1`` are ``x``, for a number of one axis (other neutral ones stay);
- ``x - x`` is 0 and ``x / x`` is 1, also for infinities, NaN and 0, where computing would give NaN;
- ``log(exp(x))`` is ``x``, ``log(exp(x) + exp(y))`` is ``log_sum_exp(x, y)``, ``log(exp(x) * y)`` is ``x + log(y)``, as
  for the quotient: these neither overflow nor lose digits;
- ``log(1 + x)`` is ``log1p(x)``, ``exp(x) - 1`` is ``expm1(x)``.

What takes the place of an operator has its name. At every level what follows from small constants and weights is a
constant, and a sum of ``x ** 2`` or ``square(x)`` is one operator.
"""

from math import prod

import numpy as np

from ...graph import Graph, Opr, Var
from ...graph.params import Elemwise, ElemwiseMode, Empty, OptionalAxisV1, Reduce, ReduceDataType, ReduceMode
from ...ops.catalog import types
from ...ops.elemwise.table import ROWS, modes
from ...ops.elemwise.table import ModeTrait as T
from ...ops.op import Trait
from ..arithmetic.identities import elemwise, neutral
from ..rewriter import Rewriter, each

M = ElemwiseMode
_LEFT_OUT, _CHAINS, _PRODUCTS = (modes(t) for t in (T.LEFT_OUT, T.ASSOCIATIVE, T.PRODUCT))
_FOLDED, _CONSTANTS = types(Trait.FOLDED), types(Trait.CONSTANT)
_SPREAD = "Broadcast"
"""The operator that stays where nothing computes with it."""
_SMALL = 1024
"""How many elements such a value has at most."""


def stabilize(graph: Graph) -> Graph:
    """Simplify arithmetic as the module says.

    >>> from loadrun.graph.dtypes import DType
    >>> from loadrun.graph import StoredTensor
    >>> from loadrun.graph.params import Host2DeviceCopy
    >>> g = Graph()
    >>> (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"],
    ...              tensors=[StoredTensor(DType("Float32"), (2,), "x")])
    >>> (e,) = g.add("Elemwise", Elemwise(mode=M.EXP), inputs=[x])
    >>> g.outputs = g.add("Elemwise", Elemwise(mode=M.LOG), inputs=[e], names=["y"])
    >>> [o.title for o in stabilize(g).oprs]
    ['Host2DeviceCopy', 'Identity']
    """
    return each(graph, _simpler, "Elemwise")


def as_made(graph: Graph, level: int) -> Graph:
    """Return what MegEngine makes of operators: constants folded, squares summed, above level 0 what `stabilize` does.

    Args:
        level: the trace's level of optimization.

    >>> import loadrun
    >>> from loadrun.megengine.functional import sum
    >>> traced = loadrun.tracing.trace(symbolic=True, capture_as_const=True)(lambda x: sum(x**2))
    >>> traced(loadrun.tensor([1.0, 2.0])).item()
    5.0
    >>> [o.title for o in as_made(traced.graph(), 0).oprs if not o.tensors]
    ['ReduceV2']
    """
    return each(graph, _simplified if level else _folded, *_FOLDED)


def _simplified(r: Rewriter, opr: Opr) -> Var | None:
    return _folded(r, opr) or (_simpler(r, opr) if opr.type == "Elemwise" else None)


def _folded(r: Rewriter, opr: Opr) -> Var | None:
    return _constant(r, opr) or (_sum_of_squares(r, opr) if opr.type == "ReduceV2" else None)


def _sum_of_squares(r: Rewriter, opr: Opr) -> Var | None:
    operands = [r.var(v) for v in opr.inputs]
    p, inner = opr.get(Reduce), operands[0].owner
    if p.mode != ReduceMode.SUM or p.data_type != ReduceDataType.DEFAULT or inner.type != "Elemwise":
        return None
    mode = inner.get(Elemwise).mode
    if mode != M.SQUARE and not (mode == M.POW and _is_number(r, inner.inputs[1], 2.0)):
        return None
    x = inner.inputs[0]
    if not r.dtype(x).is_float or r.dtype(x) != r.dtype(operands[0]):
        return None
    (y,) = r.add("ReduceV2", p.replace(mode=ReduceMode.SUM_SQR), inputs=[x, *operands[1:]], like=opr)
    y.owner.name = opr.name
    return y


def _is_number(r: Rewriter, var: Var, number: float) -> bool:
    """Return whether a variable is that number, as a constant of one axis."""
    return r.shape(var) == (1,) and r.immutable(var) and r.scalar(var) == number


def _simpler(r: Rewriter, opr: Opr) -> Var | None:
    before = len(r.new.oprs)
    simpler = _visit(r, opr)
    if simpler is not None and simpler.owner.id >= before:
        simpler.owner.name = opr.name
    return simpler


def _constant(r: Rewriter, opr: Opr) -> Var | None:
    operands = [r.var(v) for v in opr.inputs]
    if not operands or not all(_known(r, v) for v in operands):
        return None
    dtype = opr.outputs[0].dtype
    if dtype is None:
        return None
    at = r.copy(opr)[0]
    value = r.value(at)
    if value is None or not 0 < value.size <= _SMALL:
        return None
    return r.put(value, dtype)


def _known(r: Rewriter, var: Var) -> bool:
    """Return whether a variable is a small constant, or one repeated along new axes."""
    owner = var.owner
    if owner.type == _SPREAD:
        shape = r.shape(var)
        return shape is not None and prod(shape) <= _SMALL and all(_known(r, v) for v in owner.inputs)
    return (
        owner.type in _CONSTANTS and len(owner.tensors) == 1 and prod(owner.tensors[0].shape or ()) <= _SMALL
    )


def _visit(r: Rewriter, opr: Opr) -> Var | None:
    operands = [r.var(v) for v in opr.inputs]
    dtype = opr.outputs[0].dtype
    if dtype is None or dtype.is_quantized or any(r.dtype(v) != dtype for v in operands):
        return None
    mode = opr.get(Elemwise).mode
    number = ROWS[mode].neutral
    if mode in _LEFT_OUT and number is not None:
        for at in (0, 1) if mode in _CHAINS else (1,):
            if _is_number(r, operands[at], number):
                return operands[1 - at]
    number = ROWS[mode].of_same
    if number is not None and operands[0] is operands[1]:
        return _number_like(r, operands[0], number)
    if not dtype.is_float:
        return None
    if mode == M.LOG:
        return _log(r, operands[0])
    if (
        mode == M.SUB
        and (inner := _of(operands[0], M.EXP)) is not None
        and neutral(r, operands[1], 1.0, inner)
    ):
        return elemwise(r, M.EXPM1, inner)
    return None


def _of(var: Var, mode: ElemwiseMode) -> Var | None:
    """Return the first input of the operator that gives a variable, if that is of the mode."""
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
    if mode in _PRODUCTS and (ea is not None or eb is not None):
        parts = [v if e is None else e for v, e in ((a, ea), (b, eb))]
        logs = [
            p if e is not None else _log(r, p) or elemwise(r, M.LOG, p)
            for p, e in zip(parts, (ea, eb), strict=True)
        ]
        return elemwise(r, M.ADD if mode == M.MUL else M.SUB, *logs)
    if mode == M.ADD:
        if ea is not None and eb is not None:
            return elemwise(r, M.LOG_SUM_EXP, ea, eb)
        for one, other in ((a, b), (b, a)):
            if neutral(r, one, 1.0, other):
                return elemwise(r, M.LOG1P, other)
    return None


def _number_like(r: Rewriter, x: Var, number: float) -> Var:
    """Return a number in the shape of a variable."""
    constant = r.put(np.full((1,), number, r.dtype(x).np), r.dtype(x))
    (shape,) = r.add("GetVarShapeV1", OptionalAxisV1(), inputs=[x])
    return r.add("Broadcast", Empty(), inputs=[constant, shape])[0]
