"""Gradients of normalizations: of what deviates from the mean, in units of the deviation."""

from __future__ import annotations

import numpy as np

from ...graph import Opr
from ...graph import params as P
from ...graph.dtypes import Array
from ..registry import Call
from .common import gradient

__all__: list[str] = []

_RESULTS = {0: 0, -2: 1, -1: 2}


def _like(opr: Opr) -> tuple[int, ...]:
    """Report that gradients by data, weight and bias come where there is a weight."""
    return (1, 2, 2) if len(opr.inputs) == 5 else (1,)


def _backward(
    x: Array, diff: Array, weight: Array | np.float32, mean: Array, rstd: Array, axes: tuple[int, ...]
) -> tuple[Array, Array]:
    """Give the gradient by data, and the addends of that by the weight; everything broadcasts to the data.

    With ``y = (x - mean) * rstd``, mean and rstd over the axes, the data's gradient is
    ``rstd * (g - mean(g) - y * mean(g * y))`` for the gradient g of y.
    """
    y = (x - mean) * rstd
    g = diff * weight
    out = g - g.mean(axes, keepdims=True)
    out -= y * (g * y).mean(axes, keepdims=True)
    out *= rstd
    y *= diff
    return out, y


def _rows(
    diff: Array, x: Array, weight: tuple[Array, ...], mean: Array, rstd: Array, start: int, end: int
) -> Array | tuple[Array, ...]:
    """Handle a normalization over neighbouring axes, whose weight has one element for each of theirs."""
    outer, width = int(np.prod(x.shape[:start])), int(np.prod(x.shape[start:end]))
    shape = outer, width, -1
    if not x.size:
        return (np.zeros(x.shape, np.float32), *(np.zeros(w.shape, np.float32) for w in weight * 2))
    mean, rstd = mean.reshape(outer, 1, -1), rstd.reshape(outer, 1, -1)
    scale = weight[0].reshape(1, width, 1) if weight else np.float32(1)
    by_x, terms = _backward(x.reshape(shape), diff.reshape(shape), scale, mean, rstd, (1,))
    if not weight:
        return by_x.reshape(x.shape)
    sums = (a.sum((0, 2)).reshape(weight[0].shape) for a in (terms, diff.reshape(shape)))
    return (by_x.reshape(x.shape), *sums)


@gradient("LayerNormBackward", _like, of="LayerNorm", by=_like, results=_RESULTS)
def layer_norm_backward(c: Call, diff: Array, x: Array, *rest: Array) -> Array | tuple[Array, ...]:
    """Give the gradients by data and, where there is a weight, by weight and bias."""
    *weight, mean, rstd = rest
    return _rows(diff, x, tuple(weight), mean, rstd, x.ndim - c.get(P.LayerNorm).normalized_dim, x.ndim)


@gradient("GeneralNormBackward", _like, of="GeneralNorm", by=_like, results=_RESULTS)
def general_norm_backward(c: Call, diff: Array, x: Array, *rest: Array) -> Array | tuple[Array, ...]:
    """Give the gradients by data and, where there is a weight, by weight and bias."""
    *weight, mean, rstd = rest
    p = c.get(P.GeneralNorm)
    return _rows(diff, x, tuple(weight), mean, rstd, p.axis_start, p.axis_end)


@gradient("GroupNormBackward", _like, of="GroupNorm", by=_like, results=_RESULTS)
@gradient("InstanceNormBackward", _like, of="InstanceNorm", by=_like, results=_RESULTS)
def group_norm_backward(c: Call, diff: Array, x: Array, *rest: Array) -> Array | tuple[Array, ...]:
    """Give the gradients by data and by weight and bias of [channels]; `rest` ends with mean and variance."""
    *weight, mean, variance = rest
    p = c.get(P.GroupNorm)
    n, channels = x.shape[:2]
    groups = mean.shape[1]
    if not x.size:
        return (np.zeros(x.shape, np.float32), *(np.zeros(w.shape, np.float32) for w in weight * 2))
    shape = n, groups, channels // groups, -1
    rstd = 1 / np.sqrt(variance + np.float32(p.eps))
    scale = weight[0].reshape(1, groups, -1, 1) if weight else np.float32(1)
    moment = n, groups, 1, 1
    by_x, terms = _backward(
        x.reshape(shape), diff.reshape(shape), scale, mean.reshape(moment), rstd.reshape(moment), (2, 3)
    )
    if not weight:
        return by_x.reshape(x.shape)
    sums = (a.sum((0, 3)).reshape(channels) for a in (terms, diff.reshape(shape)))
    return (by_x.reshape(x.shape), *sums)


@gradient("BatchNormBackwardV1", (4, 4, 0), mixed=True)
def batch_norm_backward(
    c: Call, x: Array, diff: Array, mean: Array, rstd: Array, scale: Array, reserve: Array
) -> tuple[Array, Array, Array]:
    """Give the gradients by scale, bias and data, for the statistics of the batch."""
    axes = tuple(i for i, n in enumerate(scale.shape) if n == 1)
    if diff.shape != x.shape or scale.ndim != x.ndim or not mean.shape == rstd.shape == scale.shape:
        raise ValueError(
            f"data {list(x.shape)}, gradient {list(diff.shape)}, statistics {list(mean.shape)} and "
            f"{list(rstd.shape)} and scale {list(scale.shape)} do not belong together"
        )
    by_x, terms = _backward(x, diff, scale, mean, rstd, axes)
    return terms.sum(axes, keepdims=True), diff.sum(axes, keepdims=True), by_x


@gradient("LRNBackward", (0,), of="LRN", results={1: 0, 2: 0})
def lrn_backward(c: Call, x: Array, y: Array, diff: Array) -> Array:
    """Give ``diff * t^-beta - 2 alpha beta x * sum(diff * x * t^(-beta - 1))``, summed over the same channels."""
    p = c.get(P.LRN)
    half, channels = min(p.n // 2, x.shape[1]), x.shape[1]
    beta = np.float32(p.beta)

    def around(a: Array) -> Array:
        """Sum over the channels around each one."""
        total = np.zeros((len(a), channels + 1, *a.shape[2:]), np.float64)
        np.cumsum(a, 1, np.float64, total[:, 1:])
        at = np.arange(channels)
        high, low = np.minimum(at + half + 1, channels), np.maximum(at - half, 0)
        return (total[:, high] - total[:, low]).astype(np.float32)

    t = np.float32(p.k) + np.float32(p.alpha) * around(x * x)
    main = diff * t**-beta
    return main - 2 * np.float32(p.alpha) * beta * x * around(main / t * x)
