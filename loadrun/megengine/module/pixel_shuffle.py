"""Channels to pixels (MegEngine's ``module/pixel_shuffle.py``)."""

from typing import Any

from ...tensors import Tensor, TensorLike
from .. import functional as F
from .module import Module


class PixelShuffle(Module):
    """(..., C * r * r, H, W) to (..., C, H * r, W * r).

    Args:
        upscale_factor: r.

    >>> PixelShuffle(2)(Tensor([[[[1.0]], [[2.0]], [[3.0]], [[4.0]]]])).tolist()
    [[[[1.0, 2.0], [3.0, 4.0]]]]
    """

    def __init__(self, upscale_factor: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.upscale_factor = upscale_factor

    def forward(self, x: TensorLike) -> Tensor:
        """Take a tensor of at least three axes."""
        return F.pixel_shuffle(x, self.upscale_factor)
