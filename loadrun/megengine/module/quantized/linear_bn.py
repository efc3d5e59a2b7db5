"""Fully connected layer and batch normalization as one layer of quantized tensors."""

from __future__ import annotations

from typing import Any

from ....tensors import Tensor, TensorLike, as_tensor
from .linear import Linear
from .module import filled


class _LinearBnActivation1d(Linear):
    @classmethod
    def from_qat_module(cls, qat_module: Any) -> _LinearBnActivation1d:
        """Convert a module with fake quantization."""
        q = qat_module
        return filled(cls(dtype=q.get_activation_dtype(), name=q.name), q, q.linear)


class LinearBn1d(_LinearBnActivation1d):
    """`LinearBn1d` of quantized tensors."""


class LinearBnRelu1d(_LinearBnActivation1d):
    """`LinearBnRelu1d` of quantized tensors."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_features), quantized."""
        return self.calc_linear_quantized(as_tensor(inp), nonlinear_mode="relu")
