"""Spectra, windows, and mel filters."""

from __future__ import annotations

import numpy as np

from ...build import emit as e
from ...build.fourier import Pair, real_of_half, transform
from ...build.layers.padding import pad
from ...ops.registry import pay
from ...tensors import Tensor, const
from ...tensors.access import dtype_of, static_shape
from ..call import NodeCall, front, lower
from ..tensors import HELD
from ..values import FLOAT, UnsupportedNodeError, Value
from . import M, cast, of_length, transposed
from .shapes import sliced

__all__ = ["spectrum"]


def _pair(x: Tensor) -> Pair:
    """Split the last axis, of size 1 or 2, into real and imaginary part."""
    last = x.ndim - 1
    x = of_length(x, last)
    parts = [e.subtensor(x, [(last, None, None, None, i)]) for i in range(static_shape(x)[-1])]
    return Pair(*parts)


def spectrum(x: Tensor, bins: int, *, inverse: bool) -> Tensor:
    """Transform the second-last axis: (..., n, 1 or 2) gives (..., bins, 2)."""
    n, last = static_shape(x)[-2], x.ndim - 1
    y = transform(_pair(x), n, bins=bins, inverse=inverse, power=1.0 if inverse else 0.0)
    return e.concat([e.add_axes(v, [last]) for v in y if v is not None], last)


def _half_inverse(x: Tensor, n: int) -> Tensor:
    """Compute the real signal (..., n, 1) from half a spectrum (..., n // 2 + 1, 2)."""
    return e.add_axes(real_of_half(_pair(x), n, static_shape(x)[-2]), [x.ndim - 1])


def _fitted(x: Tensor, axis: int, length: int) -> Tensor:
    """Cut or zero-pad an axis to a length."""
    n = static_shape(x)[axis]
    if n > length:
        return sliced(x, axis, 0, length)
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, length - n)
    return pad(x, widths, "constant")


@lower("DFT")
def _dft(c: NodeCall) -> Tensor:
    x = e.real(c.t(0))
    if c.opset >= 20:
        axis = front(int(c.constant(2, "axis").item()) if c.has(2) else -2, x.ndim)
    else:
        axis = c.axis("axis", 1, x.ndim)
    inverse, half = c.flag("inverse"), c.flag("onesided")
    if axis == x.ndim - 1:
        raise UnsupportedNodeError("it transforms the axis of real and imaginary parts")
    order = [i for i in range(x.ndim - 1) if i != axis] + [axis, x.ndim - 1]
    back = [order.index(i) for i in range(x.ndim)]
    x = transposed(x, order)
    at = x.ndim - 2
    length = int(c.constant(1, "length").item()) if c.has(1) else static_shape(x)[at]
    if inverse and half:
        n = length if c.has(1) else 2 * (static_shape(x)[at] - 1)
        y = _half_inverse(_fitted(x, at, n // 2 + 1), n)
    else:
        y = spectrum(_fitted(x, at, length), length // 2 + 1 if half else length, inverse=inverse)
    return cast(transposed(y, back), dtype_of(c.t(0)))


@lower("STFT")
def _stft(c: NodeCall) -> Tensor:
    x = e.real(c.t(0))
    if x.ndim == 2:
        x = e.add_axes(x, [2])
    step = int(c.constant(1, "frame step").item())
    window = e.real(c.t(2)) if c.has(2) else None
    if window is not None and window.ndim != 1:
        raise UnsupportedNodeError(f"its window has {window.ndim} axes, expected 1")
    if c.has(3):
        length = int(c.constant(3, "frame length").item())
    elif window is not None:
        length = static_shape(window)[0]
    else:
        raise UnsupportedNodeError("there is neither a window nor a frame length")
    frames = (x.shape[1] - length) // step + 1
    begin = e.elem(M.MUL, e.arange(frames), const(np.int32(step)))
    at = e.elem(M.ADD, e.add_axes(begin, [1]), e.arange(length))
    cut = e.gather(x, [(1, at)])
    if window is not None:
        cut = e.elem(M.MUL, cut, e.reshape(window, (-1, 1)))
    bins = length // 2 + 1 if c.flag("onesided", 1) else length
    return cast(spectrum(cut, bins, inverse=False), dtype_of(c.t(0)))


_TERMS = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


@lower(*_TERMS, foldable=False)
def _window(c: NodeCall) -> Value:
    n = int(c.constant(0, "size").item())
    if not 0 <= n <= 1 << 24:
        raise UnsupportedNodeError(f"a window of {n}")
    kind = c.number("output_datatype", FLOAT)
    pay(8 * n)
    turns = np.arange(n) * 2 * np.pi / max(n if c.flag("periodic", 1) else n - 1, 1)
    a, b, d = _TERMS[c.op]
    return Value(kind, array=(a - b * np.cos(turns) + d * np.cos(2 * turns)).astype(HELD[kind]))


@lower("MelWeightMatrix", foldable=False)
def _mel(c: NodeCall) -> Value:
    bands, length, rate = (int(c.constant(i, "sizes").item()) for i in range(3))
    low, high = (float(c.constant(i, "edges").item()) for i in (3, 4))
    kind = c.number("output_datatype", FLOAT)
    if not 0 < bands <= 1 << 16 or not 0 < length <= 1 << 20:
        raise UnsupportedNodeError(f"{bands} bands of a transform of {length}")
    if rate <= 0 or not (0 <= low < np.inf and 0 <= high < np.inf):
        raise UnsupportedNodeError(f"frequencies from {low:g} to {high:g} Hz at {rate} samples a second")
    bins = length // 2 + 1
    pay(8 * bins * bands, 8 * bins * bands)
    lowest, highest = (2595 * np.log10(1 + f / 700) for f in (low, high))
    mels = np.arange(bands + 2) * ((highest - lowest) / (bands + 2)) + lowest
    edges = np.floor((length + 1) * (700 * (10 ** (mels / 2595) - 1)) / rate)
    result = np.zeros((bins, bands))
    for i in range(bands):
        left, middle, right = edges[i : i + 3]
        at = np.arange(bins)
        if middle == left:
            result[at == middle, i] = 1
        else:
            rise = (at >= left) & (at <= middle)
            result[rise, i] = (at[rise] - left) / (middle - left)
        if right > middle:
            fall = (at >= middle) & (at < right)
            result[fall, i] = (right - at[fall]) / (right - middle)
    return Value(kind, array=result.astype(HELD[kind]))
