"""Activations that MegEngine has as operators, and softmax."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...layers import emit as e, nn as F
from ...layers.shared import nn as build
from ...layers.shared.sizes import per_channel
from ..call import FxCall, as_array, as_tensor, axis_of, is_number
from ..registry import UnsupportedCallError, aten
from .elementwise import clamp

_OWN: dict[str, Callable[..., Any]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "sigmoid": F.sigmoid,
    "silu": F.silu,
    "hardswish": F.hswish,
    "hardsigmoid": F.hsigmoid,
    "log_sigmoid": F.logsigmoid,
}


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    def lowered(call: FxCall, x: Any) -> Any:
        if call.dtype.kind != "f":
            result = np.maximum(as_array(x, call.dtype), 0)
            return np.minimum(result, 6) if function is F.relu6 else result
        return function(as_tensor(x, call.dtype))

    return lowered


for _name, _function in _OWN.items():
    aten(f"aten.{_name}.default")(_unary(_function))


@aten("aten.gelu.default")
def gelu(call: FxCall, x: Any, approximate: str = "none") -> Any:
    """Apply MegEngine's GELU, or its approximation by tanh."""
    return build.gelu(as_tensor(x, call.dtype), tanh=approximate == "tanh")


@aten("aten.leaky_relu.default")
def leaky_relu(call: FxCall, x: Any, slope: Any = 0.01) -> Any:
    """Keep ``x`` above zero, else a fraction of it."""
    return build.prelu(as_tensor(x, call.dtype), float(slope))


@aten("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(call: FxCall, x: Any, weight: Any) -> Any:
    """Apply leaky ReLU with a slope for each channel."""
    value, slope = as_tensor(x, call.dtype), as_tensor(weight, call.dtype)
    if slope.ndim == 1 and value.ndim > 1:
        slope = per_channel(slope, value.ndim)
    return build.prelu(value, slope if value.ndim else e.reshape(slope, ()))


@aten("aten.hardtanh.default")
def hardtanh(call: FxCall, x: Any, low: Any = -1.0, high: Any = 1.0) -> Any:
    """Clamp between two bounds."""
    if is_number(low, 0) and is_number(high, 6) and call.dtype.kind == "f":
        return F.relu6(as_tensor(x, call.dtype))
    return clamp(call, x, low, high)


@aten("aten.elu.default")
def elu(call: FxCall, x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """Keep ``x`` above zero, else apply an exponential."""
    return build.elu(as_tensor(x, call.dtype), float(alpha), float(scale), float(input_scale))


@aten("aten.celu.default")
def celu(call: FxCall, x: Any, alpha: Any = 1.0) -> Any:
    """Keep ``x`` above zero, else apply an exponential with the same slope there."""
    return build.elu(as_tensor(x, call.dtype), float(alpha), input_scale=1 / float(alpha))


@aten("aten.softplus.default")
def softplus(call: FxCall, x: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    """Compute ``log(1 + exp(beta * x)) / beta``, linear above a threshold."""
    if is_number(beta, 1) and threshold >= 20:
        # Linear in float32 from there on.
        return F.softplus(as_tensor(x, call.dtype))
    x = as_array(x, call.dtype)
    scaled = x if is_number(beta, 1) else x * as_array(beta, call.dtype)
    soft = as_array(F.softplus(as_tensor(scaled)))
    return np.where(scaled > threshold, x, soft if is_number(beta, 1) else soft / as_array(beta, call.dtype))


@aten("aten.mish.default")
def mish(call: FxCall, x: Any) -> Any:
    """Compute ``x * tanh(softplus(x))``."""
    return as_array(x, call.dtype) * np.tanh(as_array(F.softplus(as_tensor(x, call.dtype))))


@aten("aten.rrelu.default")
def rrelu(
    call: FxCall,
    x: Any,
    lower: Any = 0.125,
    upper: Any = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    """Apply leaky ReLU with the mean slope."""
    if training:
        raise UnsupportedCallError("it draws random slopes in training; call .eval() first")
    return leaky_relu(call, x, (lower + upper) / 2)


@aten("aten.softmax.int", "aten._softmax.default", "aten._safe_softmax.default")
def softmax(call: FxCall, x: Any, dim: int, *_: Any) -> Any:
    """Apply MegEngine's Softmax."""
    if not call.shape_of(0):
        return np.ones_like(as_array(x, call.dtype))
    safe = "safe" in str(call.node.target)
    return build.softmax(as_tensor(x, call.dtype), axis_of(dim, len(call.shape_of(0))), guard=safe)


@aten("aten.log_softmax.int", "aten._log_softmax.default")
def log_softmax(call: FxCall, x: Any, dim: int, *_: Any) -> Any:
    """Compute the logarithm of softmax, without overflow."""
    if not call.shape_of(0):
        return np.zeros_like(as_array(x, call.dtype))
    return build.log_softmax(as_tensor(x, call.dtype), axis_of(dim, len(call.shape_of(0))))
