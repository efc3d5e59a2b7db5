"""Pooling of MegEngine's functional package (MegEngine's dnn pooling kernels, `loadrun.ops.pooling`)."""

from __future__ import annotations

import numpy as np

from ..graph import params as P
from ..tensors import Tensor, TensorLike, apply, apply1, as_tensor, shape_tensor
from .geometry import Mode, Sizes, member, pair

__all__ = [
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "avg_pool2d",
    "deformable_psroi_pooling",
    "max_pool2d",
]


def _pooled(
    inp: TensorLike, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, mode: P.PoolingMode
) -> Tensor:
    (h, w), (ph, pw) = pair(kernel_size, "kernel_size"), pair(padding, "padding")
    sh, sw = (h, w) if stride is None else pair(stride, "stride")
    param = P.Pooling(mode=mode, window_h=h, window_w=w, stride_h=sh, stride_w=sw, pad_h=ph, pad_w=pw)
    return apply1("PoolingV1", param, inputs=[as_tensor(inp)])


def max_pool2d(
    inp: TensorLike, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0
) -> Tensor:
    """Return the largest value of every window.

    Args:
        inp: (N, C, H, W), float or 8-bit integers.
        kernel_size: size of the windows, one number or (height, width).
        stride: distance between windows, by default their size.
        padding: what is added on both sides of each axis; never greater than a value.

    Returns:
        (N, C, OH, OW), OH = floor((H + 2 * padding - kernel_size) / stride) + 1, in the input's dtype.

    >>> import numpy as np
    >>> max_pool2d(np.arange(12, dtype="f").reshape(1, 1, 3, 4), 2, 1).tolist()
    [[[[5.0, 6.0, 7.0], [9.0, 10.0, 11.0]]]]
    """
    return _pooled(inp, kernel_size, stride, padding, P.PoolingMode.MAX)


def avg_pool2d(
    inp: TensorLike,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    mode: Mode = "average_count_exclude_padding",
) -> Tensor:
    """Return the mean of every window.

    Args:
        inp: (N, C, H, W), float or 8-bit integers.
        kernel_size: size of the windows, one number or (height, width).
        stride: distance between windows, by default their size.
        padding: zeros on both sides of each axis.
        mode: "average" counts the padding among the values, "average_count_exclude_padding" does not.

    Raises:
        RuntimeError: `mode` is neither.

    >>> import numpy as np
    >>> avg_pool2d(np.arange(12, dtype="f").reshape(1, 1, 3, 4), 2, padding=[1, 0], mode="average").tolist()
    [[[[0.25, 1.25], [6.5, 8.5]]]]
    """
    return _pooled(inp, kernel_size, stride, padding, member(P.PoolingMode, mode, "mode"))


def _adaptive(inp: TensorLike, oshp: Sizes, mode: P.PoolingMode) -> Tensor:
    if isinstance(oshp, (int, np.integer)):
        oshp = (oshp, oshp)
    param = P.AdaptivePooling(mode=mode)
    return apply1("AdaptivePoolingV1", param, inputs=[as_tensor(inp), shape_tensor(oshp)])


def adaptive_max_pool2d(inp: TensorLike, oshp: Sizes) -> Tensor:
    """Take maxima of windows to a given size, with windows that MegEngine derives from it.

    The stride is floor(H / OH) and the window H - (OH - 1) * stride, which is not the usual scheme of windows of
    differing sizes.

    Args:
        inp: (N, C, H, W).
        oshp: (OH, OW), one number for both, or an int32 tensor of them.

    >>> import numpy as np
    >>> adaptive_max_pool2d(np.arange(16, dtype="f").reshape(1, 1, 4, 4), (2, 2)).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """
    return _adaptive(inp, oshp, P.PoolingMode.MAX)


def adaptive_avg_pool2d(inp: TensorLike, oshp: Sizes) -> Tensor:
    """Return the average pooling to a given size, with the windows of `adaptive_max_pool2d`.

    Args:
        inp: (N, C, H, W).
        oshp: (OH, OW), one number for both, or an int32 tensor of them.

    >>> import numpy as np
    >>> adaptive_avg_pool2d(np.arange(16, dtype="f").reshape(1, 1, 4, 4), 2).tolist()
    [[[[2.5, 4.5], [10.5, 12.5]]]]
    """
    return _adaptive(inp, oshp, P.PoolingMode.AVERAGE)


def deformable_psroi_pooling(
    inp: TensorLike,
    rois: TensorLike,
    trans: TensorLike,
    no_trans: bool,
    part_size: int,
    pooled_h: int,
    pooled_w: int,
    sample_per_part: int,
    spatial_scale: float,
    trans_std: float = 0.1,
) -> Tensor:
    """Return the average pooling of regions, part by part, each part moved by `trans`.

    Args:
        inp: (N, C, H, W), float32.
        rois: (K, 5) rows of batch index, left, top, right, bottom.
        trans: (K, 2, pooled_h, pooled_w): by how much of a region's size each part is moved, times `trans_std`.
        no_trans: leave the parts where they are.
        part_size: into how many parts `trans` divides a region per axis.
        pooled_h: rows of the output.
        pooled_w: columns of the output.
        sample_per_part: samples per axis and part.
        spatial_scale: from the regions' coordinates to the input's.
        trans_std: factor of `trans`.

    Returns:
        (K, C, pooled_h, pooled_w).

    >>> import numpy as np
    >>> x, trans = np.ones((1, 2, 8, 8), "f"), np.zeros((1, 2, 2, 2), "f")
    >>> deformable_psroi_pooling(x, np.float32([[0, 1, 1, 4, 4]]), trans, False, 2, 2, 2, 2, 1.0).shape
    (1, 2, 2, 2)
    """
    param = P.DeformablePSROIPooling(
        no_trans=bool(no_trans),
        part_size=int(part_size),
        pooled_h=int(pooled_h),
        pooled_w=int(pooled_w),
        sample_per_part=int(sample_per_part),
        spatial_scale=float(spatial_scale),
        trans_std=float(trans_std),
    )
    return apply(
        "DeformablePSROIPoolingForward", param, inputs=[as_tensor(v) for v in (inp, rois, trans)], n=2
    )[0]
