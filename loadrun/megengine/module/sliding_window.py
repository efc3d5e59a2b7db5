"""Windows of an image, and back (MegEngine's ``module/sliding_window.py``)."""

from typing import Any

from ...layers.geometry import Sizes
from ...tensors import Tensor, TensorLike
from .. import functional as F
from .module import Module


class SlidingWindow(Module):
    """Every window of an image as an array of its own.

    Args:
        kernel_size: size of a window, one number or (height, width).
        padding: zeros around.
        stride: distance between windows.
        dilation: distance between elements of a window.
    """

    def __init__(
        self, kernel_size: Sizes, padding: Sizes = 0, stride: Sizes = 1, dilation: Sizes = 1, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.padding = padding
        self.stride = stride
        self.dilation = dilation

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, C, H, W) to (N, C, OH, OW, KH, KW)."""
        return F.sliding_window(inp, self.kernel_size, self.padding, self.stride, self.dilation)


class SlidingWindowTranspose(Module):
    """Windows added up where they lay.

    Args:
        output_size: size of the image, one number or (height, width).
        kernel_size: size of a window.
        padding: what was around the image.
        stride: distance between windows.
        dilation: distance between elements of a window.
    """

    def __init__(
        self,
        output_size: Sizes,
        kernel_size: Sizes,
        padding: Sizes = 0,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.padding = padding
        self.stride = stride
        self.dilation = dilation

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, C, OH, OW, KH, KW) to (N, C, *output_size)."""
        return F.sliding_window_transpose(
            inp, self.output_size, self.kernel_size, self.padding, self.stride, self.dilation
        )
