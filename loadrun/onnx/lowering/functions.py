"""Elementwise functions of one tensor: transcendental ones and activations."""

from __future__ import annotations

from collections.abc import Callable

from ...build import emit as e
from ...build.layers import activation as build
from ...graph import params as P
from ...ops.elemwise.table import ROWS
from ...tensors import Tensor
from ...tensors.access import dtype_of, static_shape
from ..call import NodeCall, lower
from ..values import UnsupportedNodeError
from . import M, cast, const_like, floats

__all__ = ["activation", "relu"]

_LT = P.ElemwiseMultiTypeMode.LT


def _unary_lowering(mode: P.ElemwiseMode) -> Callable[[NodeCall], Tensor]:
    return lambda c: e.elem(mode, c.t(0))


for _row in ROWS.values():
    # Functions that take integers too are elsewhere.
    if _row.onnx and _row.arity == 1 and _row.real is not None and _row.whole is None:
        lower(_row.onnx)(_unary_lowering(_row.mode))
lower("Softplus")(_unary_lowering(M.SOFTPLUS))
lower("HardSwish")(_unary_lowering(M.H_SWISH))


@lower("Atan")
def _atan(c: NodeCall) -> Tensor:
    x = c.t(0)
    return e.elem(M.ATAN2, x, const_like(1, x))


@lower("Reciprocal")
def _reciprocal(c: NodeCall) -> Tensor:
    x = c.t(0)
    return e.elem(M.TRUE_DIV, const_like(1, x), x)


def relu(x: Tensor) -> Tensor:
    """Compute max(0, x)."""
    return e.elem(M.RELU, x) if dtype_of(x).is_float else e.elem(M.MAX, const_like(0, x), x)


@lower("Relu")
def _relu(c: NodeCall) -> Tensor:
    return relu(c.t(0))


@lower("Elu")
def _elu(c: NodeCall) -> Tensor:
    return _scaled_elu(c, c.finite("alpha", 1.0))


def _scaled_elu(c: NodeCall, alpha: float, scale: float = 1, input_scale: float = 1) -> Tensor:
    """Compute ELU; of float16 in float32, which holds its parameters and steps."""
    return cast(build.elu(e.real(c.t(0)), alpha, scale, input_scale), dtype_of(c.t(0)))


@lower("Celu")
def _celu(c: NodeCall) -> Tensor:
    alpha = c.real("alpha", 1.0)
    return _scaled_elu(c, alpha, input_scale=1 / alpha if alpha else float("inf"))


@lower("Selu")
def _selu(c: NodeCall) -> Tensor:
    old = c.opset < 6
    alpha = c.finite("alpha", 1.6732 if old else 1.67326319217681884765625)
    gamma = c.finite("gamma", 1.0507 if old else 1.05070102214813232421875)
    return _scaled_elu(c, alpha, gamma)


@lower("LeakyRelu")
def _leaky(c: NodeCall) -> Tensor:
    return build.prelu(c.t(0), c.finite("alpha", 0.01))


@lower("PRelu")
def _prelu(c: NodeCall) -> Tensor:
    x, slope = c.t(0), c.t(1)
    if c.opset < 7 and slope.ndim == 1 and x.ndim > 2 and static_shape(slope)[0] != 1:
        slope = e.add_axes(slope, range(1, x.ndim - 1))
    if dtype_of(x).is_float:
        return build.prelu(x, slope)
    wide, factor = cast(x, "int32"), cast(slope, "int32")
    return e.where(e.compare(_LT, wide, const_like(0, wide)), e.elem(M.MUL, wide, factor), wide)


@lower("ThresholdedRelu")
def _thresholded(c: NodeCall) -> Tensor:
    x = c.t(0)
    alpha = const_like(c.real("alpha", 1.0), x)
    return e.elem(M.COND_LT_MOV, alpha, x, x)


@lower("HardSigmoid")
def _hard_sigmoid(c: NodeCall) -> Tensor:
    return build.hard_sigmoid(c.t(0), c.real("alpha", 0.2), c.real("beta", 0.5))


