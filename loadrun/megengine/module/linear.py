"""Fully connected layers (MegEngine's ``module/linear.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tensors import Parameter, Tensor, TensorLike
from .. import functional as F
from .weighted import Weighted


class Linear(Weighted):
    """``x @ weight.T + bias``.

    Args:
        in_features: size of the input's last axis.
        out_features: size of the output's last axis.
        bias: whether there is one.
        compute_mode: "float32" sums float16 products in float32.

    Attributes:
        weight: (out_features, in_features).
        bias: (out_features,) or None.

    >>> layer = Linear(2, 3)
    >>> layer(Tensor([[1.0, 2.0]])).shape, layer
    ((1, 3), Linear(in_features=2, out_features=3, bias=True))
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        compute_mode: str = "default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.out_features = out_features
        self.in_features = in_features
        self.weight = Parameter(np.zeros((out_features, in_features), np.float32))
        self.bias = Parameter(np.zeros(out_features, np.float32)) if bias else None
        self.compute_mode = compute_mode
        self.reset_parameters()

    def _get_fanin(self) -> int:
        return self.in_features

    def _settings(self) -> dict[str, Any]:
        """Return the arguments with which another such layer is made, but for its name."""
        sizes = {"in_features": self.in_features, "out_features": self.out_features}
        return {**sizes, "bias": self.bias is not None, "compute_mode": self.compute_mode}

    def calc_linear(self, x: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Tensor:
        """Return the layer with other parameters."""
        return F.linear(x, weight, bias, compute_mode=self.compute_mode)

    def forward(self, x: TensorLike) -> Tensor:
        """Take (..., in_features) to (..., out_features)."""
        return self.calc_linear(x, self.weight, self.bias)

    def _module_info_string(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        )


class LinearRelu(Linear):
    """`Linear` and relu."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (..., in_features) to (..., out_features)."""
        return F.relu(self.calc_linear(inp, self.weight, self.bias))
