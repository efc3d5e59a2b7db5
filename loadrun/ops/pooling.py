"""Pooling over two spatial axes, in every memory layout.

Windows are never gathered: a window's maximum or sum is built tap by tap on whole arrays, first down the
rows and then along them, so the cost is proportional to window height plus width.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..graph import Opr
from ..graph.dtypes import Array, DType, round_bfloat16
from ..graph.params import AdaptivePooling, Format, Pooling, PoolingMode
from .numeric.special import lowest, round_half
from .numeric.taps import Taps
from .registry import Bound, Call, Shape, ShapeCall, kernel

# format -> (dimensions, axis of rows, axis of columns)
_AXES: dict[Format, tuple[int, int, int]] = {
    Format.NCHW: (4, 2, 3),
    Format.NHWC: (4, 1, 2),
    Format.NHWCD4: (5, 1, 3),
    Format.NCHW4: (5, 2, 3),
    Format.NCHW32: (5, 2, 3),
    Format.NCHW44: (5, 2, 3),
    Format.NCHW88: (5, 2, 3),
    Format.NCHW64: (5, 2, 3),
    Format.CHWN4: (5, 1, 2),
}
_ADAPTIVE = (Format.NCHW, Format.NHWC, Format.NCHW44, Format.NCHW88)
_DTYPES = frozenset(
    {
        *("Float32", "Float16", "BFloat16", "Int8", "QuantizedS8", "Quantized8Asymm", "QuantizedS32"),
        *("QuantizedS4", "Quantized4Asymm", "Float64"),
    }
)


@dataclass(frozen=True)
class Window:
    """One axis of a pooling: how windows are on an input of `size` elements.

    >>> w = Window(size=5, window=3, stride=2, pad=1)
    >>> w.out
    3
    """

    size: int
    window: int
    stride: int
    pad: int

    def __post_init__(self) -> None:
        if self.stride < 1 or self.window < 1:
            raise ValueError(f"window {self.window} and stride {self.stride} must be at least 1")
        if self.size + 2 * self.pad < self.window:
            raise ValueError(
                f"a window of {self.window} does not fit into {self.size} elements with padding {self.pad}"
            )

    @property
    def out(self) -> int:
        """Number of windows."""
        return (self.size + 2 * self.pad - self.window) // self.stride + 1

    @property
    def empty(self) -> bool:
        """True if some window holds padding only."""
        return self.window <= self.pad or (self.out - 1) * self.stride - self.pad >= self.size

    def taps(self) -> Iterator[tuple[int, slice, slice]]:
        """List each tap that meets data: the windows that have it, and where it is in the input."""
        return iter(Taps(self.size, self.out, self.window, self.stride, self.pad))

    def counts(self) -> Array:
        """Count the elements of the input in each window, int64."""
        start = np.arange(self.out, dtype=np.int64) * self.stride - self.pad
        return np.maximum(np.minimum(start + self.window, self.size) - np.maximum(start, 0), 0)


def _at(axis: int, where: slice) -> tuple[slice, ...]:
    return (slice(None),) * axis + (where,)


_LONG = 1024
"""Elements above which a window is folded as a whole, which rounds otherwise than tap by tap."""


def _sweep(x: Array, axis: int, w: Window, fold: np.ufunc, start: float, dtype: np.dtype[Any]) -> Array:
    """Fold the taps of every window along one axis."""
    if w.window == 1 and w.stride == 1 and not w.pad:
        return x.astype(dtype, copy=False)
    if w.out == 1 and not w.empty:
        whole = x[_at(axis, slice(0, min(w.size, w.window - w.pad)))]
        return np.asarray(fold.reduce(whole, axis=axis, keepdims=True, dtype=dtype))
    out = np.empty((*x.shape[:axis], w.out, *x.shape[axis + 1 :]), dtype)
    if min(w.window, w.size) > max(_LONG, w.out):
        for o in range(w.out):
            first = o * w.stride - w.pad
            part = x[_at(axis, slice(max(first, 0), max(min(first + w.window, w.size), 0)))]
            value = fold.reduce(part, axis=axis, dtype=dtype, initial=start, keepdims=True)
            out[_at(axis, slice(o, o + 1))] = value
        return out
    taps = [(to, where) for _, to, where in w.taps()]
    full = next((i for i, (to, _) in enumerate(taps) if to == slice(0, w.out)), None)
    if full is None:
        out[...] = start
    else:
        # A tap inside for all windows makes the fill unnecessary.
        out[...] = x[_at(axis, taps.pop(full)[1])]
    for to, where in taps:
        view = out[_at(axis, to)]
        fold(view, x[_at(axis, where)], out=view)
    return out


def _double(x: Array, axis: int, w: Window, start: float) -> Array:
    """Take the maximum over long windows, doubling the length with every step."""
    size = [*x.shape]
    size[axis] = (w.out - 1) * w.stride + w.window
    if size[axis] == w.size and not w.pad:
        run = x
    else:
        run = np.full(size, start, x.dtype)
        n = min(w.size, size[axis] - w.pad)
        run[_at(axis, slice(w.pad, w.pad + n))] = x[_at(axis, slice(0, n))]
    have = 1
    while have < w.window:
        step = min(have, w.window - have)
        n = run.shape[axis] - step
        run = np.maximum(run[_at(axis, slice(0, n))], run[_at(axis, slice(step, step + n))])
        have += step
    return run[_at(axis, slice(None, None, w.stride))] if w.stride > 1 else run


def _maximum(x: Array, axes: tuple[int, int], windows: tuple[Window, Window], start: float) -> Array:
    out = x
    for axis, w in zip(axes, windows, strict=True):
        steps = (w.window - 1).bit_length()
        if w.out > 1 and w.window <= w.size and w.stride * steps < w.window - 1:
            out = _double(out, axis, w, start)
        else:
            out = _sweep(out, axis, w, np.maximum, start, x.dtype)
    return out


def _sum(x: Array, axes: tuple[int, int], windows: tuple[Window, Window], dtype: type) -> Array:
    out = x
    for axis, w in zip(axes, windows, strict=True):
        out = _sweep(out, axis, w, np.add, 0, np.dtype(dtype))
    return out


def _sum_rounded(
    x: Array, axes: tuple[int, int], windows: tuple[Window, Window], cut: Callable[[Array], Array]
) -> Array:
    """Sum row by row through the window, rounding to the half-width type after every element."""
    h, w = axes
    shape = [*x.shape]
    shape[h], shape[w] = windows[0].out, windows[1].out
    out = np.zeros(shape, x.dtype)
    rows, cols = list(windows[0].taps()), list(windows[1].taps())
    for _, to_h, from_h in rows:
        into, row = out[_at(h, to_h)], x[_at(h, from_h)]
        for _, to_w, from_w in cols:
            view = into[_at(w, to_w)]
            view[...] = cut(np.add(view, row[_at(w, from_w)], dtype=np.float32))
    return out


def _half_away(total: Array, count: Array | np.float32) -> Array:
    """Round the float32 quotient to the nearest integer, halves away from zero."""
    q = (total.astype(np.float32) / count).astype(np.float64)
    return np.copysign(np.floor(np.abs(q) + 0.5), q)


def pool(
    x: Array,
    dtype: DType,
    mode: PoolingMode,
    axes: tuple[int, int],
    windows: tuple[Window, Window],
    exact: bool = False,
) -> Array:
    """Take the maximum or average of the windows along two axes.

    Semantics of MegEngine's pooling (dnn naive and x86): AVERAGE divides by the full window and counts
    padding as zero (the zero point of asymmetric types), AVERAGE_COUNT_EXCLUDE_PADDING divides by the
    number of elements present. Quantized averages round halves away from zero, a plain int8 AVERAGE is cut
    towards zero; float16 and bfloat16 sums are rounded after every element. The maximum of a float window is
    at least the type's lowest finite number; a NaN makes its windows NaN.

    Args:
        x: array of the storage dtype of `dtype`.
        axes: the row axis and the column axis.
        exact: whether the maximum may be minus infinity.

    Raises:
        ValueError: a window of MAX or AVERAGE_COUNT_EXCLUDE_PADDING that holds padding only.

    >>> x = np.arange(16, dtype="f4").reshape(1, 1, 4, 4)
    >>> two = Window(4, 2, 2, 0)
    >>> pool(x, DType("Float32"), PoolingMode.MAX, (2, 3), (two, two)).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """
    if mode == PoolingMode.MAX:
        return _pool_max(x, dtype, axes, windows, exact)
    exclude = mode == PoolingMode.AVERAGE_COUNT_EXCLUDE_PADDING
    if exclude and any(w.empty for w in windows):
        raise ValueError(_outside(windows))
    area = windows[0].window * windows[1].window
    ndim, (h, w) = x.ndim, axes
    present = windows[0].counts().reshape((-1,) + (1,) * (ndim - 1 - h)) * windows[1].counts().reshape(
        (-1,) + (1,) * (ndim - 1 - w)
    )
    count = present.astype(np.float32) if exclude else np.float32(area)
    if dtype.name == "Float32":
        total = _sum(x, axes, windows, np.float32)
        return np.asarray(total / count)
    if dtype.is_float:
        cut = round_bfloat16 if dtype.name == "BFloat16" else round_half
        total = _sum_rounded(x, axes, windows, cut)
        return cut(total.astype(np.float32) / cut(np.asarray(count)).astype(np.float32))
    if dtype.is_asymmetric and not exclude:
        # Only the padded part of a window holds the zero point.
        total = _sum(x, axes, windows, np.int32) + (area - present) * dtype.zero_point
    else:
        total = _sum(x, axes, windows, np.int32)
    if dtype.name == "Int8" and not exclude:
        size = np.abs(total.astype(np.int64)) // area
        return np.copysign(size, total).astype(np.int8)
    low, high = dtype.range if dtype.is_quantized else (-128, 127)
    return np.clip(_half_away(total, count), low, high).astype(dtype.np)


def _pool_max(
    x: Array, dtype: DType, axes: tuple[int, int], windows: tuple[Window, Window], exact: bool
) -> Array:
    start = -np.inf if exact and dtype.is_float else lowest(dtype)
    if any(w.empty for w in windows):
        # MegEngine's 2x2 kernel gives the lowest number here; its others crash or give what memory holds.
        small = all(w.window == 2 and w.stride == 2 for w in windows) and dtype.name == "Float32"
        if not small:
            raise ValueError(_outside(windows))
    out = _maximum(x, axes, windows, start)
    if dtype.is_float and not exact:
        out = np.maximum(out, x.dtype.type(start), out=out if out.base is None and out is not x else None)
    return out


def _outside(windows: tuple[Window, Window]) -> str:
    h, w = windows
    return (
        f"a pooling window of {h.window}x{w.window} lies wholly in the padding of {h.pad}x{w.pad} "
        f"around {h.size}x{w.size}"
    )


def _windows(p: Pooling, shape: Shape) -> tuple[tuple[int, int], tuple[Window, Window]]:
    fmt = Format(p.format)
    if fmt not in _AXES:
        raise ValueError(f"pooling has no format {fmt.name}")
    ndim, h, w = _AXES[fmt]
    if len(shape) != ndim:
        raise ValueError(f"pooling of format {fmt.name} takes {ndim} dimensions, found {list(shape)}")
    rows = Window(shape[h], p.window_h, p.stride_h, p.pad_h)
    cols = Window(shape[w], p.window_w, p.stride_w, p.pad_w)
    return (h, w), (rows, cols)


def _replace(shape: Shape, axes: tuple[int, int], sizes: Sequence[int]) -> Shape:
    out = [*shape]
    out[axes[0]], out[axes[1]] = sizes
    return tuple(out)


def _dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if inputs[0].name not in _DTYPES:
        raise ValueError(f"pooling takes float, int8 or quantized data, found {inputs[0].name}")
    return (inputs[0],)


def _shape(s: ShapeCall) -> Sequence[Shape | None]:
    shape = s.shape(0)
    axes, windows = _windows(s.get(Pooling), shape)
    return (_replace(shape, axes, [w.out for w in windows]),)


def _flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    p = opr.get(Pooling)
    return prod(outputs[0]) * p.window_h * p.window_w


_MOST = 256
"""Elements of a window whose average of bytes is looked up."""


def _bind(c: Call, s: ShapeCall) -> Bound | None:
    """Bind pooling of bytes: the maximum of windows without padding, and the average over the whole of both axes."""
    p, dtype, shape = s.get(Pooling), c.inputs[0], s.shape(0)
    axes, windows = _windows(p, shape)
    bare = all(w.pad == 0 and w.out > 0 for w in windows) and 0 not in shape
    if dtype.np.itemsize != 1 or not bare:
        return None
    area = windows[0].window * windows[1].window
    if p.mode == PoolingMode.MAX:
        taps = [[_at(axis, at) for _, _, at in w.taps()] for axis, w in zip(axes, windows, strict=True)]
        if max(map(len, taps)) > _FEW or min(map(len, taps)) < 2:
            return None
        return lambda out, x: _folded(_folded(x, taps[0]), taps[1])
    if dtype.is_quantized and area <= _MOST and all(w.window == w.size for w in windows):
        low, high = dtype.range
        totals = np.arange(area * low, area * high + 1)
        table = np.clip(_half_away(totals, np.float32(area)), low, high).astype(dtype.np)
        first = area * low
        return lambda out, x: table.take(np.add.reduce(x, axes, np.intp, keepdims=True) - first)
    return None


_FEW = 4
"""Taps up to which a maximum is taken tap by tap."""


def _folded(x: Array, taps: Sequence[tuple[slice, ...]]) -> Array:
    """Take the maximum over some slices of an array."""
    out = np.maximum(x[taps[0]], x[taps[1]])
    for at in taps[2:]:
        np.maximum(out, x[at], out=out)
    return out


@kernel("PoolingV1", dtype=_dtype, shape=_shape, flops=_flops, bind=_bind)
def pooling(c: Call, x: Array) -> Array:
    """Pool [N, C, H, W], or the layout that the parameter `format` names."""
    p = c.get(Pooling)
    axes, windows = _windows(p, x.shape)
    return pool(x, c.inputs[0], p.mode, axes, windows, c.opr.exact)


def _adapt(p: AdaptivePooling, shape: Shape, want: Sequence[int]) -> tuple[tuple[int, int], list[Window]]:
    """Compute MegEngine's adaptive windows: all alike, stride floor(in / out), the window takes what is left."""
    fmt = Format(p.format)
    if fmt not in _ADAPTIVE:
        raise ValueError(f"adaptive pooling has no format {fmt.name}")
    ndim, h, w = _AXES[fmt]
    if len(shape) != ndim:
        raise ValueError(
            f"adaptive pooling of format {fmt.name} takes {ndim} dimensions, found {list(shape)}"
        )
    if len(want) not in (1, 2):
        raise ValueError(f"the output shape of adaptive pooling has 1 or 2 numbers, found {list(want)}")
    windows = []
    for axis, out in zip((h, w), (want[0], want[-1]), strict=True):
        size = shape[axis]
        if not 1 <= out <= size:
            raise ValueError(f"adaptive pooling cannot make {out} of {size} elements along axis {axis}")
        stride = size // out
        windows.append(Window(size, size - (out - 1) * stride, stride, 0))
    return (h, w), windows


