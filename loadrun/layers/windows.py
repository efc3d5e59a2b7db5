"""Cutting tensors into windows and putting them together, padding, pixel shuffle, lookup, one-hot, dropout."""

from __future__ import annotations

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
from .geometry import Sizes, pair, require, sizes

with late(__name__):
    from ..tensors import products
    from . import random

__all__ = [
    "dropout",
    "embedding",
    "indexing_one_hot",
    "linear",
    "one_hot",
    "pad",
    "pixel_shuffle",
    "sliding_window",
    "sliding_window_transpose",
]


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
    return plus(products.matmul(inp, weight, transpose_b=True, compute_mode=compute_mode), bias)


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
