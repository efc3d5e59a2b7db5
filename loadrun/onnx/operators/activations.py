"""Functions that operators of several families apply to their sums."""

from collections.abc import Callable
from functools import partial
from math import pi, sqrt

from ...arrays.names import kernel, np
from ...graph.dtypes import Array
from ...ops.norm import softmax_rows
from . import find, kernels


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


_KNOWN = """
Relu Tanh Sigmoid Softplus Softsign LeakyRelu ThresholdedRelu Elu HardSigmoid HardSwish Affine ScaledTanh Clip
""".split()


def activation_of(name: str, *numbers: float | None) -> Callable[[Array], Array]:
    """Return an activation by the name that recurrent and fused operators give it, with its attributes in order.

    Raises:
        ValueError: there is none of that name, or an attribute is missing.
    """
    known = next((n for n in _KNOWN if n.lower() == name.lower()), None)
    if known is None:
        raise ValueError(f"the activation {name!r} is not known, expected one of {', '.join(_KNOWN)}")
    # Later versions of Clip have its ends as inputs.
    definition = find("", known, 6 if known == "Clip" else 14)
    assert definition is not None
    attributes = [p for p in definition.parameters.values() if p.kind is p.KEYWORD_ONLY]
    given = {p.name: v for p, v in zip(attributes, numbers, strict=False) if v is not None}
    missing = [p.name for p in attributes if p.default is p.empty and p.name not in given]
    if missing:
        raise ValueError(f"its activation {name} has no {missing[0]}")
    return partial(definition.function, **given)
