"""Gradients of softmax, normalization, fake quantization and of operators that move numbers."""

from __future__ import annotations

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ..registry import Call

__all__ = [
    "batch_norm",
    "chosen",
    "diagonal",
    "dropout",
    "fake_quant",
    "general_norm",
    "group_norm",
    "layer_norm",
    "lrn",
    "lsq",
    "padding",
    "remapped",
    "shuffled",
    "softmax",
    "sorting",
    "tqt",
]


def softmax(c: Call, y: Array, diff: Array) -> Array:
    """Multiply by the Jacobian ``diag(y) - y y^T``."""
    axis = c.get(P.Softmax).axis
    rows, grad = np.moveaxis(y, axis, -1), np.moveaxis(diff, axis, -1)
    return np.moveaxis(rows * grad - rows * np.einsum("...i,...i->...", rows, grad)[..., None], -1, axis)


# ---- Moved numbers


def sorting(c: Call, diff: Array, at: Array, x: Array) -> Array:
    """Put every gradient back where its element stood."""
    sums = [np.bincount(places, grad, x.shape[1]) for places, grad in zip(at, diff, strict=True)]
    return np.array(sums).reshape(x.shape)


def remapped(c: Call, diff: Array, table: Array, x: Array) -> Array:
    """Add every gradient to the element that was taken."""
    at = np.ravel_multi_index(tuple(np.moveaxis(table.reshape(-1, x.ndim), 1, 0)), x.shape)
    return np.bincount(at, diff.reshape(-1), x.size).reshape(x.shape)


def diagonal(c: Call, shape: Array, diff: Array) -> Array:
    """Multiply by the diagonal's ones."""
    k = c.get(P.Diag).k
    if shape.size == 1:
        return np.asarray((diff * np.eye(len(diff), k=k)).sum(0 if k < 0 else 1)[: int(shape[0])])
    rows, cols = (int(n) for n in shape)
    spread = np.zeros(cols if k < 0 else rows)
    spread[: len(diff)] = diff
    return np.asarray(np.eye(rows, cols, k) * (spread if k < 0 else spread[:, None]))


def padding(c: Call, diff: Array, x: Array) -> Array:
    """Add the gradients of the border to the elements that it repeats."""
    p = c.get(P.Padding)
    mode = {P.PaddingMode.REPLICATE: "edge", P.PaddingMode.REFLECT: "reflect"}.get(p.padding_mode, "constant")
    sides = [(getattr(p, f"front_offset_dim{i}"), getattr(p, f"back_offset_dim{i}")) for i in range(x.ndim)]
    # Number 0 stands for what is no element.
    numbers = np.pad(np.arange(1, x.size + 1).reshape(x.shape), sides, mode)  # type: ignore[call-overload]
    return np.bincount(numbers.reshape(-1), diff.reshape(-1), x.size + 1)[1:].reshape(x.shape)


def chosen(c: Call, diff: Array, mask: Array) -> tuple[Array, Array]:
    """Give each of two choices the gradient where it was taken."""
    return diff * (mask != 0), diff * (mask == 0)


def shuffled(c: Call, diff: Array, at: Array, x: Array) -> Array:
    """Put the entries back in order."""
    return diff[np.argsort(at)]


def dropout(c: Call, diff: Array, mask: Array) -> Array:
    """Scale the gradients of kept elements."""
    kept = mask.reshape(-1)[: diff.size].reshape(diff.shape) != 0
    return diff * kept / (1 - float(np.float32(c.get(P.Dropout).drop_prob)))


# ---- Fake quantization


def _away(x: Array) -> Array:
    """Round halves away from zero."""
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def fake_quant(c: Call, diff: Array, x: Array, scale: Array, zero_point: Array) -> Array:
    """Pass the gradient of integers in range."""
    p = c.get(P.FakeQuant)
    q = _away(x / scale) + zero_point
    return np.where((q >= p.qmin) & (q <= p.qmax), diff, 0)


def tqt(c: Call, diff: Array, x: Array, scale: Array) -> tuple[Array, Array]:
    """Give gradients by data and by the step's exponent."""
    p = c.get(P.TQT)
    q = x / 2**scale
    inside = (q >= p.qmin - 0.5) & (q <= p.qmax + 0.5)
    step = 2**scale * np.log(2)
    return diff * inside, diff * step * (np.clip(_away(q), p.qmin, p.qmax) - q * inside)


