"""`Elemwise` with fake quantization."""

from __future__ import annotations

from ....tensors import Tensor, TensorLike
from .. import elemwise as Float
from .module import QATModule


class Elemwise(Float.Elemwise, QATModule):
    """`Elemwise` with fake quantization of the result."""

    with_weight = False

    def forward(self, *inps: TensorLike) -> Tensor:
        """Take as many operands as the mode has."""
        return self.apply_quant_activation(super().forward(*inps))

    @classmethod
    def from_float_module(cls, float_module: Float.Elemwise) -> Elemwise:
        """Convert a float module."""
        return cls(float_module.method, name=float_module.name)
