"""Elementwise operators that change nothing or undo each other.

What is exact and what is not:

- the same bits: ``x - 0``, ``x * 1``, ``x / 1``, ``x ** 1``, ``-(-x)``, ``||x||``, ``relu(relu(x))``, ``max(x, x)``,
  ``x + (-y)`` as ``x - y``, ``x / c`` as ``x * (1 / c)`` for a power of two, integers in every rule;
- equal numbers: ``x + 0`` is ``x``, so that -0 stays -0;
- rounded otherwise, to within a unit or two in the last place: ``(x + a) + b`` as ``x + (a + b)`` and ``(x * a) * b``
  as ``x * (a * b)`` for float constants, only where the constants do not cancel, overflow or underflow.

``x * 0`` stays, which is no zero for infinities and NaN; so do ``x - x`` and ``x / x``.
"""

from math import frexp

import numpy as np

from ...graph import Graph, Opr, Var
from ...graph.dtypes import DType
from ...graph.params import Elemwise, ElemwiseMode, PowC
from ...ops.elemwise.table import INVERSE, ROWS, ModeTrait, modes
from ..rewriter import Rewriter, each

M = ElemwiseMode
_UNDOES, _REPEATS, _SELECTS = modes(ModeTrait.UNDOES), modes(ModeTrait.REPEATS), modes(ModeTrait.SELECTS)
_GIVES_FLOAT, _CHAINS = modes(ModeTrait.GIVES_FLOAT), modes(ModeTrait.ASSOCIATIVE)
_LARGE = 2.0**96


def elemwise(r: Rewriter, mode: ElemwiseMode, *inputs: Var) -> Var:
    """Append an elementwise operator."""
    return r.add("Elemwise", Elemwise(mode=mode), inputs=inputs)[0]


def remove_identities(graph: Graph) -> Graph:
    """Remove elementwise operators without effect, and join pairs as the module says.

    >>> from loadrun.graph.dtypes import DType
    >>> from loadrun.graph import StoredTensor
    >>> from loadrun.graph.params import Host2DeviceCopy
    >>> g = Graph()
    >>> (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"],
    ...              tensors=[StoredTensor(DType("Float32"), (2,), "x")])
    >>> negate = Elemwise(mode=M.NEGATE)
    >>> (y,) = g.add("Elemwise", negate, inputs=g.add("Elemwise", negate, inputs=[x]), names=["y"])
    >>> g.outputs = [y]
    >>> [o.title for o in remove_identities(g).oprs]
    ['Host2DeviceCopy', 'Identity']
    """
    return each(graph, _visit, "Elemwise", "PowC")


def _visit(r: Rewriter, opr: Opr) -> Var | None:
    operands = [r.var(v) for v in opr.inputs]
    if opr.type == "PowC":
        return operands[0] if opr.get(PowC).exp == 1 and r.dtype(operands[0]).is_float else None
    dtype = opr.outputs[0].dtype
    if dtype is None or dtype.is_quantized or any(r.dtype(v) != dtype for v in operands):
        return None
    mode = opr.get(Elemwise).mode
    if len(operands) == 1:
        return _unary(r, mode, operands[0])
    if len(operands) == 2:
        return (
            _binary(r, opr, mode, *operands)
            or _negated(r, mode, *operands)
            or _constants(r, opr, mode, *operands)
        )
    return None


def _mode(var: Var) -> ElemwiseMode | None:
    return var.owner.get(Elemwise).mode if var.owner.type == "Elemwise" else None


def _unary(r: Rewriter, mode: ElemwiseMode, x: Var) -> Var | None:
    inner = _mode(x)
    if inner == mode and mode in _UNDOES | _REPEATS:
        return x.owner.inputs[0] if mode in _UNDOES else x
    if mode == M.ABS and inner == M.NEGATE and r.dtype(x).is_float:
        return elemwise(r, M.ABS, x.owner.inputs[0])
    return None


