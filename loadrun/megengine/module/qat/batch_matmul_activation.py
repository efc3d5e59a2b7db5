"""`BatchMatMulActivation` with fake quantization."""

from __future__ import annotations

from ....tensors import Tensor, TensorLike, as_tensor
from .. import batch_matmul_activation as Float
from .module import QATModule


class BatchMatMulActivation(Float.BatchMatMulActivation, QATModule):
    """`BatchMatMulActivation` with fake quantization."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (batch, in_features, columns)."""
        inp = as_tensor(inp)
        weight = self.apply_quant_weight(self.weight)
        bias = self.apply_quant_bias(self.bias, inp, weight)
        return self.apply_quant_activation(self._calc_linear(inp, weight, bias))

    @classmethod
    def from_float_module(cls, float_module: Float.BatchMatMulActivation) -> BatchMatMulActivation:
        """Convert a float module."""
        f = float_module
        return cls._sharing(f, f.batch, f.in_features, f.out_features, f.bias is not None)
