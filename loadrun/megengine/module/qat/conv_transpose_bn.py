"""Transposed convolution and batch normalization with fake quantization (``module/qat/conv_transpose_bn.py``)."""

from __future__ import annotations

from ....tensors import Tensor, TensorLike
from ... import functional as F
from .. import conv_transpose_bn as Float
from .folding import Folded


class _ConvTransposeBnActivation2d(Float._ConvTransposeBnActivation2d, Folded):
    _layer_name = "conv_transpose2d"

    def _scale_shape(self) -> tuple[int, ...]:
        groups = self.conv_transpose2d.groups
        return (1, -1, 1, 1) if groups == 1 else (groups, 1, -1, 1, 1)

    def _calc(self, inp: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Tensor:
        return self.conv_transpose2d.calc_conv_transpose2d(inp, weight, bias)

    def calc_conv_transpose2d_bn_qat(self, inp: TensorLike, approx: bool = True) -> Tensor:
        """Return the convolution with the normalization in its rounded weight; `approx` counts while training."""
        return self._calc_bn_qat(inp, approx)

    @classmethod
    def from_float_module(
        cls, float_module: Float._ConvTransposeBnActivation2d
    ) -> _ConvTransposeBnActivation2d:
        """Convert a float module."""
        return cls._sharing(float_module, **float_module.conv_transpose2d._settings())


class ConvTransposeBn2d(_ConvTransposeBnActivation2d):
    """`ConvTransposeBn2d` with fake quantization."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return self.apply_quant_activation(self.calc_conv_transpose2d_bn_qat(inp))


class ConvTransposeBnRelu2d(_ConvTransposeBnActivation2d):
    """`ConvTransposeBnRelu2d` with fake quantization."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return self.apply_quant_activation(F.relu(self.calc_conv_transpose2d_bn_qat(inp)))
