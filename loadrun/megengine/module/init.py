"""Initial values of parameters, with the functions of MegEngine's ``module.init``.

Numbers are drawn by `loadrun.layers.random`, whose ``seed`` makes them repeatable; they are MegEngine's for it.
"""

import math

import numpy as np

from ...graph.dtypes import Array
from ...layers import random
from ...tensors import Tensor, suspended
from ...tensors.access import static_shape

_GAINS: dict[str, float] = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "sigmoid"), 1),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), 1),
    "tanh": 5 / 3,
    "relu": math.sqrt(2),
}


def _set(tensor: Tensor, value: Array) -> None:
    tensor.set_value(Tensor(value, dtype=tensor.dtype))


def fill_(tensor: Tensor, val: float) -> None:
    """Set every element to `val`.

    >>> x = Tensor([1.0, 2.0])
    >>> fill_(x, 5)
    >>> x.tolist()
    [5.0, 5.0]
    """
    _set(tensor, np.full(static_shape(tensor), val))


def zeros_(tensor: Tensor) -> None:
    """Set every element to 0."""
    fill_(tensor, 0)


def ones_(tensor: Tensor) -> None:
    """Set every element to 1."""
    fill_(tensor, 1)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> None:
    """Draw every element evenly from [a, b).

    >>> x = Tensor([0.0] * 100)
    >>> uniform_(x, 2, 3)
    >>> bool((x >= 2).numpy().all() and (x <= 3).numpy().all())
    True
    """
    with suspended():
        _set(tensor, random.uniform(a, b, static_shape(tensor)).numpy().reshape(static_shape(tensor)))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> None:
    """Draw every element from a normal distribution."""
    with suspended():
        _set(tensor, random.normal(mean, std, static_shape(tensor)).numpy().reshape(static_shape(tensor)))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return by what a nonlinearity asks initial weights to be scaled.

    Args:
        nonlinearity: "linear", "conv2d" and the like, "sigmoid", "tanh", "relu" or "leaky_relu".
        param: the slope of leaky_relu, 0.01 by default.

    Raises:
        ValueError: the name is not known, or the slope is not a number.

    >>> calculate_gain("relu") == 2**0.5, calculate_gain("leaky_relu", 1.0)
    (True, 1.0)
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {slope!r} is not a valid number")
        return math.sqrt(2 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"unsupported nonlinearity {nonlinearity!r}; known: {', '.join(_GAINS)}, leaky_relu")
    return _GAINS[nonlinearity]


def calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[float, float]:
    """Return how many inputs an element of the output has, and how many outputs an input has.

    Args:
        tensor: a weight: (out, in), (out, in, *kernel) or, from five axes on, (groups, out, in, *kernel).

    Raises:
        ValueError: it has less than two axes.

    >>> calculate_fan_in_and_fan_out(Tensor(np.zeros((4, 3, 5, 5))))
    (75, 100)
    """
    shape = static_shape(tensor)
    if len(shape) < 2:
        raise ValueError(
            f"fan_in and fan_out are of tensors with 2 dimensions or more, this one has {len(shape)}"
        )
    outputs, inputs, *kernel = shape if len(shape) < 5 else shape[1:]
    taps = math.prod(kernel)
    return inputs * taps, outputs * taps


def calculate_correct_fan(tensor: Tensor, mode: str) -> float:
    """Return the number of inputs or outputs.

    Args:
        tensor: a weight.
        mode: "fan_in" or "fan_out".

    Raises:
        ValueError: another mode.
    """
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode {mode} is not supported, please use one of fan_in, fan_out")
    return calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def _xavier(tensor: Tensor, gain: float) -> float:
    return gain * math.sqrt(2 / sum(calculate_fan_in_and_fan_out(tensor)))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> None:
    """Initialize evenly as Glorot and Bengio do (2010)."""
    bound = math.sqrt(3) * _xavier(tensor, gain)
    uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> None:
    """Initialize normally as Glorot and Bengio do (2010)."""
    normal_(tensor, 0.0, _xavier(tensor, gain))


def _msra(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(calculate_correct_fan(tensor, mode))


def msra_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> None:
    """Initialize evenly as He and others do (2015).

    Args:
        tensor: a weight.
        a: the slope where `nonlinearity` is leaky_relu.
        mode: "fan_in" keeps the variance forwards, "fan_out" backwards.
        nonlinearity: see `calculate_gain`.
    """
    bound = math.sqrt(3) * _msra(tensor, a, mode, nonlinearity)
    uniform_(tensor, -bound, bound)


def msra_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> None:
    """Initialize normally as He and others do (2015); the arguments are those of `msra_uniform_`."""
    normal_(tensor, 0, _msra(tensor, a, mode, nonlinearity))
