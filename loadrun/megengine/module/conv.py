"""Convolutions (MegEngine's ``module/conv.py``)."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...layers.geometry import Sizes
from ...tensors import Parameter, Tensor, TensorLike, as_tensor
from .. import functional as F
from ..utils.tuple_function import _pair, _pair_nonzero, _triple, _triple_nonzero
from .linear import Weighted

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvRelu2d", "ConvTranspose2d", "ConvTranspose3d"]
__all__ += ["ConvTransposeRelu2d", "DeformableConv2d", "LocalConv2d", "RegionRestrictedConv"]


_PADDING_MODES = ("zeros", "reflect", "replicate")
_SIZES: dict[int, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    1: (lambda size: size, lambda size: size),
    2: (_pair, _pair_nonzero),
    3: (_triple, _triple_nonzero),
}
"""What makes any size, and one above 0, one number for each axis."""


class _ConvNd(Weighted):
    """Base of the convolutions.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the window; this and the next ones are one number, or one for each axis.
        stride: distance between windows.
        padding: elements added on both sides of each axis.
        dilation: distance between the elements of a window.
        groups: into how many parts the channels are divided.
        bias: whether there is one.
        conv_mode: "cross_correlation".
        compute_mode: "float32" sums float16 products in float32.
        padding_mode: "zeros", "reflect" or "replicate".
        output_padding: of transposed ones, what is added at the end of each axis.
        kwargs: those of `Module`.

    Attributes:
        weight: (out_channels, in_channels, *kernel_size), with groups (groups, out_channels / groups,
            in_channels / groups, *kernel_size); in transposed convolutions input and output channels change places.
        bias: (1, out_channels) and a 1 for each further axis, or None.

    Raises:
        ValueError: the channels cannot be divided into that many groups.
        AssertionError: a size is negative, or 0 if it must not be, or the numbers are too few or too many.
    """

    _axes = 2
    _transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        padding_mode: str = "zeros",
        output_padding: Sizes = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, count in (("in_channels", in_channels), ("out_channels", out_channels)):
            if count % groups:
                raise ValueError(f"{name} must be divisible by groups, found {count} and {groups}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        any_size, positive = _SIZES[self._axes]
        self.kernel_size = positive(kernel_size)
        self.stride = positive(stride)
        self.padding = any_size(padding)
        self.output_padding = output_padding
        self.dilation = positive(dilation)
        self.groups = groups
        self.conv_mode = conv_mode
        self.compute_mode = compute_mode
        self.padding_mode = padding_mode
        self.weight = Parameter(np.zeros(self._infer_weight_shape(), np.float32))
        self.bias = Parameter(np.zeros(self._infer_bias_shape(), np.float32)) if bias else None
        self.reset_parameters()

    def _kernel(self) -> tuple[int, ...]:
        return self.kernel_size if isinstance(self.kernel_size, tuple) else (self.kernel_size,)

    def _get_fanin(self) -> int:
        return math.prod(self._kernel()) * self.in_channels

    def _infer_weight_shape(self) -> tuple[int, ...]:
        channels = (self.out_channels // self.groups, self.in_channels // self.groups)
        groups = () if self.groups == 1 else (self.groups,)
        return (*groups, *(channels[::-1] if self._transposed else channels), *self._kernel())

    def _infer_bias_shape(self) -> tuple[int, ...]:
        return (1, self.out_channels, *(1,) * len(self._kernel()))

    def get_pad_witdth(self) -> tuple[tuple[int, int], ...]:
        """Return the padding as `functional.nn.pad` takes it (the spelling is MegEngine's)."""
        padding = self.padding if isinstance(self.padding, tuple) else (self.padding,)
        return ((0, 0), (0, 0), *((n, n) for n in padding))

    def _padded(self, inp: TensorLike) -> tuple[Tensor, Any]:
        """Return the input with what the padding mode puts around it, and the zeros that are still to be added."""
        _check_padding_mode(self.padding_mode)
        inp = as_tensor(inp)
        if self.padding_mode == "zeros":
            return inp, self.padding
        return F.nn.pad(inp, self.get_pad_witdth(), self.padding_mode), 0

    def _module_info_string(self) -> str:
        axes = len(self._kernel())
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        for name, usual in (("stride", 1), ("padding", 0), ("dilation", 1)):
            value = getattr(self, name)
            if value not in (usual, (usual,) * axes):
                text += f", {name}={value}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text if self.bias is not None else f"{text}, bias=False"


def _check_padding_mode(mode: str) -> None:
    if mode not in _PADDING_MODES:
        raise AssertionError(f"padding_mode must be one of {', '.join(_PADDING_MODES)}; found {mode!r}")


class _Conv2d(_ConvNd):
    """Base of the convolutions over height and width."""

    _arguments: tuple[str, ...] = (
        *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"),
        *("conv_mode", "compute_mode"),
    )

    def _settings(self) -> dict[str, Any]:
        """Return the arguments with which another layer of the same kind is made, but for its name."""
        return {**{n: getattr(self, n) for n in self._arguments}, "bias": self.bias is not None}


class DeformableConv2d(_Conv2d):
    """Convolution whose windows take their elements from places that offsets move, each times a mask.

    The arguments are those of `Conv2d`.
    """

    def calc_conv(
        self,
        inp: TensorLike,
        weight: TensorLike,
        offset: TensorLike,
        mask: TensorLike,
        bias: TensorLike | None,
    ) -> Tensor:
        """Return the layer with other parameters."""
        inp, padding = self._padded(inp)
        sizes = (self.stride, padding, self.dilation, self.groups)
        return F.deformable_conv2d(inp, weight, offset, mask, bias, *sizes, self.conv_mode, self.compute_mode)

    def forward(self, inp: TensorLike, offset: TensorLike, mask: TensorLike) -> Tensor:
        """Take input (N, in_channels, H, W), offset (N, 2 * KH * KW, OH, OW) and mask (N, KH * KW, OH, OW)."""
        return self.calc_conv(inp, self.weight, offset, mask, self.bias)


class RegionRestrictedConv(_Conv2d):
    """Depthwise convolution that takes only elements of the output's region.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the window; this, stride, padding and dilation are one number or (height, width).
        groups: into how many parts the channels are divided.
        bias: whether there is one.
        stride: distance between windows.
        padding: zeros on both sides of each axis.
        dilation: distance between the elements of a window.
        conv_mode: "cross_correlation".
        compute_mode: "float32" sums float16 products in float32.
        padding_mode: kept, but zeros are what is added, as in MegEngine.

    Attributes:
        weight: (groups, out_channels / groups, in_channels / groups, KH, KW), also for one group.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        groups: int = 1,
        bias: bool = True,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        padding_mode: str = "zeros",
        **kwargs: Any,
    ) -> None:
        sizes = (kernel_size, stride, padding, dilation)
        modes = (conv_mode, compute_mode, padding_mode)
        super().__init__(in_channels, out_channels, *sizes, groups, bias, *modes, **kwargs)

    def _infer_weight_shape(self) -> tuple[int, ...]:
        groups = self.groups
        return (groups, self.out_channels // groups, self.in_channels // groups, *self.kernel_size)

    def calc_conv(
        self, inp: TensorLike, weight: TensorLike, rin: TensorLike, rout: TensorLike, bias: TensorLike | None
    ) -> Tensor:
        """Return the layer with other parameters."""
        _check_padding_mode(self.padding_mode)
        sizes = (self.stride, self.padding, self.dilation, self.groups)
        return F.region_restricted_conv(
            inp, weight, rin, rout, bias, *sizes, self.conv_mode, self.compute_mode
        )

    def forward(self, inp: TensorLike, rin: TensorLike, rout: TensorLike) -> Tensor:
        """Take input (N, in_channels, H, W), regions of its places (N, H, W) and of the output's (N, OH, OW)."""
        return self.calc_conv(inp, self.weight, rin, rout, self.bias)


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
        kwargs["output_padding"] = _pair(output_padding)
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
