"""Convolutions (MegEngine's ``module/conv.py``)."""

from __future__ import annotations

import math
from typing import Any

from ...layers.geometry import Sizes
from ...tensors import Tensor, TensorLike
from .. import functional as F
from .conv_base import _Conv2d, _ConvNd
from .conv_special import DeformableConv2d, RegionRestrictedConv
from .sizes import pair

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvRelu2d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "ConvTransposeRelu2d",
    "DeformableConv2d",
    "LocalConv2d",
    "RegionRestrictedConv",
]


class Conv1d(_ConvNd):
    """Convolution along one axis.

    The arguments are those of `Conv2d`, with one number for each size.

    >>> import numpy as np
    >>> Conv1d(2, 3, 3, padding=1)(Tensor(np.ones((1, 2, 5)))).shape
    (1, 3, 5)
    """

    _axes = 1

    def calc_conv(self, inp: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Tensor:
        """Return the layer with other parameters."""
        inp, padding = self._padded(inp)
        settings = (self.stride, padding, self.dilation, self.groups, self.conv_mode, self.compute_mode)
        return F.conv1d(inp, weight, bias, *settings)

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, L)."""
        return self.calc_conv(inp, self.weight, self.bias)


class Conv2d(_Conv2d):
    """Convolution over height and width.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the window; this and the next ones are one number or (height, width).
        stride: distance between windows.
        padding: elements added on both sides of each axis.
        dilation: distance between the elements of a window.
        groups: into how many parts the channels are divided.
        bias: whether there is one.
        conv_mode: "cross_correlation".
        compute_mode: "float32" sums float16 products in float32.
        padding_mode: "zeros", "reflect" or "replicate".

    >>> Conv2d(3, 8, 3, stride=2, padding=1)
    Conv2d(3, 8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1))
    """

    _arguments = (*_Conv2d._arguments, "padding_mode")

    def calc_conv(self, inp: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Tensor:
        """Return the layer with other parameters."""
        inp, padding = self._padded(inp)
        settings = (self.stride, padding, self.dilation, self.groups, self.conv_mode, self.compute_mode)
        return F.conv2d(inp, weight, bias, *settings)

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return self.calc_conv(inp, self.weight, self.bias)


class ConvRelu2d(Conv2d):
    """`Conv2d` and relu."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return F.relu(self.calc_conv(inp, self.weight, self.bias))


class Conv3d(_ConvNd):
    """Convolution over depth, height and width.

    The arguments are those of `Conv2d`; `compute_mode` is accepted, sums are float32.
    """

    _axes = 3

    def calc_conv(self, inp: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Tensor:
        """Return the layer with other parameters."""
        inp, padding = self._padded(inp)
        return F.conv3d(inp, weight, bias, self.stride, padding, self.dilation, self.groups, self.conv_mode)

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, D, H, W)."""
        return self.calc_conv(inp, self.weight, self.bias)


class ConvTranspose2d(_Conv2d):
    """Convolve transposed over height and width.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the window; this and the next ones are one number or (height, width).
        stride: distance between the windows of the output.
        padding: what is cut off on both sides of each axis.
        output_padding: what is added at the end of each axis.
        dilation: distance between the elements of a window.
        groups: into how many parts the channels are divided.
        bias: whether there is one.
        conv_mode: "cross_correlation".
        compute_mode: "float32" sums float16 products in float32.

    >>> import numpy as np
    >>> ConvTranspose2d(2, 3, 2, stride=2)(Tensor(np.ones((1, 2, 4, 4)))).shape
    (1, 3, 8, 8)
    """

    _arguments = (*_Conv2d._arguments, "output_padding")
    _transposed = True

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
        **kwargs: Any,
    ) -> None:
        sizes = (kernel_size, stride, padding, dilation)
        kwargs["output_padding"] = pair(output_padding)
        super().__init__(in_channels, out_channels, *sizes, groups, bias, conv_mode, compute_mode, **kwargs)

    def _get_fanin(self) -> int:
        return math.prod(self._kernel()) * self.out_channels

    def calc_conv_transpose2d(self, inp: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Tensor:
        """Return the layer with other parameters."""
        sizes = (self.stride, self.padding, self.output_padding, self.dilation)
        return F.conv_transpose2d(inp, weight, bias, *sizes, self.groups, self.conv_mode, self.compute_mode)

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return self.calc_conv_transpose2d(inp, self.weight, self.bias)


class ConvTransposeRelu2d(ConvTranspose2d):
    """`ConvTranspose2d` and relu."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return F.relu(self.calc_conv_transpose2d(inp, self.weight, self.bias))


class ConvTranspose3d(_ConvNd):
    """Convolve transposed over depth, height and width.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the window; this and the next ones are one number or three.
        stride: distance between the windows of the output.
        padding: what is cut off on both sides of each axis.
        output_padding: what is added at the end of each axis.
        dilation: distance between the elements of a window.
        groups: into how many parts the channels are divided; MegEngine's own module fails unless it is 1.
        bias: whether there is one.
    """

    _axes = 3
    _transposed = True

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
    ) -> None:
        sizes = (kernel_size, stride, padding, dilation)
        super().__init__(in_channels, out_channels, *sizes, groups, bias, output_padding=output_padding)

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, D, H, W)."""
        sizes = (self.stride, self.padding, self.output_padding, self.dilation)
        return F.conv_transpose3d(inp, self.weight, self.bias, *sizes, self.groups)


class LocalConv2d(Conv2d):
    """Convolution with weights of their own for every place of the output.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        input_height: height of the input.
        input_width: width of the input.
        kernel_size: size of the window, one number or (height, width).
        stride: distance between windows.
        padding: zeros on both sides of each axis.
        dilation: distance between the elements of a window.
        groups: into how many parts the channels are divided.
        conv_mode: "cross_correlation".

    Attributes:
        weight: (groups, OH, OW, in_channels / groups, KH, KW, out_channels / groups).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        input_height: int,
        input_width: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        conv_mode: str = "cross_correlation",
        **kwargs: Any,
    ) -> None:
        self.input_height = input_height
        self.input_width = input_width
        channels = (in_channels, out_channels)
        super().__init__(*channels, kernel_size, stride, padding, dilation, groups, bias=False, **kwargs)

    def _infer_weight_shape(self) -> tuple[int, ...]:
        whole = (self.input_height, self.input_width)
        places = [
            (n + 2 * p - k) // s + 1
            for n, p, k, s in zip(whole, self.padding, self.kernel_size, self.stride, strict=True)
        ]
        inputs, outputs = self.in_channels // self.groups, self.out_channels // self.groups
        return (self.groups, *places, inputs, *self.kernel_size, outputs)

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, input_height, input_width)."""
        settings = (self.stride, self.padding, self.dilation, self.conv_mode)
        return F.local_conv2d(inp, self.weight, None, *settings)
