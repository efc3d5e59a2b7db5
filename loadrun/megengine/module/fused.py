"""Layers and what follows them as one module, so that quantization fuses them, `ConvBn2d` for one."""

from typing import Any

import numpy as np

from ...layers.geometry import Sizes
from ...tensors import Parameter, Tensor, TensorLike
from .. import functional as F
from .conv import Conv2d, ConvTranspose2d
from .linear import Linear, Weighted
from .module import Module
from .normalization import BatchNorm1d, BatchNorm2d

__all__ = ["BatchMatMulActivation", "ConvBn2d", "ConvBnRelu2d", "ConvTransposeBn2d", "ConvTransposeBnRelu2d"]
__all__ += ["LinearBn1d", "LinearBnRelu1d"]


class _ConvBnActivation2d(Module):
    """A `Conv2d` as ``conv`` and a `BatchNorm2d` as ``bn``, with the arguments of both."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        conv_mode: str = "cross_correlation",
        compute_mode: str = "default",
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        padding_mode: str = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conv = Conv2d(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            conv_mode,
            compute_mode,
            padding_mode,
            **kwargs,
        )
        self.bn = BatchNorm2d(out_channels, eps, momentum, affine, track_running_stats)


class ConvBn2d(_ConvBnActivation2d):
    """`Conv2d` and `BatchNorm2d`, so that quantization fuses them."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return self.bn(self.conv(inp))


class ConvBnRelu2d(_ConvBnActivation2d):
    """`Conv2d`, `BatchNorm2d` and relu, so that quantization fuses them."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_channels, H, W)."""
        return F.relu(self.bn(self.conv(inp)))


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


class _LinearBnActivation1d(Module):
    """A `Linear` as ``linear`` and a `BatchNorm1d` as ``bn``, with the arguments of both.

    Attributes:
        bias: (out_features,), not used; MegEngine's checkpoints hold it.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        compute_mode: str = "default",
        eps: float = 1e-5,
        momentum: float = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.out_features = out_features
        self.in_features = in_features
        self.bias = Parameter(np.zeros(out_features, np.float32)) if bias else None
        self.linear = Linear(in_features, out_features, bias, compute_mode, **kwargs)
        self.bn = BatchNorm1d(out_features, eps, momentum, affine, track_running_stats)


class LinearBn1d(_LinearBnActivation1d):
    """`Linear` and `BatchNorm1d`, so that quantization fuses them."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_features)."""
        return self.bn(self.linear(inp))


class LinearBnRelu1d(_LinearBnActivation1d):
    """`Linear`, `BatchNorm1d` and relu, so that quantization fuses them."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, in_features)."""
        return F.relu(self.bn(self.linear(inp)))


class BatchMatMulActivation(Weighted):
    """``act(weight @ x + bias)`` with a weight of its own for every member of the batch.

    Args:
        batch: number of matrices.
        in_features: columns of each.
        out_features: rows of each.
        bias: whether there is one.
        nonlinear_mode: "identity" or "relu".

    Attributes:
        weight: (batch, out_features, in_features).
        bias: (out_features,) or None.
    """

    def __init__(
        self,
        batch: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        nonlinear_mode: str = "identity",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.batch = batch
        self.out_features = out_features
        self.in_features = in_features
        self.weight = Parameter(np.zeros((batch, out_features, in_features), np.float32))
        self.bias = Parameter(np.zeros(out_features, np.float32)) if bias else None
        self.nonlinear_mode = nonlinear_mode.lower()
        self.reset_parameters()

    def _get_fanin(self) -> int:
        return self.in_features

    def _calc_linear(self, x: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Tensor:
        y = F.matmul(weight, x)
        if self.bias is not None:
            y = y + bias
        return F.relu(y) if self.nonlinear_mode == "relu" else y

    def forward(self, x: TensorLike) -> Tensor:
        """Take (batch, in_features, columns) to (batch, out_features, columns)."""
        return self._calc_linear(x, self.weight, self.bias)

    def _module_info_string(self) -> str:
        sizes = f"batch={self.batch}, in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"
