"""Gradients of one formula: of operators that move numbers, of fake quantization, dropout and softmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...graph import Opr
from ...graph import params as P
from ...graph.dtypes import Array, DType
from ..fill import padding_sources
from ..numeric.quant import round_away
from ..registry import Call, Shape, ShapeCall, kernel
from .common import add_along, gradient, inside

__all__: list[str] = []


@gradient("SoftmaxBackward", (1,), of="Softmax")
def softmax_backward(c: Call, y: Array, diff: Array) -> Array:
    """Compute ``y * (diff - sum(y * diff))`` along the axis of the softmax that gave `y`."""
    axis = c.get(P.Softmax).axis
    return np.asarray(y * (diff - (y * diff).sum(axis, keepdims=True)))


@gradient("ArgsortBackward", (2,))
def argsort_backward(c: Call, diff: Array, at: Array, x: Array) -> Array:
    """Put gradients of sorted rows back where the rows' elements stood; 0 if no element was taken."""
    if diff.shape != at.shape or diff.ndim != 2 or x.ndim != 2 or len(diff) != len(x):
        raise ValueError(
            f"gradient {list(diff.shape)} and positions {list(at.shape)} of rows {list(x.shape)}"
        )
    inside(at, x.shape[1])
    out = np.zeros(x.shape, np.float32)
    np.add.at(out, (np.arange(len(out))[:, None], at), diff)
    return out


@gradient("IndexingRemapBackward", (2,))
def remap_backward(c: Call, diff: Array, table: Array, x: Array) -> Array:
    """Add gradients to the elements at the coordinates in the map's last dimension."""
    if table.shape != (*diff.shape, x.ndim):
        raise ValueError(f"a map {list(table.shape)} for gradient {list(diff.shape)} of {list(x.shape)}")
    for axis, size in enumerate(x.shape):
        inside(table[..., axis], size)
    out = np.zeros(x.shape, np.float32)
    np.add.at(out, tuple(np.moveaxis(table, -1, 0)), diff)
    return out


def _diag_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    return (inputs[1],)


def _diag_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (_diag(s.get(P.Diag).k, s.shape(1), s.ints(0)),)


def _diag(k: int, diff: Shape, want: Shape) -> Shape:
    """Return the shape of the gradient, of a vector or a matrix."""
    if len(want) == 1:
        fits = diff == (want[0] + abs(k),) * 2
    else:
        fits = len(want) == 2 and diff == (max(0, min(want[0] - max(-k, 0), want[1] - max(k, 0))),)
    if not fits:
        raise ValueError(f"diagonal {k} of {list(want)} has no gradient of shape {list(diff)}")
    return want


@kernel("DiagBackward", dtype=_diag_dtype, shape=_diag_shape)
def diag_backward(c: Call, shape: Array, diff: Array) -> Array:
    """Take the diagonal of a matrix's gradient, or put a gradient on the diagonal of zeros."""
    k = c.get(P.Diag).k
    want = _diag(k, diff.shape, tuple(int(n) for n in shape.reshape(-1)))
    if len(want) == 1:
        return np.diagonal(diff, k).copy()
    out = np.zeros(want, diff.dtype)
    at = np.arange(len(diff))
    out[at + max(-k, 0), at + max(k, 0)] = diff
    return out


@gradient("PaddingBackward", (1,), of="Padding", by=(1,), results={0: 0})
def padding_backward(c: Call, diff: Array, x: Array) -> Array:
    """Cut a constant border off, or add the border's gradient to the elements that it repeats."""
    for axis, at in enumerate(padding_sources(c.get(P.Padding), x.shape)):
        if c.get(P.Padding).padding_mode == P.PaddingMode.CONSTANT:
            diff = diff.take(np.flatnonzero((at >= 0) & (at < x.shape[axis])), axis)
        else:
            diff = add_along(diff, at, x.shape[axis], axis)
    return diff


@gradient("WhereBackward", (0, 0))
def where_backward(c: Call, diff: Array, mask: Array) -> tuple[Array, Array]:
    """Give each of the two choices the gradient where it was taken."""
    if mask.shape != diff.shape:
        raise ValueError(f"a mask {list(mask.shape)} for a gradient of shape {list(diff.shape)}")
    taken = mask != 0
    return np.where(taken, diff, np.float32(0)), np.where(taken, np.float32(0), diff)


@gradient("ShuffleRNGBackward", (2,))
def shuffle_backward(c: Call, diff: Array, at: Array, x: Array) -> Array:
    """Put whole entries back to where they were before, as they were moved (see the kernel of ShuffleRNG)."""
    if diff.shape != x.shape or at.shape != x.shape[:1]:
        raise ValueError(
            f"gradient {list(diff.shape)} and positions {list(at.shape)} of entries {list(x.shape)}"
        )
    inside(at, len(x))
    out = np.zeros(x.shape, np.float32)
    out[at] = diff
    return out


@gradient("DropoutBackward", (0,))
def dropout_backward(c: Call, diff: Array, mask: Array) -> Array:
    """Scale the gradients of elements that were kept, one byte of the mask each."""
    if mask.size < diff.size:
        raise ValueError(f"a mask of {mask.size} bytes for {diff.size} elements")
    kept = mask.reshape(-1)[: diff.size].reshape(diff.shape) != 0
    scale = np.float32(1) / (np.float32(1) - np.float32(c.get(P.Dropout).drop_prob))
    return np.where(kept, diff * scale, np.float32(0))


@gradient("FakeQuantBackward", (0,), of="FakeQuant", by=(1, 2, 3), results={0: 0})
def fake_quant_backward(c: Call, diff: Array, x: Array, scale: Array, zero_point: Array) -> Array:
    """Pass the gradient where the integer is between `qmin` and `qmax`."""
    p = c.get(P.FakeQuant)
    q = np.asarray(x / scale)
    round_away(q, out=q)
    q += zero_point
    return np.where((q >= np.float32(p.qmin)) & (q <= np.float32(p.qmax)), diff, np.float32(0))


@gradient("TQTBackward", (0, 0), of="TQT", by=(1, 2), results={0: 0})
def tqt_backward(c: Call, diff: Array, x: Array, scale: Array) -> tuple[Array, Array]:
    """Give the gradients by data and by the step's exponent, one for every element of the data."""
    p = c.get(P.TQT)
    low, high = np.float32(p.qmin), np.float32(p.qmax)
    step = np.exp2(scale.astype(np.float64)).astype(np.float32)
    scaled = np.asarray(x / step)
    q = np.empty_like(scaled)
    round_away(scaled, out=q)
    np.clip(q, low, high, out=q)
    clipped = (scaled < low - np.float32(0.5)) | (scaled > high + np.float32(0.5))
    slope = np.where(clipped, q, q - scaled) * step * np.float32(np.log(2))
    return np.where(clipped, np.float32(0), diff), diff * slope


@gradient("LSQBackward", (0, 0), of="LSQ", by=(1, 2, 3, 4), results={0: 0})
def lsq_backward(
    c: Call, diff: Array, x: Array, scale: Array, zero_point: Array, grad_scale: Array
) -> tuple[Array, Array]:
    """Give the gradients by data and by scale, one for every element of the data."""
    p = c.get(P.LSQ)
    low, high = np.float32(p.qmin), np.float32(p.qmax)
    q = np.asarray(x / scale + zero_point)
    near = np.empty_like(q)
    round_away(q, out=near)
    slope = np.where(q < low, low, np.where(q > high, high, near - q))
    return np.where((q < low) | (q > high), np.float32(0), diff), slope * grad_scale * diff
