"""Common operators on float64 arrays, each by its formula: what the wide engine computes with.

A function takes the operator's call and its input arrays and gives one array per output, or None where it has no
formula for the operator's parameters. The formulas are the textbook ones, written without regard to the reference
engine's kernels, except that layouts of convolutions are understood by the same code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import params as P
from ..graph.dtypes import Array
from ..graph.params import NonlineMode, PoolingMode, ReduceDataType, ReduceMode
from ..ops.catalog import CATALOG, types
from ..ops.conv.fast import conv_fast
from ..ops.conv.layout import from_plain, to_plain
from ..ops.conv.rules import backward_plan, conv_plan
from ..ops.conv.transpose import deconv_fast
from ..ops.elemwise.formulas import Formula, h_swish, sigmoid
from ..ops.elemwise.table import ROWS
from ..ops.op import Trait
from ..ops.pooling import pool_windows
from ..ops.reduce import target_axes
from ..ops.registry import Call

__all__ = ["MOVING", "WIDE"]


MOVING = types(Trait.MOVES)
"""Operators that only move numbers, whose kernels take any dtype."""


def elemwise(c: Call, *inputs: Array) -> Array | None:
    """Elementwise formulas; integers among the inputs are promoted."""
    formula = ROWS[c.get(P.Elemwise).mode].wide
    return None if formula is None else np.asarray(formula(*inputs), np.float64)


def power(c: Call, x: Array) -> Array:
    """PowC."""
    return np.power(x, np.float64(np.float32(c.get(P.PowC).exp)))


def matmul(c: Call, a: Array, b: Array) -> Array | None:
    """Matrix products of plain matrices."""
    p = c.get(P.MatrixMul)
    if p.format != P.MatrixMulFormat.DEFAULT:
        return None
    a = a.swapaxes(-1, -2) if p.transposeA else a
    b = b.swapaxes(-1, -2) if p.transposeB else b
    return np.matmul(a, b)


_REDUCE: dict[ReduceMode, Formula] = {
    ReduceMode.SUM: np.sum,
    ReduceMode.MEAN: np.mean,
    ReduceMode.MAX: np.max,
    ReduceMode.MIN: np.min,
    ReduceMode.PRODUCT: np.prod,
    ReduceMode.SUM_SQR: lambda x, **how: np.sum(x * x, **how),
}


def reduce(c: Call, x: Array, target: Array | None = None) -> Array | None:
    """Reductions over an axis or to a shape."""
    p = c.get(P.Reduce)
    if p.data_type not in (ReduceDataType.DEFAULT, ReduceDataType.FLOAT_O32xC32) or not x.size:
        return None
    shape = None if target is None else tuple(int(n) for n in target.reshape(-1))
    axes = (p.axis,) if shape is None else target_axes(x.shape, shape)
    out = _REDUCE[p.mode](x, axis=axes, keepdims=True)
    return out if shape is None else np.asarray(out).reshape(shape)


def _filters(w: Array, plan: Any) -> Array:
    plain = to_plain(w, plan.w)
    return np.ascontiguousarray(np.flip(plain, tuple(range(3, plain.ndim))) if plan.flip else plain)


_ACTIVATE: dict[NonlineMode, Formula] = {
    NonlineMode.IDENTITY: lambda x: x,
    NonlineMode.RELU: lambda x: np.maximum(x, 0),
    NonlineMode.SIGMOID: sigmoid,
    NonlineMode.H_SWISH: h_swish,
}


def convolution(c: Call, x: Array, w: Array, *rest: Array) -> Array | None:
    """Convolution of images with bias, residual and nonlinearity, in every layout."""
    p: Any = c.get(P.ConvBias if c.opr.type == "ConvBiasForwardV4" else P.Convolution)
    plan = conv_plan(p, c.inputs, x.shape, w.shape)
    packed = from_plain(conv_fast(to_plain(x, plan.x), _filters(w, plan), plan.geo), plan.out)
    for value in rest:
        packed = packed + value
    return packed if isinstance(p, P.Convolution) else np.asarray(_ACTIVATE[p.nonlineMode](packed))


def transposed(c: Call, w: Array, diff: Array, like: Array | None = None) -> Array:
    """Transposed convolution of images."""
    given = None if like is None else like.shape
    plan = backward_plan(c.get(P.Convolution), c.inputs, w.shape, diff.shape, given)
    return from_plain(deconv_fast(to_plain(diff, plan.out), _filters(w, plan), plan.geo), plan.x)


def pooling(c: Call, x: Array, *size: Array) -> Array | None:
    """Pooling with windows inside the image's border or across it."""
    p: Any = c.get(P.AdaptivePooling if size else P.Pooling)
    axes, windows = pool_windows(p, x.shape, *size)
    if any(w.empty for w in windows):
        return None
    largest = p.mode == PoolingMode.MAX
    counts = []
    for axis, w in zip(axes, windows, strict=True):
        pad = [(0, 0)] * x.ndim
        pad[axis] = (w.pad, w.window)
        x = np.pad(x, pad, constant_values=-np.inf if largest else 0)
        seen = np.lib.stride_tricks.sliding_window_view(x, w.window, axis)
        taken = np.take(seen, np.arange(w.out) * w.stride, axis)
        x = taken.max(-1) if largest else taken.sum(-1)
        whole = p.mode == PoolingMode.AVERAGE
        count = np.full(w.out, float(w.window)) if whole else w.counts().astype(np.float64)
        counts.append(count.reshape((-1,) + (1,) * (x.ndim - 1 - axis)))
    return x if largest else x / counts[0] / counts[1]


