"""Transposed convolution and batch normalization as one convolution of quantized tensors."""

from __future__ import annotations

from typing import Any

from ....tensors import Tensor, TensorLike, as_tensor
from .conv import ConvTranspose2d
from .module import filled


class _ConvTransposeBnActivation2d(ConvTranspose2d):
    @classmethod
    def from_qat_module(cls, qat_module: Any) -> _ConvTransposeBnActivation2d:
        """Convert a module with fake quantization."""
        q, conv = qat_module, qat_module.conv_transpose2d
        return filled(cls._like(conv, q.get_activation_dtype(), q.name), q, conv)


class ConvTransposeBn2d(_ConvTransposeBnActivation2d):
    """`ConvTransposeBn2d` of quantized tensors."""


class ConvTransposeBnRelu2d(_ConvTransposeBnActivation2d):
    """`ConvTransposeBnRelu2d` of quantized tensors; its call is refused, as in MegEngine."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W), quantized."""
        return self.calc_conv_transpose2d_quantized(as_tensor(inp), nonlinear_mode="relu")
