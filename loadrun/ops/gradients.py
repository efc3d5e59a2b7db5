"""Gradients that take a few lines of arithmetic; all others are read and written, but not run.

Inputs end with what gives the result its shape: the tensor of which it is the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from ..graph import Opr
from ..graph import params as P
from ..graph.dtypes import Array, DType
from .conv.local import conv_columns, conv_geometry
from .conv.windows import neibs_shape, window_taps
from .pooling import pool_windows
from .registry import Call, Shape, ShapeCall, kernel

__all__: list[str] = []


def _float32(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    """Return Float32 for Float32 data beside integer positions."""
    if inputs[0].name != "Float32" or any(d.name not in ("Float32", "Int32") for d in inputs):
        raise ValueError(f"{opr.type} takes Float32, found {', '.join(map(str, inputs))}")
    return (inputs[0],)


def _last(s: ShapeCall) -> Sequence[Shape | None]:
    return (s.shape(len(s.shapes) - 1),)


def _touched(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return prod(inputs[0])


def _softmax_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return 4 * prod(outputs[0])


@kernel("SoftmaxBackward", dtype=_float32, shape=_last, flops=_softmax_flops)
def softmax_backward(c: Call, y: Array, diff: Array) -> Array:
    """Compute ``y * (diff - sum(y * diff))`` along the axis of the softmax that gave `y`."""
    axis = c.get(P.Softmax).axis
    if y.shape != diff.shape or not -y.ndim <= axis < y.ndim:
        raise ValueError(f"axis {axis} of result {list(y.shape)} and gradient {list(diff.shape)}")
    out = y * diff
    return np.asarray(y * (diff - out.sum(axis, keepdims=True)))


@kernel("ArgsortBackward", dtype=_float32, shape=_last, flops=_touched)
def argsort_backward(c: Call, diff: Array, at: Array, x: Array) -> Array:
    """Put gradients of sorted rows back where the rows' elements stood; 0 where no element was taken."""
    if diff.shape != at.shape or diff.ndim != 2 or x.ndim != 2 or len(diff) != len(x):
        raise ValueError(
            f"gradient {list(diff.shape)} and positions {list(at.shape)} of rows {list(x.shape)}"
        )
    _inside(at, x.shape[1])
    out = np.zeros(x.shape, x.dtype)
    np.add.at(out, (np.arange(len(out))[:, None], at), diff)
    return out


@kernel("IndexingRemapBackward", dtype=_float32, shape=_last, flops=_touched)
def remap_backward(c: Call, diff: Array, table: Array, x: Array) -> Array:
    """Add gradients to the elements at the coordinates in the map's last dimension."""
    if table.shape != (*diff.shape, x.ndim):
        raise ValueError(f"a map {list(table.shape)} for gradient {list(diff.shape)} of {list(x.shape)}")
    for axis, size in enumerate(x.shape):
        _inside(table[..., axis], size)
    out = np.zeros(x.shape, x.dtype)
    np.add.at(out, tuple(np.moveaxis(table, -1, 0)), diff)
    return out


def _inside(at: Array, size: int) -> None:
    if at.size and not 0 <= int(at.min()) <= int(at.max()) < size:
        raise ValueError(f"positions {at.min()}..{at.max()} are outside an axis of {size} elements")


def _filter_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    geo = conv_geometry(opr.get(P.Convolution), inputs[0], inputs[2], opr.type)
    return 2 * inputs[0][0] * geo.channels * geo.points * geo.taps * geo.icg


@kernel("ConvolutionBackwardFilterV2", dtype=_float32, shape=_last, flops=_filter_flops)
def convolution_backward_filter(c: Call, x: Array, diff: Array, w: Array) -> Array:
    """Compute the gradient of a convolution of [N, C, H, W] by its filter: each tap's input times `diff`."""
    p = c.get(P.Convolution)
    geo = conv_geometry(p, x.shape, w.shape, c.opr.type)
    if diff.shape != (len(x), geo.channels, *geo.out):
        raise ValueError(f"the gradient must be {[len(x), geo.channels, *geo.out]}, found {list(diff.shape)}")
    depth = geo.icg * geo.taps
    seen = conv_columns(x, geo, p.mode == P.ConvMode.CONVOLUTION)
    seen = seen.reshape(len(x), geo.groups, depth, geo.points)
    given = diff.reshape(len(x), geo.groups, geo.ocg, geo.points)
    return np.matmul(given, seen.swapaxes(2, 3)).sum(0).reshape(w.shape)


@kernel("PoolingBackwardV1", dtype=_float32, shape=lambda s: (s.shape(0),), flops=_touched)
def pooling_backward(c: Call, x: Array, y: Array, diff: Array) -> Array:
    """Compute the gradient of a pooling: to all elements of a window that are its maximum, or in equal parts."""
    p = c.get(P.Pooling)
    _, windows = pool_windows(p, x.shape)
    if p.format != P.Format.NCHW or y.shape != diff.shape or diff.shape[2:] != tuple(w.out for w in windows):
        raise ValueError(f"gradient {list(diff.shape)} and result {list(y.shape)} of {list(x.shape)}")
    if p.mode == P.PoolingMode.AVERAGE:
        diff = diff / np.float32(prod(w.window for w in windows))
    elif p.mode == P.PoolingMode.AVERAGE_COUNT_EXCLUDE_PADDING:
        diff = diff / np.multiply.outer(*(w.counts() for w in windows)).astype(np.float32)
    out = np.zeros(x.shape, x.dtype)
    for (_, ty, fy), (_, tx, fx) in product(windows[0].taps(), list(windows[1].taps())):
        part = diff[:, :, ty, tx]
        if p.mode == P.PoolingMode.MAX:
            part = np.where(x[:, :, fy, fx] == y[:, :, ty, tx], part, np.float32(0))
        out[:, :, fy, fx] += part
    return out


@kernel("Images2NeibsBackward", dtype=_float32, shape=_last, flops=_touched)
def images2neibs_backward(c: Call, diff: Array, x: Array) -> Array:
    """Add windows [N, C, OH, OW, KH, KW] to where they were taken from [N, C, H, W]."""
    p = c.get(P.Images2Neibs)
    if x.ndim != 4 or diff.shape != neibs_shape(p, x.shape):
        raise ValueError(f"windows {list(diff.shape)} do not belong to images {list(x.shape)}")
    out = np.zeros(x.shape, x.dtype)
    rows, cols = window_taps(p, *x.shape[2:])
    for (ky, ty, fy), (kx, tx, fx) in product(rows, list(cols)):
        out[:, :, fy, fx] += diff[:, :, ty, tx, ky, kx]
    return out


@kernel("SlidingWindowTransposeBackward", dtype=_float32, shape=_last, flops=_touched)
def sliding_window_transpose_backward(c: Call, diff: Array, x: Array) -> Array:
    """Return all windows of the gradient [N, C, H, W], zero outside."""
    p = c.get(P.SlidingWindowTranspose)
    rows, cols = window_taps(p, p.out_h, p.out_w)
    want = (*diff.shape[:2], rows.out, cols.out, p.window_h, p.window_w)
    if diff.shape[2:] != (p.out_h, p.out_w) or x.shape != want:
        raise ValueError(f"windows {list(x.shape)} do not belong to the gradient {list(diff.shape)}")
    out = np.zeros(x.shape, x.dtype)
    for (ky, ty, fy), (kx, tx, fx) in product(rows, list(cols)):
        out[:, :, ty, tx, ky, kx] = diff[:, :, fy, fx]
    return out
