"""Convolutions with further inputs: offsets and masks, or regions (MegEngine's ``module/conv.py``)."""

from __future__ import annotations

from typing import Any

from ...layers.geometry import Sizes
from ...tensors import Tensor, TensorLike
from .. import functional as F
from .conv_base import _check_padding_mode, _Conv2d


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
