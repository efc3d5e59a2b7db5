"""MegEngine's ``functional.vision``: resizing, warping, regions of interest, boxes, colors.

Images are NCHW unless said otherwise. The operators are those that MegEngine records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..graph import params as P
from ..graph.dtypes import Array
from ..tensors import ShapeLike, Tensor, TensorLike, apply, apply1, as_tensor, shape_tensor
from ..tensors.access import as_vector, static_shape
from ..tensors.shaping import broadcast_to, concat, expand_dims, reshape
from .elemwise import floor
from .geometry import Sizes, member, pair, require
from .math import argsort

__all__ = ["correlation", "cvt_color", "interpolate", "nms", "remap", "roi_align", "roi_pooling"]
__all__ += ["warp_affine", "warp_perspective"]


_MODES = ("bilinear", "linear", "trilinear", "bicubic", "nearest")


def remap(
    inp: TensorLike,
    map_xy: TensorLike,
    border_mode: str = "replicate",
    scalar: float = 0.0,
    interp_mode: str = "linear",
) -> Tensor:
    """Return images sampled at given positions.

    Args:
        inp: (N, C, H, W).
        map_xy: (N, OH, OW, 2) float32 of column and row.
        border_mode: "replicate", "constant", "reflect", "reflect_101" or "wrap".
        scalar: the value outside for "constant".
        interp_mode: "linear" or "nearest".

    Returns:
        (N, C, OH, OW).

    >>> import numpy as np
    >>> x = np.arange(4, dtype="f").reshape(1, 1, 2, 2)
    >>> remap(x, np.float32([0.5, 0.5, 1, 0]).reshape(1, 1, 2, 2)).tolist()
    [[[[1.5, 1.0]]]]
    """
    param = P.Remap(
        imode=member(P.InterpolationMode, interp_mode, "interp_mode"),
        border_type=member(P.BorderMode, border_mode, "border_mode"),
        format=P.Format.NCHW,
        scalar=float(scalar),
    )
    return apply1("RemapV1", param, inputs=[as_tensor(inp), as_tensor(map_xy)])


def _out_shape(value: ShapeLike, what: str) -> Tensor:
    """Return an output size as the int32 tensor that the operators take."""
    if isinstance(value, (int, float)):
        raise TypeError(f"{what} must be a sequence or an int32 tensor, found {value!r}")
    return shape_tensor(value)


def warp_affine(
    inp: TensorLike,
    mat: TensorLike,
    out_shape: ShapeLike,
    border_mode: str = "replicate",
    border_val: float = 0.0,
    format: str = "NHWC",
    interp_mode: str = "linear",
) -> Tensor:
    """Return images through matrices that map positions of the output to the input.

    Args:
        inp: (N, H, W, C), or (N, C, H, W) with `format`; float32 or uint8.
        mat: (N, 2, 3) float32.
        out_shape: (OH, OW), numbers or an int32 tensor.
        border_mode: "replicate", "constant", "reflect", "reflect_101", "wrap", "isolated" or "transparent".
        border_val: the value outside for "constant".
        format: "NHWC" or "NCHW".
        interp_mode: what MegEngine's CPU kernel has, "linear".

    >>> import numpy as np
    >>> x = np.arange(4, dtype="f").reshape(1, 2, 2, 1)
    >>> warp_affine(x, np.float32([[[1, 0, 1], [0, 1, 0]]]), (2, 1)).numpy().ravel().tolist()
    [1.0, 3.0]
    """
    x = as_tensor(inp)
    param = P.WarpAffine(
        imode=member(P.InterpolationMode, interp_mode, "interp_mode"),
        border_mode=member(P.BorderMode, border_mode, "border_mode"),
        border_val=float(border_val),
        format=member(P.Format, format, "format"),
    )
    inputs = [x, as_tensor(mat), _out_shape(out_shape, "out_shape")]
    return apply1("WarpAffineV2", param, inputs=inputs)


def warp_perspective(
    inp: TensorLike,
    mat: TensorLike,
    out_shape: ShapeLike,
    mat_idx: ShapeLike | None = None,
    border_mode: str = "replicate",
    border_val: float = 0.0,
    format: str = "NCHW",
    interp_mode: str = "linear",
) -> Tensor:
    """Return images through 3x3 matrices that map positions of the output to the input.

    Args:
        inp: (N, C, H, W), or (N, H, W, C) with `format`; float or 8-bit integers, float16 becomes float32.
        mat: (M, 3, 3) float32: the inverse of what OpenCV's warpPerspective takes.
        out_shape: (OH, OW), numbers or an int32 tensor.
        mat_idx: (M,): which image each matrix is for; without it M is N.
        border_mode: "replicate", "constant", "reflect", "reflect_101" or "wrap".
        border_val: the value outside for "constant".
        format: "NCHW" or "NHWC".
        interp_mode: what MegEngine's CPU kernel has, "linear".

    Raises:
        TypeError: `out_shape` is one number.

    >>> import numpy as np
    >>> x, move = np.arange(16, dtype="f").reshape(1, 1, 4, 4), np.float32([[[1, 0, 1], [0, 1, 1], [0, 0, 1]]])
    >>> warp_perspective(x, move, (2, 2)).tolist()
    [[[[5.0, 6.0], [9.0, 10.0]]]]
    """
    inp, mat = as_tensor(inp), as_tensor(mat)
    if inp.dtype in (np.float16, np.float32):
        inp, mat = inp.astype("float32"), mat.astype("float32")
    param = P.WarpPerspective(
        imode=member(P.InterpolationMode, interp_mode, "interp_mode"),
        bmode=member(P.BorderMode, border_mode, "border_mode"),
        format=member(P.Format, format, "format"),
        border_val=float(border_val),
    )
    indices = [] if mat_idx is None else [shape_tensor(mat_idx)]
    inputs = [inp, mat, *indices, _out_shape(out_shape, "out_shape")]
    return apply1("WarpPerspectiveV2", param, inputs=inputs)


def interpolate(
    inp: TensorLike,
    size: ShapeLike | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "bilinear",
    align_corners: bool | None = None,
) -> Tensor:
    """Return tensors of another size.

    Args:
        inp: (N, C, L) for "linear", (N, C, D, H, W) for "trilinear", else (N, C, H, W); float16 becomes float32.
        size: the new size: one number for "linear", (D, H, W) for "trilinear", else (H, W). One number alone
            means a size of 1 along the other axes, as in MegEngine.
        scale_factor: instead of it, what to multiply the old size by, one number or one per axis.
        mode: "bilinear", "linear", "trilinear", "bicubic" or "nearest".
        align_corners: for the linear modes, whether the outermost elements keep their places; by default not.

    Raises:
        AssertionError: the input or the scale factors have another number of axes.
        ValueError: there is no such mode, or it does not take `align_corners`; neither or both of `size` and
            `scale_factor`; more than one number for "linear".

    >>> import numpy as np
    >>> x = np.arange(1, 5, dtype="f").reshape(1, 1, 2, 2)
    >>> interpolate(x, [4, 4]).numpy()[0, 0, 0].tolist()
    [1.0, 1.25, 1.75, 2.0]
    """
    mode = mode.lower()
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}; found {mode!r}")
    if mode in ("bicubic", "nearest") and align_corners is not None:
        raise ValueError(f"align_corners is for the linear modes, found it with {mode!r}")
    inp = as_tensor(inp)
    if mode == "linear":
        inp = expand_dims(inp, 3)
    want = 5 if mode == "trilinear" else 4
    require(inp.ndim == want, f"mode {mode!r} takes {want - (mode == 'linear')} dimensions, found {inp.ndim}")
    target = _target_size(inp, size, scale_factor, mode)
    if mode == "trilinear":
        param = P.Resize3D(format=P.Convolution3DFormat.NCDHW, align_corners=bool(align_corners))
        return apply1("Resize3D", param, inputs=[_single(inp), shape_tensor(target)])
    if align_corners:
        y = _corners(inp, target, mode)
    else:
        kind = {"nearest": P.InterpolationMode.NEAREST, "bicubic": P.InterpolationMode.CUBIC}
        resize = P.Resize(imode=kind.get(mode, P.InterpolationMode.LINEAR), format=P.Format.NCHW)
        y = apply1("ResizeV2", resize, inputs=[_single(inp), shape_tensor(target)])
    return reshape(y, y.shape[:3]) if mode == "linear" else y


def _single(x: Tensor) -> Tensor:
    """Return the tensor in float32 where it is float16."""
    return x.astype("float32") if x.dtype == np.float16 else x


def _target_size(
    inp: Tensor, size: ShapeLike | None, scale_factor: float | Sequence[float] | None, mode: str
) -> Tensor | Array | Sequence[int | Tensor]:
    """Return the new size that the arguments of `interpolate` mean."""
    if size is None:
        if scale_factor is None:
            raise ValueError("scale_factor must be given where size is not")
        return _scaled(inp, scale_factor, mode)
    if scale_factor is not None:
        raise ValueError("scale_factor must not be given beside size")
    if isinstance(size, (int, np.integer)):
        return (size, 1, 1) if mode == "trilinear" else (size, 1)
    if mode == "linear":
        raise ValueError(f"mode 'linear' takes one number as size, found {size!r}")
    return size


def _scaled(inp: Tensor, scale_factor: float | Sequence[float], mode: str) -> list[int | Tensor]:
    """Return the sizes of the last axes times the factors, rounded down."""
    count = 3 if mode == "trilinear" else 2
    if isinstance(scale_factor, (int, float)):
        factors = (scale_factor, 1.0) if mode == "linear" else (scale_factor,) * count
    elif mode == "linear":
        raise ValueError(f"mode 'linear' takes one number as scale_factor, found {scale_factor!r}")
    else:
        factors = tuple(scale_factor)
    require(len(factors) == count, f"mode {mode!r} takes {count} scale factors, found {len(factors)}")
    require(
        all(isinstance(f, (int, float)) for f in factors), f"scale factors must be numbers, found {factors}"
    )
    return [_times(n, float(f)) for n, f in zip(inp.shape[2:], factors, strict=True)]


def _times(size: int, factor: float) -> int | Tensor:
    """Return a size times a factor, rounded down as float32; a traced size stays one."""
    if factor.is_integer():
        return size * int(factor)
    if type(size) is int:
        return math.floor(np.float32(size * factor))
    return floor(as_tensor(size).astype("float32") * factor).astype("int32")


def _corners(inp: Tensor, target: Tensor | Array | Sequence[int | Tensor], mode: str) -> Tensor:
    """Resize bilinearly and keep the corners: a warp, as MegEngine records it."""
    n, _, ih, iw = inp.shape
    oh, ow = target[0], target[1]

    def number(value: TensorLike) -> Tensor:
        return as_vector(as_tensor(value).astype("float32"))

    rows = (number(ih) - 1.0) / (number(oh) - 1.0)
    columns = number(iw) / number(ow) if mode == "linear" else (number(iw) - 1.0) / (number(ow) - 1.0)
    zero = np.zeros(1, np.float32)
    first = concat([columns, np.zeros(2, np.float32)]).reshape(1, 3)
    second = concat([zero, rows, zero]).reshape(1, 3)
    matrix = concat([first, second, np.array([[0, 0, 1]], np.float32)])
    return warp_perspective(inp, broadcast_to(matrix.reshape(1, 3, 3), (n, 3, 3)), target)


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
