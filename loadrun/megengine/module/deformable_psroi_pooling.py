"""Deformable position sensitive pooling (MegEngine's ``module/deformable_psroi_pooling.py``)."""

from typing import Any

from ...tensors import Tensor, TensorLike
from .. import functional as F
from .module import Module


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
