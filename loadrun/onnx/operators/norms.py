"""Normalizations."""

from collections.abc import Sequence

from ...arrays.names import kernel, np
from ...graph.composite import Flag, NodeTypes
from ...graph.dtypes import Array
from ...ops.norm import normalize_rows
from . import operator
from .common import axis_of, like_first, refuse_unless

__all__ = ["grouped", "layer_normalized", "root_mean_square"]

CONTRIB = "com.microsoft"


def _channels(v: Array, ndim: int) -> Array:
    """Return numbers of channels, which broadcast with (N, C, ...)."""
    return v.reshape(-1, *(1,) * (ndim - 2)) if ndim > 1 else v


# Over the batch


def _channel_shapes(x: Array, scale: Array, *others: Array, **attributes: object) -> list[tuple[int, ...]]:
    return [x.shape, *(scale.shape,) * 4]


@operator("BatchNormalization", since=14, out=(0, 3, 4), shape=_channel_shapes)
def batch_norm(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: Flag = 0,
    types: NodeTypes,
) -> Array | tuple[Array, ...]:
    """Normalize every channel by statistics that are given, or by those of the batch."""
    if training_mode:
        return _trained(x, scale, bias, mean, variance, epsilon, momentum)[:3]
    if any(types.wanted[1:]):
        raise ValueError("it has running statistics as outputs without training_mode")
    parts = (_channels(v, x.ndim) for v in (scale, bias, mean, variance))
    return by_statistics(x, *parts, epsilon=epsilon)


@kernel
def by_statistics(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *, epsilon: float
) -> Array:
    return (x - mean) * (scale / np.sqrt(variance + epsilon)) + bias


def _trained(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float, momentum: float
) -> tuple[Array, ...]:
    """Normalize by the statistics of the batch; return the running ones and those of the batch too."""
    axes = tuple(i for i in range(x.ndim) if i != 1)
    now, spread = x.mean(axes), x.var(axes)
    y = by_statistics(x, *(_channels(v, x.ndim) for v in (scale, bias, now, spread)), epsilon=epsilon)
    running = (old * momentum + new * (1 - momentum) for old, new in ((mean, now), (variance, spread)))
    # What versions before 14 save for gradients, as ONNX Runtime does.
    return y, *running, now, np.reciprocal(np.sqrt(spread + epsilon))


@operator("BatchNormalization", out=(0, 3, 4, 3), shape=_channel_shapes)
def batch_norm_1(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    *,
    epsilon: float = 1e-5,
    is_test: Flag = 0,
    momentum: float = 0.9,
    spatial: Flag = 1,
    types: NodeTypes,
) -> Array | tuple[Array, ...]:
    """Normalize every channel; a node says that it is training by asking for the statistics."""
    if any(types.wanted[1:]):
        if not spatial:
            raise ValueError("it trains statistics of every place, not of channels")
        return _trained(x, scale, bias, mean, variance, epsilon, momentum)
    parts = (_channels(v, x.ndim) if spatial else v for v in (scale, bias, mean, variance))
    return by_statistics(x, *parts, epsilon=epsilon)


# Over groups of channels


@kernel
def grouped(x: Array, groups: int, scale: Array, bias: Array, epsilon: float) -> Array:
    """Normalize groups of channels of every sample, then scale and shift each channel.

    Raises:
        ValueError: the channels do not divide into so many groups.
    """
    if groups < 1 or x.shape[1] % groups:
        raise ValueError(f"{x.shape[1]} channels in {groups} groups")
    rows = x.reshape(x.shape[0], groups, -1)
    centred = rows - rows.mean(2, keepdims=True)
    y = centred / np.sqrt((centred * centred).mean(2, keepdims=True) + epsilon)
    return y.reshape(x.shape) * _channels(scale, x.ndim) + _channels(bias, x.ndim)


@operator("InstanceNormalization", shape=like_first)
def instance_norm(x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5) -> Array:
    """Normalize every channel of every sample."""
    return grouped(x, max(x.shape[1], 1), scale, bias, epsilon)


