"""The marks of where quantization begins and ends, with fake quantization."""

from __future__ import annotations

from ....tensors import Tensor, TensorLike
from .. import quant_dequant as Float
from .module import QATModule


class QuantStub(Float.QuantStub, QATModule):
    """Rounds the input of the quantized part."""

    with_weight = False

    def forward(self, inp: TensorLike) -> Tensor:
        """Take any float32 tensor."""
        return self.apply_quant_activation(inp)

    @classmethod
    def from_float_module(cls, float_module: Float.QuantStub) -> QuantStub:
        """Convert a float module."""
        return cls(name=float_module.name)


class DequantStub(Float.DequantStub, QATModule):
    """Does nothing: fake quantization leaves real numbers."""

    with_weight = False
    with_act = False

    @classmethod
    def from_float_module(cls, float_module: Float.DequantStub) -> DequantStub:
        """Convert a float module."""
        return cls(name=float_module.name)
