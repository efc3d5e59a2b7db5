"""Convolution and batch normalization with fake quantization (MegEngine's ``module/qat/conv_bn.py``)."""

from __future__ import annotations

from ....tensors import Tensor, TensorLike
from ... import functional as F
from .. import conv_bn as Float
from .folding import Folded


class _ConvBnActivation2d(Float._ConvBnActivation2d, Folded):
    _layer_name = "conv"

    def _scale_shape(self) -> tuple[int, ...]:
        groups = self.conv.groups
        return (-1, 1, 1, 1) if groups == 1 else (groups, -1, 1, 1, 1)

    def _calc(self, inp: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Tensor:
        return self.conv.calc_conv(inp, weight, bias)

    def calc_conv_bn_qat(self, inp: TensorLike, approx: bool = True) -> Tensor:
        """Return the convolution with the normalization in its rounded weight; `approx` counts while training."""
        return self._calc_bn_qat(inp, approx)

    @classmethod
    def from_float_module(cls, float_module: Float._ConvBnActivation2d) -> _ConvBnActivation2d:
        """Convert a float module."""
        return cls._sharing(float_module, **float_module.conv._settings())


class ConvBn2d(_ConvBnActivation2d):
    """`ConvBn2d` with fake quantization."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return self.apply_quant_activation(self.calc_conv_bn_qat(inp))


class ConvBnRelu2d(_ConvBnActivation2d):
    """`ConvBnRelu2d` with fake quantization."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return self.apply_quant_activation(F.relu(self.calc_conv_bn_qat(inp)))
