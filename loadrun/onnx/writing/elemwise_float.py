"""Elemwise modes on float values: the ONNX operator of that meaning, or a composition of several in float32."""

from collections.abc import Callable
from math import pi, sqrt

from ...base.registry import Registry
from ...graph.params import ElemwiseMode as M
from ...ops.elemwise.table import ROWS
from ..tensors import ElemType
from .emitter import NodeEmitter, UnsupportedOprError

Function = Callable[..., str]

SINGLE = {mode: row.onnx for mode, row in ROWS.items() if row.onnx and row.real is not None}
"""Modes that are one ONNX operator on floats."""
COMPOSED: Registry[M, Function] = Registry("composition of ONNX's operators")
"""Modes that are several ONNX operators; arguments and result are float32."""
composed = COMPOSED.register


@composed(M.EXPM1)
def _expm1(e: NodeEmitter, x: str) -> str:
    """Compute ``2 exp(x/2) sinh(x/2)``, which loses nothing near 0; a plain difference where that would overflow.

    Runtimes have no Sinh of float64; there it is ``(u - 1) x / log(u)`` of ``u = exp(x)`` (W. Kahan).
    """
    if e.floating is ElemType.DOUBLE:
        power = e.op("Exp", x)
        near = e.op("Div", e.op("Mul", e.op("Sub", power, e.f32(1)), x), e.op("Log", power))
        near = e.where(e.equal(power, e.f32(1)), x, near)
    else:
        half = e.op("Mul", x, e.f32(0.5))
        near = e.op("Mul", e.op("Mul", e.f32(2), e.op("Exp", half)), e.op("Sinh", half))
    far = e.op("Sub", e.op("Exp", x), e.f32(1))
    return e.where(e.op("Less", e.op("Abs", x), e.f32(1)), near, far)


@composed(M.LOG1P)
def _log1p(e: NodeEmitter, x: str) -> str:
    """Compute ``2 atanh(x / (x + 2))`` near 0, where ``log(1 + x)`` loses digits.

    Runtimes have no Atanh of float64; there it is ``x log(u) / (u - 1)`` of ``u = 1 + x`` (W. Kahan).
    """
    above = e.op("Add", x, e.f32(1))
    far = e.op("Log", above)
    if e.floating is ElemType.DOUBLE:
        near = e.op("Div", e.op("Mul", x, far), e.op("Sub", above, e.f32(1)))
        near = e.where(e.equal(above, e.f32(1)), x, near)
    else:
        near = e.op("Mul", e.f32(2), e.op("Atanh", e.op("Div", x, e.op("Add", x, e.f32(2)))))
    return e.where(e.op("Less", e.op("Abs", x), e.f32(0.5)), near, far)


@composed(M.ERFC)
def _erfc(e: NodeEmitter, x: str) -> str:
    """Compute 1 - Erf in float64: float32 has no digits left where the result is small."""
    wide = e.op("Erf", x)
    return e.op("Sub", e.f32(1), wide)


@composed(M.GELU)
def erf_gelu(e: NodeEmitter, x: str) -> str:
    """Compute ``x (1 + erf(x / sqrt 2)) / 2``, in the order in which runtimes recognize it."""
    if e.opset >= 20:
        return e.op("Gelu", x)
    inner = e.op("Add", e.op("Erf", e.op("Div", x, e.f32(sqrt(2)))), e.f32(1))
    return e.op("Mul", e.op("Mul", x, inner), e.f32(0.5))


@composed(M.H_SWISH)
def _h_swish(e: NodeEmitter, x: str) -> str:
    # Runtimes have no HardSwish of float64.
    whole = e.opset >= 14 and e.floating is not ElemType.DOUBLE
    return e.op("HardSwish", x) if whole else stepwise_h_swish(e, x)


def stepwise_h_swish(e: NodeEmitter, x: str) -> str:
    """Compute ``x clip(x + 3, 0, 6) / 6`` in MegEngine's order, whose last bit decides how results are quantized."""
    return e.op("Mul", e.op("Mul", x, e.clip(e.op("Add", x, e.f32(3)), 0, 6)), e.f32(1 / 6))


@composed(M.SOFTPLUS)
def _softplus(e: NodeEmitter, x: str) -> str:
    if e.floating is not ElemType.DOUBLE:
        return e.op("Softplus", x)
    # Runtimes have no Softplus of float64.
    return e.op("Add", e.op("Relu", x), _log1p(e, e.op("Exp", e.op("Neg", e.op("Abs", x)))))


composed(M.LOGSIGMOID)(lambda e, x: e.op("Neg", _softplus(e, e.op("Neg", x))))


@composed(M.FAST_TANH)
def _fast_tanh(e: NodeEmitter, x: str) -> str:
    t = e.op("Mul", x, x)
    top = e.op("Mul", e.op("Add", t, e.f32(27)), x)
    return e.op("Div", top, e.op("Add", e.op("Mul", t, e.f32(9)), e.f32(27)))


