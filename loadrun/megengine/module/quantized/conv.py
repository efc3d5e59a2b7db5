"""Convolutions of quantized tensors (MegEngine's ``module/quantized/conv.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....layers.geometry import Sizes
from ....tensors import Parameter, Tensor, TensorLike, as_tensor
from ....tensors.dtypes import DTypeLike
from ...functional.quantized import conv_bias_activation, conv_transpose2d
from .. import conv as Float
from .module import QuantizedModule, quantized_bias, stored


class Conv2d(Float.Conv2d, QuantizedModule):
    """`Conv2d` of quantized tensors; it always has a bias.

    The arguments are those of `Conv2d` but for `bias`, and `dtype`, the quantized dtype of the result.

    Attributes:
        weight: quantized.
        bias: float32; rounded to qint32 by the scales of input and weight.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        dtype: DTypeLike | None = None,
        padding_mode: str = "zeros",
        **kwargs: Any,
    ) -> None:
        sizes = (kernel_size, stride, padding, dilation, groups, True)
        modes = (conv_mode, compute_mode, padding_mode)
        super().__init__(in_channels, out_channels, *sizes, *modes, **kwargs)
        self.output_dtype = dtype

    def calc_conv_quantized(self, inp: Tensor, nonlinear_mode: str = "identity") -> Tensor:
        """Return the convolution with an activation."""
        bias = quantized_bias(self.bias, inp, self.weight)
        assert bias is not None
        inp, padding = self._padded(inp)
        return conv_bias_activation(
            inp,
            self.weight,
            bias,
            self.output_dtype,
            self.stride,
            padding,
            self.dilation,
            self.groups,
            nonlinear_mode=nonlinear_mode,
            conv_mode=self.conv_mode,
            compute_mode=self.compute_mode,
        )

    @classmethod
    def _like(cls, conv: Float.Conv2d, dtype: DTypeLike | None, name: str | None) -> Conv2d:
        """Return a module with the settings of a float or qat one."""
        # There always is a bias, and MegEngine does not take the modes along.
        left = ("bias", "conv_mode", "compute_mode")
        settings = {k: v for k, v in conv._settings().items() if k not in left}
        return cls(**settings, dtype=dtype, name=name)

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> Conv2d:
        """Convert a module with fake quantization."""
        q = qat_module
        module = cls._like(q, q.get_activation_dtype(), q.name)
        module.weight = stored(q.weight, q.get_weight_dtype(), q.weight.name)
        if q.bias is None:
            module.bias = Parameter(np.zeros(q._infer_bias_shape(), np.float32))
        else:
            module.bias = stored(q.bias, name=q.bias.name)
        return module

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W), quantized."""
        return self.calc_conv_quantized(as_tensor(inp))


class ConvRelu2d(Conv2d):
    """`ConvRelu2d` of quantized tensors."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W), quantized."""
        return self.calc_conv_quantized(as_tensor(inp), nonlinear_mode="relu")


class ConvTranspose2d(Float.ConvTranspose2d, QuantizedModule):
    """`ConvTranspose2d` of quantized tensors.

    The arguments are those of `ConvTranspose2d`, and `dtype`, the quantized dtype of the result.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        dtype: DTypeLike | None = None,
        **kwargs: Any,
    ) -> None:
        sizes = (kernel_size, stride, padding, output_padding, dilation, groups)
        super().__init__(in_channels, out_channels, *sizes, bias, conv_mode, compute_mode, **kwargs)
        self.output_dtype = dtype

    def calc_conv_transpose2d_quantized(self, inp: Tensor, nonlinear_mode: str) -> Tensor:
        """Return the convolution; there is no activation but "identity", as in MegEngine."""
        if nonlinear_mode != "identity":
            raise AssertionError(f"nonlinear_mode must be identity, found {nonlinear_mode!r}")
        return conv_transpose2d(
            inp,
            self.weight,
            quantized_bias(self.bias, inp, self.weight),
            dtype=self.output_dtype,
            stride=self.stride,
            padding=self.padding,
            output_padding=self.output_padding,
            dilation=self.dilation,
            groups=self.groups,
            conv_mode=self.conv_mode,
            compute_mode=self.compute_mode,
        )

    @classmethod
    def _like(cls, conv: Float.ConvTranspose2d, dtype: DTypeLike | None, name: str | None) -> ConvTranspose2d:
        """Return a module with the settings of a float or qat one."""
        return cls(**conv._settings(), dtype=dtype, name=name)

    @classmethod
    def from_qat_module(cls, qat_module: Any) -> ConvTranspose2d:
        """Convert a module with fake quantization."""
        q = qat_module
        module = cls._like(q, q.get_activation_dtype(), q.name)
        module.weight = stored(q.weight, q.get_weight_dtype(), q.weight.name)
        module.bias = None if q.bias is None else stored(q.bias, name=q.bias.name)
        return module

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W), quantized."""
        return self.calc_conv_transpose2d_quantized(as_tensor(inp), nonlinear_mode="identity")


class ConvTransposeRelu2d(ConvTranspose2d):
    """`ConvTransposeRelu2d` of quantized tensors; its call is refused, as in MegEngine."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W), quantized."""
        return self.calc_conv_transpose2d_quantized(as_tensor(inp), nonlinear_mode="relu")
