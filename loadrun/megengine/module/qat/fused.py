"""Layers with batch normalization as part of their weight and bias, with fake quantization."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

from ....tensors import Tensor, TensorLike, as_tensor
from ... import functional as F
from .. import fused as Float
from .module import QATModule

__all__ = ["ConvBn2d", "ConvBnRelu2d", "ConvTransposeBn2d", "ConvTransposeBnRelu2d", "LinearBn1d"]
__all__ += ["LinearBnRelu1d"]

_F = TypeVar("_F", bound="Folded")


def filled(value: TensorLike | None, count: int, default: float) -> Tensor:
    """Return a statistic or parameter of each channel, (1, count, 1, 1), or one number in its place.

    >>> filled(None, 2, 1.0).tolist()
    [[[[1.0]], [[1.0]]]]
    """
    shape = (1, count, 1, 1)
    return F.full(shape, default, dtype="float32") if value is None else as_tensor(value).reshape(shape)


class Folding:
    """By what the weight is multiplied, and the bias that comes of it.

    Args:
        count: number of channels.
        gamma: weight of the normalization, 1 if None; the next three are its bias, mean and variance.
        beta: 0 if None.
        mean: 0 if None.
        var: 1 if None.
        eps: added to the variance.

    >>> fold = Folding(2, None, None, None, None, eps=3.0)
    >>> fold.scale.tolist(), fold.bias(None).tolist()
    ([[[[0.5]], [[0.5]]]], [[[[0.0]], [[0.0]]]])
    """

    def __init__(
        self,
        count: int,
        gamma: TensorLike | None,
        beta: TensorLike | None,
        mean: TensorLike | None,
        var: TensorLike | None,
        eps: float,
    ) -> None:
        self.count = count
        self.gamma = filled(gamma, count, 1.0)
        self.beta = filled(beta, count, 0.0)
        self.mean = filled(mean, count, 0.0)
        self.istd = 1.0 / F.sqrt(filled(var, count, 1.0) + eps)
        self.scale = self.gamma * self.istd

    @classmethod
    def of(cls, bn: Any, mean: TensorLike, var: TensorLike) -> Folding:
        """Make that of a batch normalization with other statistics."""
        return cls(bn.num_features, bn.weight, bn.bias, mean, var, bn.eps)

    def bias(self, bias: TensorLike | None) -> Tensor:
        """Return the bias after the normalization, (1, channels, 1, 1)."""
        return self.beta + self.gamma * (filled(bias, self.count, 0.0) - self.mean) * self.istd


class Folded(QATModule):
    """A layer and the batch normalization ``bn`` after it, with fake quantization of the weight that does both."""

    _layer_name: str
    """The attribute that holds the layer."""
    bn: Any

    @property
    def _layer(self) -> Any:
        return getattr(self, self._layer_name)

    @abstractmethod
    def _scale_shape(self) -> tuple[int, ...]:
        """Return the shape in which the scale of every channel multiplies the layer's weight."""

    @abstractmethod
    def _calc(self, inp: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Tensor:
        """Return the layer with other parameters."""

    def _as_bias(self, value: Tensor) -> Tensor:
        """Return a value of every channel in the shape of the layer's bias."""
        return value

    def _as_output(self, value: Tensor) -> Tensor:
        """Return a value of every channel in a shape that goes with the layer's output."""
        return value

    def _weight(self, fold: Folding) -> Tensor:
        return self.apply_quant_weight(self._layer.weight * fold.scale.reshape(self._scale_shape()))

    def _bias(self, fold: Folding) -> Tensor:
        return self._as_bias(fold.bias(self._layer.bias))

    def fold_weight_bias(self, bn_mean: TensorLike, bn_var: TensorLike) -> tuple[Tensor, Tensor]:
        """Return the weight, rounded, and the bias of the layer that does both."""
        fold = Folding.of(self.bn, bn_mean, bn_var)
        return self._weight(fold), self._bias(fold)

    def _calc_bn_qat(self, inp: TensorLike, approx: bool) -> Tensor:
        """Return the layer with the running statistics in its rounded weight.

        While training, if `approx`, the scale is taken out of the result again and the batch's statistics are used.
        """
        inp = as_tensor(inp)
        fold = Folding.of(self.bn, self.bn.running_mean, self.bn.running_var)
        weight = self._weight(fold)
        if not (self.training and approx):
            return self._calc(inp, weight, self.apply_quant_bias(self._bias(fold), inp, weight))
        y = self._calc(inp, weight, None) / self._as_output(fold.scale)
        bias = self._layer.bias
        return self.bn(y if bias is None else y + self._as_output(bias))

    @classmethod
    def from_float_module(cls: type[_F], float_module: Any) -> _F:
        """Convert a float module, which shares its parameters."""
        theirs = getattr(float_module, cls._layer_name)
        module = cls(name=float_module.name, **theirs._settings())
        module._layer.weight, module._layer.bias, module.bn = theirs.weight, theirs.bias, float_module.bn
        return module


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


class _LinearBnActivation1d(Float._LinearBnActivation1d, Folded):
    _layer_name = "linear"

    def _scale_shape(self) -> tuple[int, ...]:
        return (-1, 1)

    def _as_bias(self, value: Tensor) -> Tensor:
        return value.reshape((-1,))

    def _as_output(self, value: Tensor) -> Tensor:
        return value.reshape((1, -1))

    def _calc(self, inp: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Tensor:
        return self.linear.calc_linear(inp, weight, bias)

    def calc_linear_bn_qat(self, inp: TensorLike, approx: bool = True) -> Tensor:
        """Return the layer with the normalization in its rounded weight; `approx` counts while training."""
        return self._calc_bn_qat(inp, approx)


class LinearBn1d(_LinearBnActivation1d):
    """`LinearBn1d` with fake quantization."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_features)."""
        return self.apply_quant_activation(self.calc_linear_bn_qat(inp))


class LinearBnRelu1d(_LinearBnActivation1d):
    """`LinearBnRelu1d` with fake quantization."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_features)."""
        return self.apply_quant_activation(F.relu(self.calc_linear_bn_qat(inp)))