def pool_windows(
    p: Pooling | AdaptivePooling, shape: Shape, *want: Array
) -> tuple[tuple[int, int], Sequence[Window]]:
    """Return the two axes that are pooled and their windows; `want` is the output size of adaptive pooling.

    Raises:
        ValueError: a shape or format that the operator does not take.

    >>> pool_windows(Pooling(window_h=3, stride_h=2), (1, 1, 7, 8))[1][0].out
    3
    """
    if isinstance(p, Pooling):
        return _windows(p, shape)
    return _adapt(p, shape, [int(n) for v in want for n in v.reshape(-1)])


def _adaptive_shape(s: ShapeCall) -> Sequence[Shape | None]:
    shape = s.shape(0)
    axes, windows = _adapt(s.get(AdaptivePooling), shape, s.ints(1))
    return (_replace(shape, axes, [w.out for w in windows]),)


def _adaptive_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    _, h, w = _AXES[Format(opr.get(AdaptivePooling).format)]
    area = 1
    for axis in (h, w):
        size, out = inputs[0][axis], outputs[0][axis]
        area *= size - (out - 1) * (size // out)
    return prod(outputs[0]) * area


@kernel("AdaptivePoolingV1", dtype=_dtype, shape=_adaptive_shape, flops=_adaptive_flops)
def adaptive_pooling(c: Call, x: Array, out_shape: Array) -> Array:
    """Pool to the size in the second input, int32 [OH, OW] or [size]."""
    p = c.get(AdaptivePooling)
    axes, (rows, cols) = _adapt(p, x.shape, [int(v) for v in out_shape.reshape(-1)])
    return pool(x, c.inputs[0], p.mode, axes, (rows, cols), c.opr.exact)
