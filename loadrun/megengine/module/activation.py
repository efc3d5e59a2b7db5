"""Activations (MegEngine's ``module/activation.py``)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...tensors import Parameter, Tensor, TensorLike
from .. import functional as F
from .module import Module

__all__ = ["GELU", "LeakyReLU", "PReLU", "ReLU", "SiLU", "Sigmoid", "Softmax"]


class Softmax(Module):
    """``exp(x) / sum(exp(x))`` along an axis.

    Args:
        axis: one axis or several; by default the last, or the second of four.

    >>> Softmax(axis=0)(Tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

    def __init__(self, axis: int | Sequence[int] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def forward(self, inputs: TensorLike) -> Tensor:
        """Take any float tensor."""
        return F.softmax(inputs, self.axis)

    def _module_info_string(self) -> str:
        return f"axis={self.axis}"


class Sigmoid(Module):
    """``1 / (1 + exp(-x))``."""

    def forward(self, inputs: TensorLike) -> Tensor:
        """Take any float tensor."""
        return F.sigmoid(inputs)


class SiLU(Module):
    """``x * sigmoid(x)``."""

    def forward(self, inputs: TensorLike) -> Tensor:
        """Take any float tensor."""
        return F.silu(inputs)


class GELU(Module):
    """``x * P(X <= x)`` for a standard normal X."""

    def forward(self, inputs: TensorLike) -> Tensor:
        """Take any float tensor."""
        return F.gelu(inputs)


class ReLU(Module):
    """``max(x, 0)``."""

    def forward(self, x: TensorLike) -> Tensor:
        """Take any tensor."""
        return F.relu(x)


class PReLU(Module):
    """``max(x, 0) + weight * min(x, 0)`` with a learned weight, one for all or one per channel.

    Args:
        num_parameters: number of channels, 1 for one weight for all.
        init: the weight at first.

    Attributes:
        weight: (1, num_parameters, 1, 1), or (1,).

    >>> PReLU()(Tensor([-4.0, 4.0])).tolist()
    [-1.0, 4.0]
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_parameters = num_parameters
        shape = (1, num_parameters, 1, 1) if num_parameters > 1 else (1,)
        self.weight = Parameter(np.full(shape, init, np.float32))

    def forward(self, inputs: TensorLike) -> Tensor:
        """Take (N, C, H, W) where there is a weight per channel, else any shape."""
        return F.prelu(inputs, self.weight)


class LeakyReLU(Module):
    """``max(x, 0) + negative_slope * min(x, 0)``.

    Args:
        negative_slope: factor of what is below 0.

    >>> LeakyReLU(0.5)(Tensor([-4.0, 4.0])).tolist()
    [-2.0, 4.0]
    """

    def __init__(self, negative_slope: float = 0.01, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.negative_slope = negative_slope

    def forward(self, inputs: TensorLike) -> Tensor:
        """Take any float tensor."""
        return F.leaky_relu(inputs, self.negative_slope)
