"""Common operators on float64 arrays, each by its formula: what the wide engine computes with.

A function takes the operator's call and its input arrays and gives one array per output, or None where it has no
formula for the operator's parameters. The formulas are the textbook ones, written without regard to the reference
engine's kernels, except that layouts of convolutions are understood by the same code.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import numpy as np

from .. import params as P
from ..dtypes import Array
from ..ops.catalog import CATALOG, types
from ..ops.conv.fast import conv_fast
from ..ops.conv.layout import from_plain, to_plain
from ..ops.conv.rules import backward_plan, conv_plan
from ..ops.conv.transpose import deconv_fast
from ..ops.op import Trait
from ..ops.pooling import pool_windows
from ..ops.reduce import target_axes
from ..ops.registry import Call
from ..params import ElemwiseMode as M
from ..params import NonlineMode, PoolingMode, ReduceDataType, ReduceMode

__all__ = ["MOVING", "WIDE", "erf"]

Formula = Callable[..., Any]

MOVING = types(Trait.MOVES)
"""Operators that only move numbers, whose kernels take any dtype."""


def erf(x: Array) -> Array:
    """Error function of float64 values by its series of positive terms.

    >>> [f"{v:.13f}" for v in erf(np.array([0.5, -1.0, 3.0]))]
    ['0.5204998778130', '-0.8427007929497', '0.9999779095030']
    """
    a = np.minimum(np.abs(x), 6.0)
    term, total = a.copy(), a.copy()
    for n in range(1, 160):
        term *= 2 * a * a / (2 * n + 1)
        total += term
    return np.copysign(total * np.exp(-a * a) * (2 / sqrt(pi)), x)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _h_swish(x: Array) -> Array:
    return x * np.clip(x + 3, 0, 6) / 6


def _round(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


_ELEMWISE: dict[M, Formula] = {
    M.RELU: lambda x: np.maximum(x, 0),
    M.ABS: np.abs,
    M.ACOS: np.arccos,
    M.ASIN: np.arcsin,
    M.CEIL: np.ceil,
    M.COS: np.cos,
    M.EXP: np.exp,
    M.EXPM1: np.expm1,
    M.FLOOR: np.floor,
    M.LOG: np.log,
    M.LOG1P: np.log1p,
    M.NEGATE: np.negative,
    M.SIGMOID: _sigmoid,
    M.SIN: np.sin,
    M.TANH: np.tanh,
    M.FAST_TANH: lambda x: x * (27 + x * x) / (27 + 9 * x * x),
    M.ROUND: _round,
    M.ERF: erf,
    M.H_SWISH: _h_swish,
    M.SILU: lambda x: x * _sigmoid(x),
    M.GELU: lambda x: x * (1 + erf(x / sqrt(2))) / 2,
    M.SINH: np.sinh,
    M.COSH: np.cosh,
    M.ASINH: np.arcsinh,
    M.ACOSH: np.arccosh,
    M.ATANH: np.arctanh,
    M.TAN: np.tan,
    M.SOFTPLUS: lambda x: np.logaddexp(x, 0),
    M.LOGSIGMOID: lambda x: -np.logaddexp(-x, 0),
    M.RELU6: lambda x: np.clip(x, 0, 6),
    M.HSIGMOID: lambda x: np.clip(x + 3, 0, 6) / 6,
    M.SQRT: np.sqrt,
    M.SQUARE: np.square,
    M.SIGN: np.sign,
    M.ADD: np.add,
    M.SUB: np.subtract,
    M.MUL: np.multiply,
    M.TRUE_DIV: np.divide,
    M.FLOOR_DIV: lambda x, y: np.floor(x / y),
    M.MOD: np.fmod,
    M.MAX: np.maximum,
    M.MIN: np.minimum,
    M.POW: np.power,
    M.ATAN2: np.arctan2,
    M.LOG_SUM_EXP: np.logaddexp,
    M.LT: np.less,
    M.LEQ: np.less_equal,
    M.EQ: np.equal,
    M.PRELU: lambda x, y: np.where(x > 0, x, x * y),
    M.SWITCH_GT0: lambda x, y: np.where(x > 0, y, 0),
    M.FUSE_ADD_RELU: lambda x, y: np.maximum(x + y, 0),
    M.FUSE_ADD_SIGMOID: lambda x, y: _sigmoid(x + y),
    M.FUSE_ADD_TANH: lambda x, y: np.tanh(x + y),
    M.FUSE_ADD_H_SWISH: lambda x, y: _h_swish(x + y),
    M.COND_LEQ_MOV: lambda x, y, z: np.where(x <= y, z, 0),
    M.COND_LT_MOV: lambda x, y, z: np.where(x < y, z, 0),
    M.FUSE_MUL_ADD3: lambda x, y, z: x * y + z,
    M.FUSE_MUL_ADD4: lambda x, y, z, w: x * y + z * w,
    M.CLIP: lambda x, y, z: np.minimum(np.maximum(x, y), z),
}


def elemwise(c: Call, *inputs: Array) -> Array | None:
    """Elementwise formulas; integers among the inputs are promoted."""
    formula = _ELEMWISE.get(c.get(P.Elemwise).mode)
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
    NonlineMode.SIGMOID: _sigmoid,
    NonlineMode.H_SWISH: _h_swish,
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
