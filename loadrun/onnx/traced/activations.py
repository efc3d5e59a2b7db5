"""Activations and softmax that MegEngine has as operators."""

from __future__ import annotations

from typing import Any

from ...layers import emit as e
from ...layers.emit import M
from ...layers.shared import nn as layers
from ...tensors import Tensor
from ..operators import activations, functions, kernels, reductions
from . import instead, operand

__all__: list[str] = []


def _mode(mode: Any) -> Any:
    def recorded(x: Any) -> Tensor:
        return e.elem(mode, operand(x))

    return recorded


instead("Relu")(_mode(M.RELU))
instead("HardSwish")(_mode(M.H_SWISH))
instead(functions.softplus)(_mode(M.SOFTPLUS))
instead(activations.sigmoid)(_mode(M.SIGMOID))
instead(activations.silu)(_mode(M.SILU))
instead(kernels.erf)(_mode(M.ERF))


@instead(kernels.gelu)
def gelu(x: Any) -> Tensor:
    return layers.gelu(operand(x))


instead("Swish")(lambda x, *, alpha=1.0: layers.swish(operand(x), alpha))
instead("QuickGelu", domain="com.microsoft")(lambda x, *, alpha=1.702: layers.swish(operand(x), alpha))


@instead(activations.softmax)
def softmax(x: Any, axis: int = -1, *, guard: bool = False) -> Any:
    if not x.size:
        return x
    return layers.softmax(operand(x), axis % max(x.ndim, 1), guard=guard)


@instead(reductions.log_softmax)
def log_softmax(x: Any, axis: int) -> Any:
    return layers.log_softmax(operand(x), axis % max(x.ndim, 1)) if x.size else x


instead("HardSigmoid")(lambda x, *, alpha=0.2, beta=0.5: layers.hard_sigmoid(operand(x), alpha, beta))


@instead(functions.scaled_elu)
def elu(x: Any, alpha: float, gamma: float = 1, steepness: float = 1) -> Tensor:
    return layers.elu(operand(x), alpha, gamma, steepness)


instead("LeakyRelu")(lambda x, *, alpha=0.01: layers.prelu(operand(x), alpha))


@instead("PRelu", since=7)
def prelu(x: Any, slope: Any) -> Any:
    return layers.prelu(operand(x), operand(slope)) if x.dtype.kind == "f" else NotImplemented
