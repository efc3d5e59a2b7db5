"""Pooling over windows; cutting tensors into windows and putting them together; padding, lookup, one-hot, dropout."""

from collections.abc import Sequence

import numpy as np

from ..base.errors import EngineError
from ..base.registry import late
from ..graph import params as P
from ..graph.dtypes import Array
from ..tensors import Tensor, TensorLike, apply, apply1, as_tensor, const, shape_tensor
from ..tensors.access import as_vector, is_scalar
from ..tensors.shaping import squeeze, transpose
from .conv import plus, window
from .geometry import Mode, Sizes, member, pair, require, sizes

with late(__name__):
    from ..tensors import reducing
    from . import random


__all__ = ["adaptive_avg_pool2d", "adaptive_max_pool2d", "avg_pool2d", "deformable_psroi_pooling", "dropout"]
__all__ += ["embedding", "indexing_one_hot", "linear", "max_pool2d", "one_hot", "pad", "pixel_shuffle"]
__all__ += ["sliding_window", "sliding_window_transpose"]


def linear(
    inp: TensorLike, weight: TensorLike, bias: TensorLike | None = None, compute_mode: str = "default"
) -> Tensor:
    """Compute ``inp @ weight.T + bias``.

    Args:
        inp: (..., in_features), at least one axis.
        weight: (out_features, in_features).
        bias: (out_features,).
        compute_mode: "float32" sums float16 products in float32.

    Raises:
        RuntimeError: the shapes do not fit together.

    >>> linear(Tensor([[1.0, 2.0]]), Tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), Tensor([0.5, 0.5, 0])).tolist()
    [[1.5, 2.5, 3.0]]
    """
    return plus(reducing.matmul(inp, weight, transpose_b=True, compute_mode=compute_mode), bias)


def dropout(inp: TensorLike, drop_prob: float, training: bool = True) -> Tensor:
    """Set elements to zero at random and scale the rest to keep the mean; in inference give the input.

    Args:
        inp: a float tensor.
        drop_prob: probability of a zero, at least 0 and less than 1.
        training: whether to do anything.

    Raises:
        AssertionError: `drop_prob` is not such a probability.

    >>> dropout([1.0, 2.0], 0.5, training=False).tolist()
    [1.0, 2.0]
    """
    require(0 <= drop_prob < 1, f"drop_prob must be at least 0 and less than 1, found {drop_prob}")
    if not training or drop_prob == 0:
        return as_tensor(inp)

    inp = as_tensor(inp)
    param = P.Dropout(drop_prob=float(drop_prob), seed=random.seed_of_operator())
    return apply("Dropout", param, inputs=[inp], n=2, scalar=is_scalar(inp))[0]


def one_hot(inp: TensorLike, num_classes: int) -> Tensor:
    """Return 1 at the position that each number names, 0 elsewhere.

    Args:
        inp: int32 tensor of numbers from 0 to `num_classes` - 1.
        num_classes: size of the new last axis.

    Returns:
        int32 (..., num_classes).

    Raises:
        RuntimeError: the input is not int32, or a number is out of range.

    >>> one_hot([1, 3], 4).tolist()
    [[0, 1, 0, 0], [0, 0, 0, 1]]
    """
    inp = as_tensor(inp)
    if inp.dtype != np.int32:
        raise EngineError(f"one_hot takes int32 numbers, found {inp.dtype}")
    whole = (*inp.shape, num_classes)
    zeros, ones = (
        apply1("Broadcast", inputs=[const(np.array([v], inp.dtype)), shape_tensor(shape)], scalar=False)
        for v, shape in ((0, whole), (1, (*inp.shape, 1)))
    )
    if is_scalar(inp):
        zeros, ones = zeros.reshape(1, num_classes), ones.reshape(1, 1)
    param = P.Axis(axis=max(inp.ndim, 1))
    y = apply1("IndexingSetOneHot", param, inputs=[zeros, as_vector(inp), ones], scalar=False)
    return y.reshape(num_classes) if is_scalar(inp) else y


