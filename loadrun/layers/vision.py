"""MegEngine's ``functional.vision``: resizing, warping, regions of interest, boxes, colors.

Images are NCHW unless said otherwise. The operators are those that MegEngine records.
"""

from ..graph import params as P
from ..tensors import Tensor, TensorLike, apply, apply1, as_tensor, shape_tensor
from ..tensors.access import static_shape
from .geometry import Sizes, member, pair, require
from .math import argsort
from .warping import interpolate, remap, warp_affine, warp_perspective

__all__ = [
    "correlation",
    "cvt_color",
    "interpolate",
    "nms",
    "remap",
    "roi_align",
    "roi_pooling",
    "warp_affine",
    "warp_perspective",
]


def cvt_color(inp: TensorLike, mode: str = "") -> Tensor:
    """Return images in other colors.

    Args:
        inp: (N, H, W, C) in float32 (gray, RGB, BGR and YUV) or uint8; (N, 3 * H / 2, W, 1) for planar YUV.
        mode: what to convert from and to, for instance "RGB2GRAY" or "BT601_YUV2RGB_NV21".

    Raises:
        AssertionError: there is no such mode.

    >>> import numpy as np
    >>> cvt_color(np.float32([1, 0, 0]).reshape(1, 1, 1, 3), "RGB2GRAY").numpy().round(3).item()
    0.29899999499320984
    """
    name = mode if "YCrCb" in mode else mode.upper()
    known = ", ".join(P.CvtColorMode.__members__)
    require(name in P.CvtColorMode.__members__, f"mode must be one of {known}; found {mode!r}")
    return apply1("CvtColor", P.CvtColor(mode=P.CvtColorMode[name]), inputs=[as_tensor(inp)])


def roi_pooling(
    inp: TensorLike, rois: TensorLike, output_shape: Sizes, mode: str = "max", scale: float = 1.0
) -> Tensor:
    """Pool regions, each to the same size (Faster R-CNN).

    Args:
        inp: (N, C, H, W), float.
        rois: (K, 5) rows of batch index, left, top, right, bottom.
        output_shape: (OH, OW), or one number.
        mode: "max" or "average".
        scale: from the regions' coordinates to the input's.

    Returns:
        (K, C, OH, OW).

    Raises:
        AssertionError: there is no such mode.

    >>> import numpy as np
    >>> x = np.arange(16, dtype="f").reshape(1, 1, 4, 4)
    >>> roi_pooling(x, np.float32([[0, 0, 0, 3, 3]]), 2).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """
    require(str(mode).lower() in ("max", "average"), f"mode must be 'max' or 'average', found {mode!r}")
    param = P.ROIPooling(mode=member(P.ROIPoolingMode, mode, "mode"), scale=float(scale))
    size = shape_tensor(pair(output_shape, "output_shape"))
    return apply("ROIPooling", param, inputs=[as_tensor(inp), as_tensor(rois), size], n=2)[0]


def correlation(
    data1: TensorLike,
    data2: TensorLike,
    kernel_size: int = 1,
    max_displacement: int = 1,
    stride1: int = 1,
    stride2: int = 1,
    pad_size: int = 0,
    is_multiply: bool = True,
) -> Tensor:
    """Compute how alike two feature maps are at every displacement (FlowNet).

    Args:
        data1: (N, C, H, W), float32.
        data2: of the same shape.
        kernel_size: odd size of the patches that are compared.
        max_displacement: the farthest displacement.
        stride1: distance between the compared positions of `data1`.
        stride2: distance between displacements.
        pad_size: zeros on all sides.
        is_multiply: mean of products; else of absolute differences.

    Returns:
        (N, (2 * floor(max_displacement / stride2) + 1) ** 2, OH, OW).

    >>> import numpy as np
    >>> x = np.ones((1, 1, 3, 3), "f")
    >>> correlation(x, x, kernel_size=3, max_displacement=0).tolist()
    [[[[1.0]]]]
    """
    param = P.Correlation(
        kernel_size=int(kernel_size),
        max_displacement=int(max_displacement),
        stride1=int(stride1),
        stride2=int(stride2),
        pad_size=int(pad_size),
        is_multiply=bool(is_multiply),
    )
    return apply1("CorrelationForward", param, inputs=[as_tensor(data1), as_tensor(data2)])


def roi_align(
    inp: TensorLike,
    rois: TensorLike,
    output_shape: Sizes,
    mode: str = "average",
    spatial_scale: float = 1.0,
    sample_points: Sizes = 2,
    aligned: bool = True,
) -> Tensor:
    """Sample regions bilinearly and give the average or maximum in every bin (Mask R-CNN).

    Args:
        inp: (N, C, H, W); converted to float32.
        rois: (K, 5) float32 rows of batch index, left, top, right, bottom.
        output_shape: (OH, OW), or one number.
        mode: "max" or "average".
        spatial_scale: from the regions' coordinates to the input's.
        sample_points: samples per bin and axis, one number or two; 0 for as many as the bin has pixels.
        aligned: move the regions by half a pixel to the top left.

    Returns:
        (K, C, OH, OW) float32.

    Raises:
        AssertionError: there is no such mode.

    >>> import numpy as np
    >>> x = np.arange(16, dtype="f").reshape(1, 1, 4, 4)
    >>> roi_align(x, np.float32([[0, 1, 1, 3, 3]]), 1, sample_points=1).tolist()
    [[[[7.5]]]]
    """
    require(str(mode).lower() in ("max", "average"), f"mode must be 'max' or 'average', found {mode!r}")
    (h, w), (sh, sw) = pair(output_shape, "output_shape"), pair(sample_points, "sample_points")
    param = P.ROIAlign(
        mode=member(P.ROIAlignMode, mode, "mode"),
        spatial_scale=float(spatial_scale),
        offset=0.5 if aligned else 0.0,
        pooled_height=h,
        pooled_width=w,
        sample_height=sh,
        sample_width=sw,
    )
    inputs = [as_tensor(inp).astype("float32"), as_tensor(rois)]
    return apply("ROIAlignV1", param, inputs=inputs, n=2)[0]


def nms(boxes: TensorLike, scores: TensorLike, iou_thresh: float, max_output: int | None = None) -> Tensor:
    """Suppress all but maxima: the boxes that overlap no better one too much.

    Args:
        boxes: (N, 4) rows of left, top, right, bottom.
        scores: (N,).
        iou_thresh: the largest intersection over union that is kept.
        max_output: how many boxes to keep at most; by default all. A trace takes the number of boxes then.

    Returns:
        int32 numbers of the kept boxes, best first.

    Raises:
        AssertionError: the shapes do not fit together.

    >>> boxes = Tensor([[0.0, 0, 9, 9], [0.0, 0, 9, 8], [20.0, 20, 30, 30]])
    >>> nms(boxes, [0.5, 0.9, 0.7], 0.5).tolist()
    [1, 2]
    """
    boxes, scores = as_tensor(boxes), as_tensor(scores)
    require(boxes.ndim == 2 and boxes.shape[1] == 4, f"boxes must be (N, 4), found {static_shape(boxes)}")
    require(scores.ndim == 1, f"scores must be (N,), found {static_shape(scores)}")
    n = int(boxes.shape[0])
    require(n == scores.shape[0], f"there are {n} boxes, but {int(scores.shape[0])} scores")
    order = argsort(scores, descending=True)
    param = P.NMSKeep(iou_thresh=float(iou_thresh), max_output=n if max_output is None else int(max_output))
    kept, count = apply("NMSKeepMGB", param, inputs=[boxes[order].reshape(1, -1, 4)], n=2)
    return order[kept[0][: count[0]]]
