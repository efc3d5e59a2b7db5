"""Transposed convolution and batch normalization with fake quantization (``module/qat/conv_transpose_bn.py``)."""

from __future__ import annotations

from typing import Any

from ... import functional as F
from .. import conv_transpose_bn as Float
from .folding import Folding
from .module import QATModule

__all__ = ["ConvTransposeBn2d", "ConvTransposeBnRelu2d"]


class _ConvTransposeBnActivation2d(Float._ConvTransposeBnActivation2d, QATModule):
    def _folded(self, fold: Folding) -> Any:
        groups = self.conv_transpose2d.groups
        shape = (1, -1, 1, 1) if groups == 1 else (groups, 1, -1, 1, 1)
        return self.conv_transpose2d.weight * fold.scale.reshape(shape)

    def fold_weight_bias(self, bn_mean: Any, bn_var: Any) -> tuple[Any, Any]:
        """Weight, rounded, and bias of the convolution that does both."""
        fold = Folding.of(self.bn, bn_mean, bn_var)
        return self.apply_quant_weight(self._folded(fold)), fold.bias(self.conv_transpose2d.bias)

    def calc_conv_transpose2d_bn_qat(self, inp: Any, approx: bool = True) -> Any:
        """The convolution with the running statistics in its rounded weight.

        While training, the scale is taken out of the result again and the batch's statistics are used.
        """
        conv = self.conv_transpose2d
        fold = Folding.of(self.bn, self.bn.running_mean, self.bn.running_var)
        weight = self.apply_quant_weight(self._folded(fold))
        if not (self.training and approx):
            bias = self.apply_quant_bias(fold.bias(conv.bias), inp, weight)
            return conv.calc_conv_transpose2d(inp, weight, bias)
        plain = conv.calc_conv_transpose2d(inp, weight, None) / fold.scale
        return self.bn(plain if conv.bias is None else plain + conv.bias)

    @classmethod
    def from_float_module(cls, float_module: Any) -> Any:
        """The module that a float one becomes."""
        f = float_module.conv_transpose2d
        made = cls(
            f.in_channels,
            f.out_channels,
            f.kernel_size,
            f.stride,
            f.padding,
            f.output_padding,
            f.dilation,
            f.groups,
            f.bias is not None,
            f.conv_mode,
            f.compute_mode,
            name=float_module.name,
        )
        conv = made.conv_transpose2d
        conv.weight, conv.bias, made.bn = f.weight, f.bias, float_module.bn
        return made


class ConvTransposeBn2d(_ConvTransposeBnActivation2d):
    """`ConvTransposeBn2d` with fake quantization."""

    def forward(self, inp: Any) -> Any:
        """(N, in_channels, H, W)."""
        return self.apply_quant_activation(self.calc_conv_transpose2d_bn_qat(inp))


class ConvTransposeBnRelu2d(_ConvTransposeBnActivation2d):
    """`ConvTransposeBnRelu2d` with fake quantization."""

    def forward(self, inp: Any) -> Any:
        """(N, in_channels, H, W)."""
        return self.apply_quant_activation(F.relu(self.calc_conv_transpose2d_bn_qat(inp)))