def neutral(r: Rewriter, constant: Var, number: float, x: Var) -> bool:
    """Return whether a constant holds that number everywhere and does not broadcast `x` to another shape.

    A weight that a program may exchange is not a constant in this sense.
    """
    if not r.immutable(constant) or r.scalar(constant) != number:
        return False
    shape, other = r.shape(constant), r.shape(x)
    if shape is None:
        return False
    if shape == (1,):
        return True
    if other is None or len(shape) > len(other):
        return False
    # A batch axis may be 1 with other inputs, and would grow then.
    pairs = list(zip(shape, other[len(other) - len(shape) :], strict=True))
    batch = len(shape) == len(other)
    return all(a == 1 or (a == b and not (batch and i == 0)) for i, (a, b) in enumerate(pairs))


def _binary(r: Rewriter, opr: Opr, mode: ElemwiseMode, a: Var, b: Var) -> Var | None:
    if a is b and mode in _SELECTS:
        return a
    number, whole = ROWS[mode].neutral, not r.dtype(a).is_float
    if number is None or (whole and mode in _GIVES_FLOAT) or (mode == M.FLOOR_DIV and not whole):
        return None
    if neutral(r, b, number, a):
        return a
    return b if mode in _CHAINS and neutral(r, a, number, b) else None


def _negated(r: Rewriter, mode: ElemwiseMode, a: Var, b: Var) -> Var | None:
    """Rewrite sums and differences with a negated term."""
    if mode == M.ADD and _mode(b) == M.NEGATE:
        return elemwise(r, M.SUB, a, b.owner.inputs[0])
    if mode == M.ADD and _mode(a) == M.NEGATE:
        return elemwise(r, M.SUB, b, a.owner.inputs[0])
    if mode == M.SUB and _mode(b) == M.NEGATE:
        return elemwise(r, M.ADD, a, b.owner.inputs[0])
    return None


def _constants(r: Rewriter, opr: Opr, mode: ElemwiseMode, a: Var, b: Var) -> Var | None:
    """Join scalar constants that follow each other."""
    dtype = r.dtype(a)
    if mode == M.TRUE_DIV:
        number = _scalar_value(r, b)
        if number is None or not dtype.is_float or not number or abs(frexp(number)[0]) != 0.5:
            return None
        inverse = 1 / number
        if not 1 / _LARGE < abs(inverse) < _LARGE or dtype.name != "Float32":
            return None
        return elemwise(r, M.MUL, a, _scalar(r, inverse, dtype))
    if mode not in INVERSE or dtype.name not in ("Float32", "Int32", "Int16", "Int8", "Uint8"):
        return None
    x, second = _split(r, a, b)
    if x is None or second is None or _mode(x) != mode:
        return None
    old = opr.inputs[0] if r.var(opr.inputs[0]) is x else opr.inputs[1]
    inner, first = _split(r, *x.owner.inputs)
    if inner is None or first is None or not r.single(old) or r.dtype(inner) != dtype:
        return None
    joined = _constant_of_both(mode, first, second, dtype)
    return None if joined is None else elemwise(r, mode, inner, _scalar(r, joined, dtype))


def _split(r: Rewriter, a: Var, b: Var) -> tuple[Var | None, float | None]:
    """Return the variable and the number among two inputs."""
    number = _scalar_value(r, b)
    if number is not None:
        return (None, None) if _scalar_value(r, a) is not None else (a, number)
    number = _scalar_value(r, a)
    return (b, number) if number is not None else (None, None)


def _scalar_value(r: Rewriter, var: Var) -> float | None:
    return r.scalar(var) if r.shape(var) == (1,) and r.immutable(var) else None


def _constant_of_both(mode: ElemwiseMode, a: float, b: float, dtype: DType) -> float | None:
    if not dtype.is_float:
        whole = int(a) + int(b) if mode == M.ADD else int(a) * int(b)
        bits, signed = dtype.bits, dtype.np.kind == "i"
        whole &= (1 << bits) - 1
        return whole - (1 << bits) if signed and whole >> (bits - 1) else whole
    if not (np.isfinite(a) and np.isfinite(b)):
        return None
    if mode == M.ADD:
        return a + b if a * b >= 0 and abs(a + b) < _LARGE else None
    return a * b if 1 / _LARGE < abs(a * b) < _LARGE and max(abs(a), abs(b)) < _LARGE else None


def _scalar(r: Rewriter, number: float, dtype: DType) -> Var:
    return r.put(np.array([number]).astype(dtype.np), dtype)
