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


class DequantStub(Float.DequantStub, QATModule):
    """Does nothing: fake quantization leaves real numbers."""

    with_weight = False
    with_act = False