@lower("Softsign")
def _softsign(c: NodeCall) -> Tensor:
    return softsign(c.t(0))


def softsign(x: Tensor) -> Tensor:
    """Compute x / (1 + |x|)."""
    return e.elem(M.TRUE_DIV, x, e.elem(M.ADD, const_like(1, x), e.elem(M.ABS, x)))


@lower("Shrink")
def _shrink(c: NodeCall) -> Tensor:
    x = floats(c.t(0))
    bound, bias = const_like(c.real("lambd", 0.5), x), const_like(c.real("bias"), x)
    up = e.elem(M.COND_LT_MOV, bound, x, e.elem(M.SUB, x, bias))
    low = e.compare(P.ElemwiseMultiTypeMode.LT, x, e.elem(M.NEGATE, bound))
    return cast(e.where(low, e.elem(M.ADD, x, bias), up), dtype_of(c.t(0)))


@lower("Mish")
def _mish(c: NodeCall) -> Tensor:
    return build.mish(c.t(0))


@lower("Swish")
def _swish(c: NodeCall) -> Tensor:
    return build.swish(c.t(0), c.real("alpha", 1.0))


@lower("QuickGelu", domain="com.microsoft")
def _quick_gelu(c: NodeCall) -> Tensor:
    return build.swish(c.t(0), c.real("alpha", 1.702))


@lower("SwiGLU")
def _swiglu(c: NodeCall) -> Tensor:
    return e.elem(M.MUL, build.swish(c.t(0), c.real("alpha", 1.0)), c.t(1))


@lower("Gelu")
def _gelu(c: NodeCall) -> Tensor:
    return build.gelu(c.t(0), tanh=c.choice("approximate", "none", "tanh") == "tanh")


@lower("Gelu", domain="com.microsoft")
def _gelu_ms(c: NodeCall) -> Tensor:
    return build.gelu(c.t(0))


@lower("BiasGelu", domain="com.microsoft")
def _bias_gelu(c: NodeCall) -> Tensor:
    return build.gelu(e.elem(M.ADD, c.t(0), c.t(1)))


@lower("FastGelu", domain="com.microsoft")
def _fast_gelu(c: NodeCall) -> Tensor:
    return build.gelu(e.elem(M.ADD, c.t(0), c.t(1)) if c.has(1) else c.t(0), tanh=True)


def activation(name: str, x: Tensor, alpha: float | None = None, beta: float | None = None) -> Tensor:
    """Apply an activation by the name that recurrent and fused operators give it.

    Raises:
        UnsupportedNodeError: there is none of that name.
    """

    def first(default: float) -> float:
        return default if alpha is None else alpha

    def second(default: float) -> float:
        return default if beta is None else beta

    known: dict[str, Callable[[], Tensor]] = {
        "relu": lambda: relu(x),
        "tanh": lambda: e.elem(M.TANH, x),
        "sigmoid": lambda: e.elem(M.SIGMOID, x),
        "softplus": lambda: e.elem(M.SOFTPLUS, x),
        "softsign": lambda: softsign(x),
        "leakyrelu": lambda: build.prelu(x, first(0.01)),
        "thresholdedrelu": lambda: e.elem(M.COND_LT_MOV, const_like(first(1.0), x), x, x),
        "elu": lambda: build.elu(x, first(1.0)),
        "hardsigmoid": lambda: build.hard_sigmoid(x, first(0.2), second(0.5)),
        "hardswish": lambda: e.elem(M.H_SWISH, x),
        "affine": lambda: e.elem(
            M.ADD, e.elem(M.MUL, const_like(first(1.0), x), x), const_like(second(0.0), x)
        ),
        "scaledtanh": lambda: e.elem(
            M.MUL, const_like(first(1.0), x), e.elem(M.TANH, e.elem(M.MUL, const_like(second(1.0), x), x))
        ),
        "clip": lambda: e.elem(
            M.MIN, const_like(second(3.4e38), x), e.elem(M.MAX, const_like(first(-3.4e38), x), x)
        ),
    }
    if name.lower() not in known:
        raise UnsupportedNodeError(f"the activation {name!r} cannot be expressed")
    return known[name.lower()]()
