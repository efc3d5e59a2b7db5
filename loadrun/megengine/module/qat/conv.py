"""Convolutions with fake quantization (MegEngine's ``module/qat/conv.py``)."""

from __future__ import annotations

from ....tensors import Tensor, TensorLike, as_tensor
from ... import functional as F
from .. import conv as Float
from .module import QATModule


class Conv2d(Float.Conv2d, QATModule):
    """`Conv2d` with fake quantization."""

    def calc_conv_qat(self, inp: TensorLike) -> Tensor:
        """Return the convolution with rounded weight and bias."""
        inp = as_tensor(inp)
        weight = self.apply_quant_weight(self.weight)
        return self.calc_conv(inp, weight, self.apply_quant_bias(self.bias, inp, weight))

    @classmethod
    def from_float_module(cls, float_module: Float.Conv2d) -> Conv2d:
        """Convert a float module."""
        return cls._sharing(float_module, **float_module._settings())

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return self.apply_quant_activation(self.calc_conv_qat(inp))


class ConvRelu2d(Conv2d):
    """`ConvRelu2d` with fake quantization."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return self.apply_quant_activation(F.relu(self.calc_conv_qat(inp)))


class ConvTranspose2d(Float.ConvTranspose2d, QATModule):
    """`ConvTranspose2d` with fake quantization."""

    def calc_conv_transpose2d_qat(self, inp: TensorLike) -> Tensor:
        """Return the convolution with rounded weight and bias."""
        inp = as_tensor(inp)
        weight = self.apply_quant_weight(self.weight)
        return self.calc_conv_transpose2d(inp, weight, self.apply_quant_bias(self.bias, inp, weight))

    @classmethod
    def from_float_module(cls, float_module: Float.ConvTranspose2d) -> ConvTranspose2d:
        """Convert a float module."""
        return cls._sharing(float_module, **float_module._settings())

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return self.apply_quant_activation(self.calc_conv_transpose2d_qat(inp))


class ConvTransposeRelu2d(ConvTranspose2d):
    """`ConvTransposeRelu2d` with fake quantization."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return self.apply_quant_activation(F.relu(self.calc_conv_transpose2d_qat(inp)))