def embedding(
    inp: TensorLike,
    weight: TensorLike,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float | None = None,
) -> Tensor:
    """Return the rows of a table that each number names.

    Args:
        inp: int32 tensor of row numbers.
        weight: (rows, columns).
        padding_idx: must be None, as in MegEngine.
        max_norm: must be None, as in MegEngine.
        norm_type: must be None, as in MegEngine.

    Returns:
        (..., columns).

    Raises:
        RuntimeError: the numbers are not int32, or out of range.
        ValueError: an argument that must be None is given.

    >>> embedding([[2, 0]], [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]).tolist()
    [[[4.0, 5.0], [0.0, 1.0]]]
    """
    if padding_idx is not None:
        raise ValueError(f"padding_idx is not supported, as in MegEngine; found {padding_idx}")
    if max_norm is not None or norm_type is not None:
        raise ValueError(
            f"weight normalization is not supported, as in MegEngine; found {max_norm}, {norm_type}"
        )
    inp, weight = as_tensor(inp), as_tensor(weight)
    if inp.dtype != np.int32:
        raise EngineError(f"embedding takes int32 numbers, found {inp.dtype}")
    shape = (*inp.shape, weight.shape[-1])
    return weight[inp.reshape(-1)].reshape(shape)


def indexing_one_hot(src: Tensor, index: TensorLike, axis: int = 1, keepdims: bool = False) -> Tensor:
    """Return one element along an axis, picked by number at every position of the other axes.

    Args:
        src: the tensor.
        index: integers, of the shape of `src` without `axis`.
        axis: the axis; may be negative.
        keepdims: keep it, with size 1.

    Raises:
        AssertionError: `src` is not a Tensor.
        RuntimeError: the shapes do not fit together, or a number is out of range.

    >>> indexing_one_hot(Tensor([[1.0, 2.0], [3.0, 4.0]]), [1, 0]).tolist()
    [2.0, 3.0]
    """
    require(isinstance(src, Tensor), f"src must be a Tensor, found {type(src).__name__}")
    index = as_tensor(index).astype("int32")
    where = axis + src.ndim if axis < 0 else axis
    y = apply1("IndexingOneHot", P.Axis(axis=where), inputs=[src, as_vector(index)], scalar=False)
    return y if keepdims else squeeze(y, where)


def sliding_window(
    inp: TensorLike, kernel_size: Sizes, padding: Sizes = 0, stride: Sizes = 1, dilation: Sizes = 1
) -> Tensor:
    """Return all windows of the images.

    Args:
        inp: (N, C, H, W).
        kernel_size: size of the windows, one number or (height, width).
        padding: zeros on both sides of each axis.
        stride: distance between windows.
        dilation: distance between the elements of a window.

    Returns:
        (N, C, OH, OW, KH, KW).

    >>> import numpy as np
    >>> sliding_window(np.arange(4, dtype="f").reshape(1, 1, 1, 4), (1, 2), stride=2).numpy().ravel().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    h, w = pair(kernel_size, "kernel_size")
    param = P.Images2Neibs(**window(stride, padding, dilation), window_h=h, window_w=w)
    return apply1("Images2Neibs", param, inputs=[as_tensor(inp)])


def sliding_window_transpose(
    inp: TensorLike,
    output_size: Sizes,
    kernel_size: Sizes,
    padding: Sizes = 0,
    stride: Sizes = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Return windows put back onto an image and added up: the adjoint of `sliding_window`.

    Args:
        inp: (N, C, OH, OW, KH, KW).
        output_size: (H, W) of the image, or one number.
        kernel_size: size of the windows, one number or (height, width).
        padding: what was added on both sides of each axis.
        stride: distance between windows.
        dilation: distance between the elements of a window.

    Raises:
        AssertionError: the windows are not those of an image of `output_size`.

    >>> import numpy as np
    >>> sliding_window_transpose(np.ones((1, 1, 1, 3, 1, 2), "f"), (1, 4), (1, 2)).tolist()
    [[[[1.0, 2.0, 2.0, 1.0]]]]
    """
    inp = as_tensor(inp)
    require(inp.ndim == 6, f"sliding_window_transpose takes 6 dimensions, found {inp.ndim}")
    size, kernel = pair(output_size, "output_size"), pair(kernel_size, "kernel_size")
    steps = window(stride, padding, dilation)
    for axis, end in enumerate("hw"):
        span = size[axis] + 2 * steps[f"pad_{end}"] - steps[f"dilate_{end}"] * (kernel[axis] - 1) - 1
        want = span // steps[f"stride_{end}"] + 1
        count = int(inp.shape[2 + axis])
        require(count == want, f"an image of {size} has {want} windows along axis {2 + axis}, found {count}")
    param = P.SlidingWindowTranspose(
        out_h=size[0], out_w=size[1], window_h=kernel[0], window_w=kernel[1], **steps
    )
    return apply1("SlidingWindowTranspose", param, inputs=[inp])


