"""Softmax and normalizations: deviations from the mean, divided by their root mean square."""

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ..registry import Call


def softmax(c: Call, x: Array) -> Array | None:
    """Normalize exponentials along an axis."""
    return softmax_of(x, c.get(P.Softmax).axis) if x.size else None


def softmax_of(x: Array, axis: int) -> Array:
    """Compute ``exp(x) / sum(exp(x))`` along an axis.

    >>> softmax_of(np.log([1.0, 3.0]), 0).round(12).tolist()
    [0.25, 0.75]
    """
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _f32(x: float) -> float:
    """Round a parameter to float32, as the file stores it."""
    return float(np.float32(x))


def _normalized(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    """Give ``(x - mean) / sqrt(variance + eps)``, mean and variance, which keep the axes with size 1."""
    mean = x.mean(axes, keepdims=True)
    variance = np.square(x - mean).mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps), mean, variance


def layer_norm(c: Call, x: Array, *affine: Array) -> tuple[Array, Array, Array] | None:
    """Normalize over the last axes."""
    p = c.get(P.LayerNorm)
    return _over(x, x.ndim - p.normalized_dim, x.ndim, _f32(p.eps), affine if p.affine else ())


def general_norm(c: Call, x: Array, *affine: Array) -> tuple[Array, Array, Array] | None:
    """Normalize over the axes from `axis_start` to `axis_end`."""
    p = c.get(P.GeneralNorm)
    return _over(x, p.axis_start, p.axis_end, _f32(p.eps), affine if p.affine else ())


def _over(
    x: Array, start: int, end: int, eps: float, affine: tuple[Array, ...]
) -> tuple[Array, Array, Array] | None:
    """Normalize over neighbouring axes; mean and inverse deviation come without them."""
    if not x.size:
        return None
    y, mean, variance = _normalized(x, tuple(range(start, end)), eps)
    rest = (*x.shape[:start], *x.shape[end:]) or (1,)
    if affine:
        weight, bias = (a.reshape(*a.shape, *(1,) * (x.ndim - end)) for a in affine)
        y = y * weight + bias
    return y, mean.reshape(rest), (1 / np.sqrt(variance + eps)).reshape(rest)


def group_norm(c: Call, x: Array, *affine: Array) -> tuple[Array, Array, Array] | None:
    """Normalize groups of channels of NCHW images; InstanceNorm has one channel a group."""
    p = c.get(P.GroupNorm)
    if not x.size:
        return None
    n, channels = x.shape[:2]
    groups = channels if c.opr.type == "InstanceNorm" else p.group
    y, mean, variance = _normalized(x.reshape(n, groups, -1), (2,), _f32(p.eps))
    y = y.reshape(x.shape)
    if p.affine:
        weight, bias = (a.reshape(-1, 1, 1) for a in affine)
        y = y * weight + bias
    return y, mean[..., 0], variance[..., 0]


def batch_norm(c: Call, x: Array, scale: Array, bias: Array, *running: Array) -> tuple[Array, ...] | None:
    """Normalize with the running statistics or, in training, with those of the batch."""
    p = c.get(P.BN)
    if p.fwd_mode == P.BNFwdMode.INFERENCE:
        mean, variance = running
        moved: tuple[Array, ...] = ()
    else:
        axes = tuple(i for i, n in enumerate(scale.shape) if n == 1)
        count = x.size // max(1, scale.size)
        if count < 2:
            return None
        _, mean, variance = _normalized(x, axes, 0)
        # The running variance is unbiased: divided by one less.
        batch = mean, variance * count / (count - 1)
        moved = tuple((1 - p.avg_factor) * a + p.avg_factor * b for a, b in zip(running, batch, strict=False))
    rstd = 1 / np.sqrt(variance + _f32(p.epsilon))
    return *moved, mean, rstd, np.empty(0, np.uint8), (x - mean) * rstd * scale + bias


def lrn(c: Call, x: Array) -> Array:
    """Divide by a power of the sum of squares over the channels around each one (NCHW)."""
    p = c.get(P.LRN)
    half = min(p.n // 2, x.shape[1])
    square = np.pad(x * x, ((0, 0), (half, half), (0, 0), (0, 0)))
    total = np.lib.stride_tricks.sliding_window_view(square, 2 * half + 1, 1).sum(-1)
    return np.asarray(x * (_f32(p.k) + _f32(p.alpha) * total) ** -_f32(p.beta))
