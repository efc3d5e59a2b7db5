"""Convolution and batch normalization with fake quantization (MegEngine's ``module/qat/conv_bn.py``)."""

from __future__ import annotations

from typing import Any

from ... import functional as F
from .. import conv_bn as Float
from .folding import Folding
from .module import QATModule

__all__ = ["ConvBn2d", "ConvBnRelu2d"]


class _ConvBnActivation2d(Float._ConvBnActivation2d, QATModule):
    def _folded(self, fold: Folding) -> Any:
        groups = self.conv.groups
        shape = (-1, 1, 1, 1) if groups == 1 else (groups, -1, 1, 1, 1)
        return self.conv.weight * fold.scale.reshape(shape)

    def fold_weight_bias(self, bn_mean: Any, bn_var: Any) -> tuple[Any, Any]:
        """Weight, rounded, and bias of the convolution that does both."""
        fold = Folding.of(self.bn, bn_mean, bn_var)
        return self.apply_quant_weight(self._folded(fold)), fold.bias(self.conv.bias)

    def calc_conv_bn_qat(self, inp: Any, approx: bool = True) -> Any:
        """The convolution with the running statistics in its rounded weight.

        While training, the scale is taken out of the result again and the batch's statistics are used.
        """
        fold = Folding.of(self.bn, self.bn.running_mean, self.bn.running_var)
        weight = self.apply_quant_weight(self._folded(fold))
        if not (self.training and approx):
            bias = self.apply_quant_bias(fold.bias(self.conv.bias), inp, weight)
            return self.conv.calc_conv(inp, weight, bias)
        plain = self.conv.calc_conv(inp, weight, None) / fold.scale
        return self.bn(plain if self.conv.bias is None else plain + self.conv.bias)

    @classmethod
    def from_float_module(cls, float_module: Any) -> Any:
        """The module that a float one becomes."""
        f = float_module.conv
        made = cls(
            f.in_channels,
            f.out_channels,
            f.kernel_size,
            f.stride,
            f.padding,
            f.dilation,
            f.groups,
            f.bias is not None,
            f.conv_mode,
            f.compute_mode,
            padding_mode=f.padding_mode,
            name=float_module.name,
        )
        made.conv.weight, made.conv.bias, made.bn = f.weight, f.bias, float_module.bn
        return made


class ConvBn2d(_ConvBnActivation2d):
    """`ConvBn2d` with fake quantization."""

    def forward(self, inp: Any) -> Any:
        """(N, in_channels, H, W)."""
        return self.apply_quant_activation(self.calc_conv_bn_qat(inp))


class ConvBnRelu2d(_ConvBnActivation2d):
    """`ConvBnRelu2d` with fake quantization."""

    def forward(self, inp: Any) -> Any:
        """(N, in_channels, H, W)."""
        return self.apply_quant_activation(F.relu(self.calc_conv_bn_qat(inp)))
