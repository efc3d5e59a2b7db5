"""Marks of where quantization begins and ends (MegEngine's ``module/quant_dequant.py``)."""

from ...tensors import TensorLike
from .module import Module


class QuantStub(Module):
    """Where quantized inference begins; does nothing before `quantization.quantize`."""

    def forward(self, inp: TensorLike) -> TensorLike:
        """Take any tensor."""
        return inp


class DequantStub(Module):
    """Where quantized inference ends; does nothing before `quantization.quantize`."""

    def forward(self, inp: TensorLike) -> TensorLike:
        """Take any tensor."""
        return inp