def lsq(
    c: Call, diff: Array, x: Array, scale: Array, zero_point: Array, grad_scale: Array
) -> tuple[Array, Array]:
    """Give gradients by data and by scale."""
    p = c.get(P.LSQ)
    q = x / scale + zero_point
    inside = (q >= p.qmin) & (q <= p.qmax)
    return diff * inside, diff * grad_scale * np.where(inside, _away(q) - q, np.clip(q, p.qmin, p.qmax))


# ---- Normalization


def _normalized(x: Array, g: Array, mean: Array, rstd: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Give the gradient by data for that of the normalized data, and the normalized data itself.

    The gradients by variance and mean are those of ``(x - mean) * (variance + eps) ** -0.5``.
    """
    count = np.prod([x.shape[a] for a in axes])
    by_variance = (g * (x - mean)).sum(axes, keepdims=True) * -0.5 * rstd**3
    by_mean = -(g * rstd).sum(axes, keepdims=True)
    return g * rstd + by_variance * 2 * (x - mean) / count + by_mean / count, (x - mean) * rstd


def _over(
    diff: Array, x: Array, rest: tuple[Array, ...], start: int, end: int
) -> Array | tuple[Array, ...] | None:
    """Handle a normalization over neighbouring axes."""
    *weight, mean, rstd = rest
    if not x.size:
        return None
    axes = tuple(range(start, end))
    kept = (*x.shape[:start], *[1] * len(axes), *x.shape[end:])
    shape = x.shape[start:end] + (1,) * (x.ndim - end)
    scale = weight[0].reshape(shape) if weight else 1.0
    by_x, y = _normalized(x, diff * scale, mean.reshape(kept), rstd.reshape(kept), axes)
    if not weight:
        return by_x
    others = tuple(i for i in range(x.ndim) if i not in axes)
    return by_x, (diff * y).sum(others), diff.sum(others)


def layer_norm(c: Call, diff: Array, x: Array, *rest: Array) -> Array | tuple[Array, ...] | None:
    """Give gradients by data, weight and bias, over the last axes."""
    return _over(diff, x, rest, x.ndim - c.get(P.LayerNorm).normalized_dim, x.ndim)


def general_norm(c: Call, diff: Array, x: Array, *rest: Array) -> Array | tuple[Array, ...] | None:
    """Give gradients by data, weight and bias, over the axes from `axis_start` to `axis_end`."""
    p = c.get(P.GeneralNorm)
    return _over(diff, x, rest, p.axis_start, p.axis_end)


def group_norm(c: Call, diff: Array, x: Array, *rest: Array) -> Array | tuple[Array, ...] | None:
    """Give gradients by data, weight and bias, over groups of channels; their variance comes, not its root."""
    *weight, mean, variance = rest
    if not x.size:
        return None
    groups = (*mean.shape, -1)
    scale = weight[0].reshape(-1, 1, 1) if weight else 1.0
    eps = float(np.float32(c.get(P.GroupNorm).eps))
    by_x, y = _normalized(
        x.reshape(groups),
        (diff * scale).reshape(groups),
        mean[..., None],
        (variance[..., None] + eps) ** -0.5,
        (2,),
    )
    if not weight:
        return by_x.reshape(x.shape)
    return by_x.reshape(x.shape), (diff * y.reshape(x.shape)).sum((0, 2, 3)), diff.sum((0, 2, 3))


def batch_norm(
    c: Call, x: Array, diff: Array, mean: Array, rstd: Array, scale: Array, reserve: Array
) -> tuple[Array, ...]:
    """Give gradients by scale, bias and data, for the batch's statistics."""
    axes = tuple(i for i, n in enumerate(scale.shape) if n == 1)
    by_x, y = _normalized(x, diff * scale, mean, rstd, axes)
    return (diff * y).sum(axes, keepdims=True), diff.sum(axes, keepdims=True), by_x


def lrn(c: Call, x: Array, y: Array, diff: Array) -> Array:
    """Differentiate ``x * t ** -beta`` with ``t = k + alpha * sum(x ** 2)`` over the channels around each one."""
    p = c.get(P.LRN)
    k, alpha, beta = (float(np.float32(v)) for v in (p.k, p.alpha, p.beta))
    at = np.arange(x.shape[1])
    near = (np.abs(at[:, None] - at) <= p.n // 2).astype(np.float64)
    t = k + alpha * np.einsum("cd,ndhw->nchw", near, x * x)
    by_t = -beta * diff * x * t ** (-beta - 1)
    return diff * t**-beta + 2 * alpha * x * np.einsum("cd,nchw->ndhw", near, by_t)
