"""Transposed convolution and batch normalization in one (MegEngine's ``module/conv_transpose_bn.py``)."""

from typing import Any

from ...layers.geometry import Sizes
from ...tensors import Tensor, TensorLike
from .. import functional as F
from .batchnorm import BatchNorm2d
from .conv import ConvTranspose2d
from .module import Module


class _ConvTransposeBnActivation2d(Module):
    """A `ConvTranspose2d` as ``conv_transpose2d`` and a `BatchNorm2d` as ``bn``, with the arguments of both."""

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
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conv_transpose2d = ConvTranspose2d(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            dilation,
            groups,
            bias,
            conv_mode,
            compute_mode,
            **kwargs,
        )
        self.bn = BatchNorm2d(out_channels, eps, momentum, affine, track_running_stats)


class ConvTransposeBn2d(_ConvTransposeBnActivation2d):
    """`ConvTranspose2d` and `BatchNorm2d`, so that quantization fuses them."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return self.bn(self.conv_transpose2d(inp))


class ConvTransposeBnRelu2d(_ConvTransposeBnActivation2d):
    """`ConvTranspose2d`, `BatchNorm2d` and relu, so that quantization fuses them."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return F.relu(self.bn(self.conv_transpose2d(inp)))