composed(M.FLOOR_DIV)(lambda e, x, y: e.op("Floor", e.op("Div", x, y)))
composed(M.MOD)(lambda e, x, y: e.op("Mod", x, y, fmod=1))


@composed(M.LOG_SUM_EXP)
def _log_sum_exp(e: NodeEmitter, x: str, y: str) -> str:
    high = e.op("Max", x, y)
    gap = e.op("Neg", e.op("Abs", e.op("Sub", x, y)))
    return e.op("Add", high, _log1p(e, e.op("Exp", gap)))


@composed(M.ATAN2)
def _atan2(e: NodeEmitter, y: str, x: str) -> str:
    """Compute the angle of the point (x, y): Atan with the quadrant corrected."""
    if e.number(x) == 1:
        return e.op("Atan", y)
    zero = e.f32(0)
    angle = e.op("Atan", e.op("Div", y, x))
    turn = e.where(e.op("Less", y, zero), e.f32(-pi), e.f32(pi))
    # A negative zero tells the lower half plane, which only its reciprocal shows.
    below = e.op("Less", e.op("Div", e.f32(1), y), zero)
    turn = e.where(e.equal(y, zero), e.where(below, e.f32(-pi), e.f32(pi)), turn)
    angle = e.where(e.op("Less", x, zero), e.op("Add", angle, turn), angle)
    left = e.op("Less", e.op("Div", e.f32(1), x), zero)
    flat = e.where(left, turn, y)
    on_axis = e.where(e.equal(y, zero), flat, e.op("Mul", turn, e.f32(0.5)))
    return e.where(e.equal(x, zero), on_axis, angle)


def _mask(e: NodeEmitter, condition: str) -> str:
    return e.cast(condition, ElemType.FLOAT)


composed(M.LT)(lambda e, x, y: _mask(e, e.op("Less", x, y)))
composed(M.LEQ)(lambda e, x, y: _mask(e, e.leq(x, y)))
composed(M.EQ)(lambda e, x, y: _mask(e, e.equal(x, y)))


def _positive(e: NodeEmitter, x: str) -> str:
    return e.op("Less", e.f32(0), x)


composed(M.SWITCH_GT0)(lambda e, x, y: e.where(_positive(e, x), y, e.f32(0)))
composed(M.SILU)(lambda e, x: e.op("Mul", x, e.op("Sigmoid", x)))
composed(M.PRELU)(lambda e, x, y: e.where(_positive(e, x), x, e.op("Mul", x, y)))
composed(M.CLIP)(lambda e, x, low, high: e.where(e.leq(x, low), low, e.where(e.leq(x, high), x, high)))
composed(M.COND_LEQ_MOV)(lambda e, x, y, z: e.where(e.leq(x, y), z, e.f32(0)))
composed(M.COND_LT_MOV)(lambda e, x, y, z: e.where(e.op("Less", x, y), z, e.f32(0)))


def _chain(*kinds: str) -> Function:
    """Build a sum of two values followed by unary operators."""

    def apply(e: NodeEmitter, x: str, y: str) -> str:
        out = e.op("Add", x, y)
        for kind in kinds:
            out = e.op(kind, out)
        return out

    return apply


composed(M.RELU6)(lambda e, x: e.clip(x, 0, 6))
composed(M.HSIGMOID)(lambda e, x: e.clip(e.op("Div", e.op("Add", x, e.f32(3)), e.f32(6)), 0, 1))
composed(M.SQUARE)(lambda e, x: e.op("Mul", x, x))
composed(M.ROUND)(lambda e, x: e.round_away(x))
composed(M.MAX)(lambda e, x, y: e.op("Max", x, y))
composed(M.MIN)(lambda e, x, y: e.op("Min", x, y))
composed(M.FUSE_ADD_RELU)(_chain("Relu"))
composed(M.FUSE_ADD_SIGMOID)(_chain("Sigmoid"))
composed(M.FUSE_ADD_TANH)(_chain("Tanh"))
composed(M.FUSE_ADD_H_SWISH)(lambda e, x, y: _h_swish(e, e.op("Add", x, y)))
composed(M.FUSE_MUL_ADD3)(lambda e, x, y, z: e.op("Add", e.op("Mul", x, y), z))
composed(M.FUSE_MUL_ADD4)(lambda e, x, y, z, w: e.op("Add", e.op("Mul", x, y), e.op("Mul", z, w)))


def compose(e: NodeEmitter, mode: M, *args: str) -> str:
    """Apply one mode to float32 values.

    Raises:
        UnsupportedOprError: ONNX cannot express the mode.
    """
    if mode in SINGLE:
        return e.op(SINGLE[mode], *args)
    if mode in COMPOSED:
        return COMPOSED[mode](e, *args)
    if mode.name.endswith("_GRAD"):
        raise UnsupportedOprError("it computes gradients, which belong to training")
    raise UnsupportedOprError(
        f"ONNX has no {mode.name} for floats, and none can be composed to full precision"
    )
