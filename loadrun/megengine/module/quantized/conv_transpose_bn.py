"""Transposed convolution and batch normalization as one convolution of quantized tensors."""

from .conv import ConvTranspose2d


class ConvTransposeBn2d(ConvTranspose2d):
    """`ConvTransposeBn2d` of quantized tensors."""


class ConvTransposeBnRelu2d(ConvTransposeBn2d):
    """`ConvTransposeBnRelu2d` of quantized tensors; its call is refused, as in MegEngine."""

    _relu = True
