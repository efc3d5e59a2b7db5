"""Fully connected layer and batch normalization in one (MegEngine's ``module/linear_bn.py``)."""

from typing import Any

import numpy as np

from ...tensors import Parameter, Tensor, TensorLike
from .. import functional as F
from .batchnorm import BatchNorm1d
from .linear import Linear
from .module import Module


class _LinearBnActivation1d(Module):
    """A `Linear` as ``linear`` and a `BatchNorm1d` as ``bn``, with the arguments of both.

    Attributes:
        bias: (out_features,), not used; MegEngine's checkpoints hold it.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        compute_mode: str = "default",
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.out_features = out_features
        self.in_features = in_features
        self.bias = Parameter(np.zeros(out_features, np.float32)) if bias else None
        self.linear = Linear(in_features, out_features, bias, compute_mode, **kwargs)
        self.bn = BatchNorm1d(out_features, eps, momentum, affine, track_running_stats)


class LinearBn1d(_LinearBnActivation1d):
    """`Linear` and `BatchNorm1d`, so that quantization fuses them."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_features)."""
        return self.bn(self.linear(inp))


class LinearBnRelu1d(_LinearBnActivation1d):
    """`Linear`, `BatchNorm1d` and relu, so that quantization fuses them."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_features)."""
        return F.relu(self.bn(self.linear(inp)))
