"""Modules that compute with quantized tensors: what `quantization.quantize` turns those of `qat` into."""

from ...absent import absent
from .layers import (
    BatchMatMulActivation,
    Concat,
    Conv2d,
    ConvBn2d,
    ConvBnRelu2d,
    ConvRelu2d,
    ConvTranspose2d,
    ConvTransposeBn2d,
    ConvTransposeBnRelu2d,
    ConvTransposeRelu2d,
    DequantStub,
    Elemwise,
    Linear,
    LinearBn1d,
    LinearBnRelu1d,
    LinearRelu,
    QuantizedModule,
    QuantStub,
)

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
    "QuantStub",
    "QuantizedModule",
]

__getattr__ = absent(__name__)
