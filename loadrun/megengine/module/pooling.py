"""Pooling, over windows of an image and over regions."""

from typing import Any

from ...layers.geometry import Sizes
from ...tensors import Tensor, TensorLike
from .. import functional as F
from .module import Module

__all__ = ["AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "AvgPool2d", "DeformablePSROIPooling", "MaxPool2d"]


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


class DeformablePSROIPooling(Module):
    """`functional.deformable_psroi_pooling` with its settings kept.

    Args:
        no_trans: leave out the offsets.
        part_size: into how many parts the offsets divide a region, per axis.
        pooled_h: height of the output.
        pooled_w: width of the output.
        sample_per_part: samples of an output element, per axis.
        spatial_scale: from the coordinates of regions to those of the input.
        trans_std: by what the offsets are multiplied.
    """

    def __init__(
        self,
        no_trans: bool,
        part_size: int,
        pooled_h: int,
        pooled_w: int,
        sample_per_part: int,
        spatial_scale: float,
        trans_std: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.no_trans = no_trans
        self.part_size = part_size
        self.pooled_h = pooled_h
        self.pooled_w = pooled_w
        self.sample_per_part = sample_per_part
        self.spatial_scale = spatial_scale
        self.trans_std = trans_std

    def forward(self, inp: TensorLike, rois: TensorLike, trans: TensorLike) -> Tensor:
        """Take input (N, C, H, W), regions (R, 5) and offsets to (R, C, pooled_h, pooled_w)."""
        return F.nn.deformable_psroi_pooling(
            inp,
            rois,
            trans,
            self.no_trans,
            self.part_size,
            self.pooled_h,
            self.pooled_w,
            self.sample_per_part,
            self.spatial_scale,
            self.trans_std,
        )
