"""Modules with fake quantization: what `quantization.quantize_qat` turns float modules into."""

from ...absent import absent
from .fused import (
    ConvBn2d,
    ConvBnRelu2d,
    ConvTransposeBn2d,
    ConvTransposeBnRelu2d,
    LinearBn1d,
    LinearBnRelu1d,
)
from .layers import (
    BatchMatMulActivation,
    Concat,
    Conv2d,
    ConvRelu2d,
    ConvTranspose2d,
    ConvTransposeRelu2d,
    DequantStub,
    Elemwise,
    Linear,
    LinearRelu,
    QuantStub,
)
from .module import QATModule

__all__ = [
    "BatchMatMulActivation",
    "Concat",
    "Conv2d",
    "ConvBn2d",
    "ConvBnRelu2d",
    "ConvRelu2d",
    "ConvTranspose2d",
    "ConvTransposeBn2d",
    "ConvTransposeBnRelu2d",
    "ConvTransposeRelu2d",
    "DequantStub",
    "Elemwise",
    "Linear",
    "LinearBn1d",
    "LinearBnRelu1d",
    "LinearRelu",
    "QATModule",
    "QuantStub",
]

__getattr__ = absent(__name__)