def softmax(c: Call, x: Array) -> Array:
    """Softmax along an axis."""
    axis = c.get(P.Softmax).axis
    e = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


def _normalized(rows: Array, eps: float) -> tuple[Array, Array, Array]:
    """Rows without mean and with variance 1; mean and variance."""
    mean = rows.mean(1)
    d = rows - mean[:, None]
    var = np.square(d).mean(1)
    return d / np.sqrt(var + eps)[:, None], mean, var


def layer_norm(c: Call, x: Array, *affine: Array) -> tuple[Array, Array, Array] | None:
    """LayerNorm over the last axes."""
    p = c.get(P.LayerNorm)
    if not x.size:
        return None
    outer = x.shape[: x.ndim - p.normalized_dim]
    y, mean, var = _normalized(x.reshape(-1, p.normalized_size), _f32(p.eps))
    if p.affine:
        y = y * affine[0].reshape(-1) + affine[1].reshape(-1)
    return y.reshape(x.shape), mean.reshape(outer), (1 / np.sqrt(var + _f32(p.eps))).reshape(outer)


def group_norm(c: Call, x: Array, *affine: Array) -> tuple[Array, Array, Array] | None:
    """GroupNorm and InstanceNorm of NCHW images."""
    p = c.get(P.GroupNorm)
    if not x.size:
        return None
    groups = x.shape[1] if c.opr.type == "InstanceNorm" else p.group
    y, mean, var = _normalized(x.reshape(x.shape[0] * groups, -1), _f32(p.eps))
    y = y.reshape(x.shape)
    if p.affine:
        y = y * affine[0].reshape(-1, 1, 1) + affine[1].reshape(-1, 1, 1)
    return y, mean.reshape(-1, groups), var.reshape(-1, groups)


def batch_norm(c: Call, x: Array, scale: Array, bias: Array, *running: Array) -> tuple[Array, ...] | None:
    """BatchNorm of inference."""
    p = c.get(P.BN)
    if p.fwd_mode != P.BNFwdMode.INFERENCE:
        return None
    mean, var = running
    rstd = 1 / np.sqrt(var + _f32(p.epsilon))
    return mean, rstd, np.empty(0, np.uint8), (x - mean) * (scale * rstd) + bias


def _f32(x: float) -> float:
    """A parameter as the file stores it."""
    return float(np.float32(x))


WIDE: dict[str, Formula] = {op.name: globals()[op.wide] for op in CATALOG.values() if op.wide}
"""Formulas by operator type."""
