"""Fully connected layer and batch normalization as one layer of quantized tensors."""

from .linear import Linear


class LinearBn1d(Linear):
    """`LinearBn1d` of quantized tensors."""


class LinearBnRelu1d(LinearBn1d):
    """`LinearBnRelu1d` of quantized tensors."""

    _relu = True
