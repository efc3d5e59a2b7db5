"""Functions that operators of several families apply to their sums."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

from ...arrays.names import kernel, np
from ...graph.dtypes import Array
from ...ops.norm import softmax_rows
from . import kernels


@kernel
def sigmoid(x: Array) -> Array:
    """Compute 1 / (1 + exp(-x)), 0 where the power is beyond all numbers."""
    return np.reciprocal(1 + np.exp(-x))


@kernel
def silu(x: Array) -> Array:
    """Compute x * sigmoid(x)."""
    return x * sigmoid(x)


def gelu(x: Array, *, tanh: bool = False) -> Array:
    """Multiply by the normal distribution function, exact or approximated by a hyperbolic tangent."""
    if tanh:
        return x * 0.5 * (1 + np.tanh(x * (sqrt(2 / pi) + 0.044715 * sqrt(2 / pi) * x * x)))
    return kernels.gelu(x)


@kernel
def softmax(x: Array, axis: int = -1, *, guard: bool = False) -> Array:
    """Compute exp(x - max) / sum(exp(x - max)).

    Args:
        x: the scores.
        axis: along which they add up to 1.
        guard: give zeros where all scores are minus infinity, instead of NaN.
    """
    if not x.size:
        return x
    if type(x) is np.ndarray and x.dtype == np.float32 and axis in (-1, x.ndim - 1) and not guard:
        rows = x.reshape(-1, x.shape[-1])
        y = np.empty_like(rows)
        softmax_rows(rows, y)
        return y.reshape(x.shape)
    most = x.max(axis, keepdims=True)
    power = np.exp(x - (np.maximum(most, np.finfo(x.dtype).min) if guard else most))
    total = power.sum(axis, keepdims=True)
    return power * np.reciprocal(np.maximum(total, np.finfo(x.dtype).tiny) if guard else total)


def activation_of(
    name: str, alpha: float | None = None, beta: float | None = None
) -> Callable[[Array], Array]:
    """Return an activation by the name that recurrent and fused operators give it.

    Raises:
        ValueError: there is none of that name.
    """

    def first(default: float) -> float:
        return default if alpha is None else alpha

    def second(default: float) -> float:
        return default if beta is None else beta

    known: dict[str, Callable[[Array], Array]] = {
        "relu": lambda x: np.maximum(x, 0),
        "tanh": lambda x: np.tanh(x),
        "sigmoid": sigmoid,
        "softplus": lambda x: np.logaddexp(x, 0),
        "softsign": lambda x: x / (1 + np.abs(x)),
        "leakyrelu": lambda x: np.where(x < 0, x * first(0.01), x),
        "thresholdedrelu": lambda x: np.where(x > first(1.0), x, 0),
        "elu": lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)) * first(1.0), x),
        "hardsigmoid": lambda x: np.clip(x * first(0.2) + second(0.5), 0, 1),
        "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
        "affine": lambda x: x * first(1.0) + second(0.0),
        "scaledtanh": lambda x: np.tanh(x * second(1.0)) * first(1.0),
        "clip": lambda x: np.minimum(np.maximum(x, first(-3.4e38)), second(3.4e38)),
    }
    if name.lower() not in known:
        raise ValueError(f"the activation {name!r} is not known, expected one of {', '.join(known)}")
    return known[name.lower()]
