"""Convolution and batch normalization as one convolution of quantized tensors."""

from .conv import Conv2d


class ConvBn2d(Conv2d):
    """`ConvBn2d` of quantized tensors."""


class ConvBnRelu2d(ConvBn2d):
    """`ConvBnRelu2d` of quantized tensors."""

    _relu = True
