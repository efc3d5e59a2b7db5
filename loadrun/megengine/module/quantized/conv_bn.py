"""Convolution and batch normalization as one convolution of quantized tensors."""

from __future__ import annotations

from typing import Any

from ....tensors import Tensor, TensorLike, as_tensor
from .conv import Conv2d
from .module import filled


class _ConvBnActivation2d(Conv2d):
    @classmethod
    def from_qat_module(cls, qat_module: Any) -> _ConvBnActivation2d:
        """Convert a module with fake quantization."""
        q = qat_module
        return filled(cls._like(q.conv, q.get_activation_dtype(), q.name), q, q.conv)


class ConvBn2d(_ConvBnActivation2d):
    """`ConvBn2d` of quantized tensors."""


class ConvBnRelu2d(_ConvBnActivation2d):
    """`ConvBnRelu2d` of quantized tensors."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W), quantized."""
        return self.calc_conv_quantized(as_tensor(inp), nonlinear_mode="relu")
