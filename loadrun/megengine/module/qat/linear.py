"""Fully connected layers with fake quantization (MegEngine's ``module/qat/linear.py``)."""

from __future__ import annotations

from ....tensors import Tensor, TensorLike, as_tensor
from ... import functional as F
from .. import linear as Float
from .module import QATModule


class Linear(Float.Linear, QATModule):
    """`Linear` with fake quantization."""

    def calc_linear_qat(self, inp: TensorLike) -> Tensor:
        """Return the product with rounded weight and bias."""
        inp = as_tensor(inp)
        weight = self.apply_quant_weight(self.weight)
        return self.calc_linear(inp, weight, self.apply_quant_bias(self.bias, inp, weight))

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (..., in_features)."""
        return self.apply_quant_activation(self.calc_linear_qat(inp))

    @classmethod
    def from_float_module(cls, float_module: Float.Linear) -> Linear:
        """Convert a float module."""
        return cls._sharing(float_module, float_module.in_features, float_module.out_features)


class LinearRelu(Linear):
    """`LinearRelu` with fake quantization."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (..., in_features)."""
        return self.apply_quant_activation(F.relu(self.calc_linear_qat(inp)))
