"""Pooling: the largest element, the sum or the mean of every window, first down the rows, then along them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.dtypes import Array
from ...graph.params import AdaptivePooling, Format, Pooling, PoolingMode
from ..elemwise.formulas import Formula
from ..registry import Call, Shape

Ends = list[tuple[int, int]]
_AXES = {Format.NHWC: (1, 2), Format.NHWCD4: (1, 3), Format.CHWN4: (1, 2)}
"""Rows and columns of layouts that do not have them as axes 2 and 3."""


def pooling(c: Call, x: Array, *size: Array) -> Array | None:
    """Pool over windows of given or, to a target size, of derived height and width."""
    p: Any = c.opr.params[0]
    (rows, cols), ends = _window_ends(p, x.shape, *size)
    empty = any(first >= end for axis in ends for first, end in axis)
    if not x.size or (empty and p.mode != PoolingMode.AVERAGE):
        return None
    if p.mode == PoolingMode.MAX:
        # MegEngine starts with the lowest finite number.
        top = _folded(x, (rows, cols), ends, np.max)
        return top if c.opr.exact else np.maximum(top, np.finfo(np.float32).min)
    total = _folded(x, (rows, cols), ends, np.sum)
    if p.mode == PoolingMode.AVERAGE and not size:
        return total / (p.window_h * p.window_w)
    return total / _folded(np.ones_like(x), (rows, cols), ends, np.sum)


def _window_ends(
    p: Pooling | AdaptivePooling, shape: Shape, *size: Array
) -> tuple[tuple[int, int], tuple[Ends, Ends]]:
    """Give the axes that are pooled, and the first and past-the-last element of each window on them."""
    rows, cols = _AXES.get(Format(p.format), (2, 3))
    if size:
        want = [int(n) for n in size[0].reshape(-1)]
        return (rows, cols), (_adaptive(shape[rows], want[0]), _adaptive(shape[cols], want[-1]))
    assert isinstance(p, Pooling)
    return (rows, cols), (
        _ends(shape[rows], p.window_h, p.stride_h, p.pad_h),
        _ends(shape[cols], p.window_w, p.stride_w, p.pad_w),
    )


def _ends(size: int, window: int, stride: int, pad: int) -> Ends:
    """Return the first and past-the-last element of the input in every window."""
    starts = range(-pad, size + pad - window + 1, stride)
    return [(min(max(at, 0), size), max(min(at + window, size), 0)) for at in starts]


def _adaptive(size: int, out: int) -> Ends:
    """Let `out` equal windows lie ``size // out`` apart, the last one at the end."""
    stride = size // out
    return _ends(size, size - (out - 1) * stride, stride, 0)


def _folded(
    x: Array, axes: tuple[int, int], ends: Sequence[Sequence[tuple[int, int]]], fold: Formula
) -> Array:
    for axis, windows in zip(axes, ends, strict=True):
        parts = [fold(np.moveaxis(x, axis, 0)[first:end], axis=0) for first, end in windows]
        x = np.stack(parts, axis)
    return x
