"""Pooling to a given size (MegEngine's ``module/adaptive_pooling.py``)."""

from typing import Any

from ...layers.geometry import Sizes
from ...tensors import Tensor, TensorLike
from .. import functional as F
from .module import Module


class _AdaptivePoolNd(Module):
    """Keeps the output's height and width, one number for both, or a tensor of them."""

    def __init__(self, oshp: Sizes, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.oshp = oshp


class AdaptiveMaxPool2d(_AdaptivePoolNd):
    """The maxima of as many windows as the output has elements."""

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, C, H, W) to (N, C, *oshp)."""
        return F.adaptive_max_pool2d(inp, self.oshp)


class AdaptiveAvgPool2d(_AdaptivePoolNd):
    """The means of as many windows as the output has elements.

    >>> AdaptiveAvgPool2d(1)(Tensor([[[[1.0, 3.0]]]])).tolist()
    [[[[2.0]]]]
    """

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, C, H, W) to (N, C, *oshp)."""
        return F.adaptive_avg_pool2d(inp, self.oshp)
