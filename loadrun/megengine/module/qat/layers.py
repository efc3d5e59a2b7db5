"""Layers with fake quantization."""

from __future__ import annotations

from collections.abc import Iterable

from ....tensors import Tensor, TensorLike, as_tensor
from ... import functional as F, module as Float
from .module import QATModule

__all__ = ["BatchMatMulActivation", "Concat", "Conv2d", "ConvRelu2d", "ConvTranspose2d"]
__all__ += ["ConvTransposeRelu2d", "DequantStub", "Elemwise", "Linear", "LinearRelu", "QuantStub"]


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


class Linear(Float.Linear, QATModule):
    """`Linear` with fake quantization."""

    def calc_linear_qat(self, inp: TensorLike) -> Tensor:
        """Return the product with rounded weight and bias."""
        inp = as_tensor(inp)
        weight = self.apply_quant_weight(self.weight)
        return self.calc_linear(inp, weight, self.apply_quant_bias(self.bias, inp, weight))

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (..., in_features)."""
        return self.apply_quant_activation(self.calc_linear_qat(inp))

    @classmethod
    def from_float_module(cls, float_module: Float.Linear) -> Linear:
        """Convert a float module."""
        return cls._sharing(float_module, float_module.in_features, float_module.out_features)


class LinearRelu(Linear):
    """`LinearRelu` with fake quantization."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (..., in_features)."""
        return self.apply_quant_activation(F.relu(self.calc_linear_qat(inp)))


class BatchMatMulActivation(Float.BatchMatMulActivation, QATModule):
    """`BatchMatMulActivation` with fake quantization."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (batch, in_features, columns)."""
        inp = as_tensor(inp)
        weight = self.apply_quant_weight(self.weight)
        bias = self.apply_quant_bias(self.bias, inp, weight)
        return self.apply_quant_activation(self._calc_linear(inp, weight, bias))

    @classmethod
    def from_float_module(cls, float_module: Float.BatchMatMulActivation) -> BatchMatMulActivation:
        """Convert a float module."""
        f = float_module
        return cls._sharing(f, f.batch, f.in_features, f.out_features, f.bias is not None)


class Concat(Float.Concat, QATModule):
    """`Concat` with fake quantization of the result."""

    def forward(self, inps: Iterable[TensorLike], axis: int = 0) -> Tensor:
        """Take tensors of one shape but along `axis`."""
        return self.apply_quant_activation(super().forward(inps, axis))

    @classmethod
    def from_float_module(cls, float_module: Float.Concat) -> Concat:
        """Convert a float module."""
        return cls(name=float_module.name)


class Elemwise(Float.Elemwise, QATModule):
    """`Elemwise` with fake quantization of the result."""

    with_weight = False

    def forward(self, *inps: TensorLike) -> Tensor:
        """Take as many operands as the mode has."""
        return self.apply_quant_activation(super().forward(*inps))

    @classmethod
    def from_float_module(cls, float_module: Float.Elemwise) -> Elemwise:
        """Convert a float module."""
        return cls(float_module.method, name=float_module.name)


class QuantStub(Float.QuantStub, QATModule):
    """Rounds the input of the quantized part."""

    with_weight = False

    def forward(self, inp: TensorLike) -> Tensor:
        """Take any float32 tensor."""
        return self.apply_quant_activation(inp)

    @classmethod
    def from_float_module(cls, float_module: Float.QuantStub) -> QuantStub:
        """Convert a float module."""
        return cls(name=float_module.name)


class DequantStub(Float.DequantStub, QATModule):
    """Does nothing: fake quantization leaves real numbers."""

    with_weight = False
    with_act = False

    @classmethod
    def from_float_module(cls, float_module: Float.DequantStub) -> DequantStub:
        """Convert a float module."""
        return cls(name=float_module.name)