def pad(
    src: TensorLike, pad_width: Sequence[Sizes] | Array, mode: str = "constant", constant_value: float = 0.0
) -> Tensor:
    """Return elements added at the ends of axes.

    Args:
        src: the tensor.
        pad_width: for each of the first axes how many to add before and after.
        mode: "constant", "edge" (or "replicate"), "reflect" (the outermost element is not repeated); in any case.
        constant_value: what "constant" adds.

    Raises:
        AssertionError: there is no such mode.
        RuntimeError: a width is negative, or more than "reflect" can mirror.

    >>> pad([[1.0, 2.0]], ((0, 1), (1, 1)), constant_value=9).tolist()
    [[9.0, 1.0, 2.0, 9.0], [9.0, 9.0, 9.0, 9.0]]
    """
    modes = {
        "constant": P.PaddingMode.CONSTANT,
        "edge": P.PaddingMode.REPLICATE,
        "replicate": P.PaddingMode.REPLICATE,
        "reflect": P.PaddingMode.REFLECT,
    }
    name = str(mode).lower()
    require(name in modes, f"mode must be one of {', '.join(modes)}; found {mode!r}")
    src = as_tensor(src)
    if len(pad_width) > src.ndim:
        raise EngineError(f"pad_width names {len(pad_width)} axes of an input of {src.ndim} dimensions")
    offsets: dict[str, int] = {}
    for i, widths in enumerate(pad_width):
        offsets[f"front_offset_dim{i}"], offsets[f"back_offset_dim{i}"] = sizes(widths, 2, "pad_width")
    param = P.Padding(**offsets, padding_val=float(constant_value), padding_mode=modes[name])
    return apply1("Padding", param, inputs=[src], scalar=False)


def pixel_shuffle(inp: TensorLike, upscale_factor: int) -> Tensor:
    """Return blocks of channels spread over height and width.

    Args:
        inp: (..., C * r * r, H, W) with r = `upscale_factor`.
        upscale_factor: positive.

    Returns:
        (..., C, H * r, W * r).

    Raises:
        RuntimeError: fewer than 3 axes, or channels that cannot be divided.

    >>> import numpy as np
    >>> pixel_shuffle(np.arange(4, dtype="f").reshape(4, 1, 1), 2).tolist()
    [[[0.0, 1.0], [2.0, 3.0]]]
    """
    inp = as_tensor(inp)
    r = int(upscale_factor)
    if r <= 0:
        raise EngineError(f"upscale_factor must be greater than 0, found {r}")
    if inp.ndim < 3:
        raise EngineError(f"pixel_shuffle takes at least 3 dimensions, found {inp.ndim}")
    *high, c, h, w = inp.shape
    if c % (r * r):
        raise EngineError(f"the {int(c)} channels cannot be divided by upscale_factor ** 2 = {r * r}")
    n = 1
    for size in high:
        n = size * n
    parts = inp.reshape((n, c // (r * r), r, r, h, w))
    return transpose(parts, (0, 1, 4, 2, 5, 3)).reshape((*high, c // (r * r), h * r, w * r))


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