@operator("GroupNormalization", since=21, shape=like_first)
def group_norm(
    x: Array, scale: Array, bias: Array, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Array:
    """Normalize groups of channels; scale and bias have a number for each channel."""
    return grouped(x, num_groups, scale, bias, epsilon)


@operator("GroupNormalization", since=18, shape=like_first)
def group_norm_18(x: Array, scale: Array, bias: Array, *, num_groups: int, epsilon: float = 1e-5) -> Array:
    """Normalize groups of channels; scale and bias have a number for each group."""
    each = x.shape[1] // max(num_groups, 1)
    return grouped(x, num_groups, np.repeat(scale, each), np.repeat(bias, each), epsilon)


# Over the last axes


def _with_statistics(
    x: Array, *others: Array | None, axis: int = -1, **attributes: object
) -> list[tuple[int, ...]]:
    axis = axis_of(axis, x.ndim)
    statistics = (*x.shape[:axis], *(1,) * (x.ndim - axis))
    return [x.shape, statistics, statistics]


def _in_rows(x: Array, scale: Array, bias: Array | None, axes: Sequence[int]) -> bool:
    """Return whether MegEngine's kernel normalizes that: the last axes of float32."""
    arrays = [a for a in (x, scale, bias) if a is not None]
    return (
        all(type(a) is np.ndarray and a.dtype == np.float32 for a in arrays)
        and x.size > 0
        and list(axes) == list(range(axes[0], x.ndim))
        and all(a.shape == x.shape[axes[0] :] for a in arrays[1:])
    )


@kernel
def layer_normalized(
    x: Array, scale: Array, bias: Array | None, axes: Sequence[int], epsilon: float
) -> tuple[Array, Array, Array]:
    """Normalize over axes; return mean and 1 / deviation too."""
    if _in_rows(x, scale, bias, axes):
        rows = x.reshape(-1, scale.size)
        y = np.empty(rows.shape, np.float32)
        middle, inverse = np.empty((2, *x.shape[: axes[0]], *[1] * len(axes)), np.float32)
        affine = [a.reshape(-1) for a in (scale, np.zeros_like(scale) if bias is None else bias)]
        normalize_rows(rows, y, middle.reshape(-1), inverse.reshape(-1), epsilon, affine)
        return y.reshape(x.shape), middle, inverse
    middle = x.mean(tuple(axes), keepdims=True)
    centred = x - middle
    inverse = np.reciprocal(np.sqrt((centred * centred).mean(tuple(axes), keepdims=True) + epsilon))
    y = centred * inverse * scale
    return y if bias is None else y + bias, middle, inverse


@kernel
def root_mean_square(x: Array, scale: Array, axes: Sequence[int], epsilon: float) -> tuple[Array, Array]:
    """Divide by the root of the mean square over axes; return 1 / root too."""
    inverse = np.reciprocal(np.sqrt((x * x).mean(tuple(axes), keepdims=True) + epsilon))
    return x * inverse * scale, inverse


@operator("LayerNormalization", out=(1, "Float32"), shape=_with_statistics)
def layer_norm(
    x: Array,
    scale: Array,
    bias: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Array, Array, Array]:
    """Normalize over the axes from one on; return mean and 1 / deviation too."""
    return layer_normalized(x, scale, bias, range(axis_of(axis, x.ndim), x.ndim), epsilon)


@operator("RMSNormalization", since=23, out=(1,), shape=like_first)
def rms_norm(x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Array:
    """Divide by the root of the mean square over the axes from one on."""
    return root_mean_square(x, scale, range(axis_of(axis, x.ndim), x.ndim), epsilon)[0]


def simplified(
    x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Array, Array]:
    """Divide by the root of the mean square; return 1 / root too."""
    return root_mean_square(x, scale, range(axis_of(axis, x.ndim), x.ndim), epsilon)


operator("SimplifiedLayerNormalization", out=(1, "Float32"), shape=_with_statistics)(simplified)
operator("SimplifiedLayerNormalization", domain=CONTRIB, out=(1, "Float32"), shape=_with_statistics)(
    simplified
)


def _with_sum(x: Array, *others: Array | None, **attributes: object) -> list[tuple[int, ...]]:
    return [*_with_statistics(x), x.shape]


def _total(x: Array, skip: Array, bias: Array | None) -> Array:
    total = x + skip
    if total.shape != x.shape:
        raise ValueError(f"its skip is {list(skip.shape)}, which does not fit {list(x.shape)}")
    return total if bias is None else total + bias


@operator("SkipLayerNormalization", domain=CONTRIB, out=(0, "Float32", "Float32", 0), shape=_with_sum)
def skip_layer_norm(
    x: Array,
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Array, ...]:
    """Normalize a sum over the last axis; return mean, 1 / deviation and the sum too."""
    total = _total(x, skip, bias)
    return *layer_normalized(total, gamma, beta, (x.ndim - 1,), epsilon), total


@operator(
    "SkipSimplifiedLayerNormalization", domain=CONTRIB, out=(0, "Float32", "Float32", 0), shape=_with_sum
)
def skip_simplified(
    x: Array,
    skip: Array,
    gamma: Array,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
    types: NodeTypes,
) -> tuple[Array, ...]:
    """Divide a sum by the root of its mean square over the last axis; return 1 / root and the sum too."""
    if types.wanted[1:2] == (True,):
        raise ValueError("it has a mean as output, of which nothing is subtracted")
    total = _total(x, skip, bias)
    y, inverse = root_mean_square(total, gamma, (x.ndim - 1,), epsilon)
    return y, inverse, inverse, total


@operator("LpNormalization", shape=like_first)
def lp_norm(x: Array, *, axis: int = -1, p: int = 2) -> Array:
    """Divide by the 1-norm or 2-norm along an axis; zeros stay."""
    refuse_unless(p in (1, 2), f"its p is {p}, expected 1 or 2")
    size = np.abs(x) if p == 1 else x * x
    size = size.sum(axis_of(axis, x.ndim), keepdims=True)
    size = size if p == 1 else np.sqrt(size)
    return x / np.where(size == 0, 1, size)


# Others


@operator("MeanVarianceNormalization", since=9, shape=like_first)
def mean_variance(x: Array, *, axes: Sequence[int] = (0, 2, 3)) -> Array:
    """Subtract the mean over axes, divide by the deviation."""
    centred = x - x.mean(tuple(axes), keepdims=True)
    return centred / (np.sqrt((centred * centred).mean(tuple(axes), keepdims=True)) + 1e-9)


@operator("MeanVarianceNormalization", shape=like_first)
def mean_variance_1(x: Array, *, across_channels: Flag = 0, normalize_variance: Flag = 1) -> Array:
    """Normalize as ONNX Runtime did before ONNX had this operator."""
    axes = [i for i in range(min(x.ndim, 4)) if i != 1 or across_channels]
    return mean_variance(x, axes=axes) if normalize_variance else x - x.mean(tuple(axes), keepdims=True)


@operator("LRN", shape=like_first)
def lrn(x: Array, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Array:
    """Divide by a power of the squares of so many channels around each."""
    before, count = (size - 1) // 2, x.shape[1]
    squares = np.pad(x * x, [(0, 0), (before, size - 1 - before), *((0, 0),) * (x.ndim - 2)])
    total = squares[:, :count]
    for k in range(1, size):
        total = total + squares[:, k : k + count]
    return x / (bias + alpha / size * total) ** beta
