"""Pooling of windows (MegEngine's ``module/pooling.py``)."""

from __future__ import annotations

from typing import Any

from ...layers.geometry import Sizes
from ...tensors import Tensor, TensorLike
from .. import functional as F
from .module import Module


class _PoolNd(Module):
    """Windows of a size, a distance (the size by default) and zeros around."""

    def __init__(
        self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.stride = stride or kernel_size
        self.padding = padding

    def _module_info_string(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPool2d(_PoolNd):
    """The maximum of each window.

    >>> MaxPool2d((1, 2))(Tensor([[[[1.0, 3.0]]]])).tolist()
    [[[[3.0]]]]
    """

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, C, H, W)."""
        return F.max_pool2d(inp, self.kernel_size, self.stride, self.padding)


class AvgPool2d(_PoolNd):
    """The mean of each window.

    Args:
        kernel_size: one number or (height, width).
        stride: distance between windows, by default their size.
        padding: zeros around.
        mode: "average_count_exclude_padding" or "average", which counts the zeros around.
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        mode: str = "average_count_exclude_padding",
        **kwargs: Any,
    ) -> None:
        super().__init__(kernel_size, stride, padding, **kwargs)
        self.mode = mode

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, C, H, W)."""
        return F.avg_pool2d(inp, self.kernel_size, self.stride, self.padding, self.mode)

    def _module_info_string(self) -> str:
        return f"{super()._module_info_string()}, mode={self.mode}"
