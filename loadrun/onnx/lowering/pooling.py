"""Pooling over windows and over everything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations

import numpy as np

from ...build import emit as e
from ...graph import params as P
from ...tensors import Tensor, apply1
from ...tensors.symbolic import largest, least
from ..call import NodeCall, lower
from ..values import INT64, UnsupportedNodeError, Value
from .convolution import WindowGeometry, padding_of, window_of
from .padding import pad_with
from .parts import M, cast, const_like, is_open, transposed
from .reductions import extreme, mean
from .shapes import product

__all__ = ["averaged", "pooling_window"]


def pooling_window(c: NodeCall, x: Tensor) -> tuple[WindowGeometry, list[tuple[int, int]]]:
    """The window with its pads, and what the last windows of ``ceil_mode`` need behind them."""
    kernel = c.ints("kernel_shape")
    if not kernel or len(kernel) != x.ndim - 2:
        raise UnsupportedNodeError(f"kernel_shape must name {x.ndim - 2} axes, found {kernel}")
    window = window_of(c, kernel)
    window.pads = padding_of(c, window, x.shape[2:])
    beyond: list[tuple[int, int]] = []
    for size, (a, b), reach, s in zip(
        x._tuple_shape[2:], window.pads, window.reach, window.strides, strict=True
    ):
        room = size + int(a) + int(b) - reach
        if room < 0:
            raise UnsupportedNodeError(
                f"a window of {reach} is larger than what it moves over ({room + reach})"
            )
        more = 0
        if c.number("ceil_mode") and s > 1:
            more = _beyond(x.shape[2 + len(beyond)] if c.importer.open_sizes else size, a, b, reach, s)
        beyond.append((0, more))
    return window, beyond


def _beyond(size: int, a: int, b: int, reach: int, s: int) -> int:
    """What the last window needs behind the data and the pads, of any size.

    A window that would begin behind the data and the pads in front is left out.
    """
    room = size + a + b - reach
    steps = (room + s - 1) // s
    begun = (size + a - 1) // s
    steps = least(steps, begun) if is_open(steps, begun) else min(steps, begun)
    more = steps * s + reach - (size + a + b)
    return largest(more, 0) if is_open(more) else max(more, 0)


def _even(window: WindowGeometry, beyond: Sequence[tuple[int, int]]) -> bool:
    """Whether there is as much padding before as behind, at any size."""
    if is_open(*(w for pair in (*window.pads, *beyond) for w in pair)):
        return False
    return all(a == b for a, b in window.pads) and not any(b for _, b in beyond)


def _lowest(x: Tensor) -> float:
    return -np.inf if x._dtype.is_float else float(np.iinfo(x._dtype.np).min)


def _widths(pads: Sequence[tuple[int, int]], beyond: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(0, 0), (0, 0), *((a, b + more) for (a, b), (_, more) in zip(pads, beyond, strict=True))]


@lower("MaxPool")
def _max_pool(c: NodeCall) -> Tensor | tuple[Tensor, Value]:
    x = c.t(0)
    window, beyond = pooling_window(c, x)
    if len(c.wanted) > 1 and c.wanted[1]:
        return _max_with_places(c, x, window, beyond)
    return max_pooled(x, window, beyond)


def max_pooled(x: Tensor, window: WindowGeometry, beyond: Sequence[tuple[int, int]]) -> Tensor:
    """The largest of every window; what is padded counts as nothing."""
    plain = _even(window, beyond)
    small = all(a < k for (a, _), k in zip(window.pads, window.kernel, strict=True))
    if x.ndim == 4 and plain and small and window.dilations == [1, 1] and _pools(x):
        return _pooled(x, window, [a for a, _ in window.pads], P.PoolingMode.MAX)
    x = pad_with(x, _widths(window.pads, beyond), "constant", _lowest(x))
    if x.ndim == 4 and window.dilations == [1, 1] and _pools(x):
        return _pooled(x, window, [0, 0], P.PoolingMode.MAX)
    for i in range(x.ndim - 2):
        steps = [_step(x, 2 + i, k, window, i) for k in range(window.kernel[i])]
        found = steps[0]
        for other in steps[1:]:
            found = e.elem(M.MAX, found, other)
        x = found
    return x


def _pools(x: Tensor) -> bool:
    return x._dtype.name in ("Float32", "Float16", "Int8")


def _step(x: Tensor, axis: int, k: int, window: WindowGeometry, i: int) -> Tensor:
    """What the window's `k`-th tap meets along one axis."""
    s, d, reach = window.strides[i], window.dilations[i], window.reach[i]
    last = k * d - reach + 1
    step = None if s == 1 else s
    return e.subtensor(x, [(axis, k * d or None, last if last < 0 else None, step, None)])


def _pooled(x: Tensor, window: WindowGeometry, pads: Sequence[int], mode: P.PoolingMode) -> Tensor:
    (h, w), (sh, sw), (ph, pw) = window.kernel, window.strides, pads
    param = P.Pooling(mode=mode, window_h=h, window_w=w, stride_h=sh, stride_w=sw, pad_h=ph, pad_w=pw)
    return apply1("PoolingV1", param, inputs=[x])


def _max_with_places(
    c: NodeCall, x: Tensor, window: WindowGeometry, beyond: Sequence[tuple[int, int]]
) -> tuple[Tensor, Value]:
    """The largest of every window, and where it stands in the whole tensor."""
    n = x.ndim - 2
    widths = _widths(window.pads, beyond)
    sizes = list(x.shape[2:])
    cells = e.arange(product(sizes))
    if c.number("storage_order"):
        grid = transposed(e.reshape(cells, sizes[::-1]), range(n - 1, -1, -1))
    else:
        grid = e.reshape(cells, sizes)
    grid = pad_with(grid, widths[2:], "constant", -1.0)
    padded = pad_with(x, widths, "constant", _lowest(x))
    values, places = [], []
    for taps in combinations(*(range(k) for k in window.kernel)):
        part, at = padded, e.add_axes(grid, [0, 1])
        for i in range(n):
            part, at = _step(part, 2 + i, taps[i], window, i), _step(at, 2 + i, taps[i], window, i)
        values.append(e.add_axes(part, [0]))
        places.append(e.add_axes(at, [0]))
    stacked, where = e.concat(values, 0), e.concat(places, 0)
    wide = cast(stacked, "float32") if not stacked._dtype.is_float else stacked
    best = e.drop_axes(apply1("Argmax", P.Axis(axis=0), inputs=[wide], scalar=False), [0])
    largest = extreme(stacked, True, [0])
    rest = e.drop_axes(where, [1, 2]) if n else where
    axes = [(0, best)]
    for i in range(n):
        shape = [1] * (n + 2)
        shape[2 + i] = -1
        axes.append((1 + i, e.reshape(e.arange(largest.shape[2 + i]), shape)))
    inside = e.gather(rest, axes)
    area = product(x.shape[2:])
    channels = e.reshape(e.arange(x.shape[1]), (1, -1, *[1] * n))
    batch = e.reshape(e.arange(x.shape[0]), (-1, 1, *[1] * n))
    row = e.elem(M.ADD, e.elem(M.MUL, batch, e.like(x.shape[1], batch)), channels)
    result = e.elem(M.ADD, e.elem(M.MUL, row, e.like(area, row)), inside)
    return largest, Value(INT64, result)


# Averages


def averaged(
    x: Tensor, window: WindowGeometry, beyond: Sequence[tuple[int, int]], *, include: bool
) -> Tensor:
    """The mean of every window over the cells that count: the data, and the declared pads if `include`."""
    kind = x._dtype
    wide = cast(x, "float32")
    even = _even(window, beyond)
    modes = P.PoolingMode
    mode = modes.AVERAGE if include else modes.AVERAGE_COUNT_EXCLUDE_PADDING
    small = all(a < k for (a, _), k in zip(window.pads, window.kernel, strict=True))
    if x.ndim == 4 and even and small and window.dilations == [1, 1]:
        return cast(_pooled(wide, window, [a for a, _ in window.pads], mode), kind)
    total = _summed(pad_with(wide, _widths(window.pads, beyond), "constant"), window)
    ones = e.full(const_like(1.0, wide), (1, 1, *x.shape[2:]))
    nothing = [(0, 0)] * (x.ndim - 2)
    ones = pad_with(ones, _widths(window.pads, nothing), "constant", 1.0 if include else 0.0)
    ones = pad_with(ones, _widths(nothing, beyond), "constant")
    return cast(e.elem(M.TRUE_DIV, total, _summed(ones, window)), kind)


def _summed(x: Tensor, window: WindowGeometry) -> Tensor:
    """The sum of every window, axis by axis."""
    for i in range(x.ndim - 2):
        found: Tensor | None = None
        for k in range(window.kernel[i]):
            part = _step(x, 2 + i, k, window, i)
            found = part if found is None else e.elem(M.ADD, found, part)
        assert found is not None
        x = found
    return x


@lower("AveragePool")
def _average_pool(c: NodeCall) -> Tensor:
    x = c.t(0)
    window, beyond = pooling_window(c, x)
    return averaged(x, window, beyond, include=bool(c.number("count_include_pad")))


@lower("LpPool")
def _lp_pool(c: NodeCall) -> Tensor:
    x = c.t(0)
    window, beyond = pooling_window(c, x)
    p = c.number("p", 2) if c.opset >= 2 else c.real("p", 2.0)
    wide = pad_with(_power(cast(x, "float32"), p), _widths(window.pads, beyond), "constant")
    return cast(_root(_summed(wide, window), p), x._dtype)


def _power(x: Tensor, p: float) -> Tensor:
    if p == 2:
        return e.elem(M.SQUARE, x)
    y = e.elem(M.ABS, x)
    return y if p == 1 else apply1("PowC", P.PowC(exp=float(p)), inputs=[y])


def _root(x: Tensor, p: float) -> Tensor:
    if p == 2:
        return e.elem(M.SQRT, x)
    return x if p == 1 else apply1("PowC", P.PowC(exp=1.0 / p), inputs=[x])


# Everything


def _space(x: Tensor) -> list[int]:
    return list(range(2, x.ndim))


@lower("GlobalAveragePool")
def _global_average(c: NodeCall) -> Tensor:
    x = c.t(0)
    return mean(x, _space(x))


@lower("GlobalMaxPool")
def _global_max(c: NodeCall) -> Tensor:
    x = c.t(0)
    return e.add_axes(extreme(x, True, _space(x)), _space(x))


@lower("GlobalLpPool")
def _global_lp(c: NodeCall) -> Tensor:
    x = c.t(0)
    p = c.number("p", 2) if c.opset >= 2 else c.real("p", 2.0)
    total = e.reduce(_power(cast(x, "float32"), p), P.ReduceMode.SUM, _space(x))
    return cast(e.add_axes(_root(total, p), _space(x)), x._dtype)


@lower("MaxUnpool")
def _max_unpool(c: NodeCall) -> Tensor:
    """Values back at the places that they came from, of a tensor that may be larger than inferred."""
    x, at = c.t(0), cast(c.t(1), "int32")
    kernel = c.ints("kernel_shape") or []
    n = len(kernel)
    window = window_of(c, kernel)
    pads = padding_of(c, window, x.shape[2:])
    inferred = [
        (i - 1) * s - a - b + k
        for i, s, (a, b), k in zip(x.shape[2:], window.strides, pads, kernel, strict=True)
    ]
    target = c.integers(2, "output_shape")[-n:] if c.has(2) else inferred
    shape = x.shape[:2]
    empty = e.full(const_like(0, x), (product((*shape, *inferred)),))
    flat = e.scatter(empty, e.flat(x), [(0, e.flat(at))])
    y = e.reshape(flat, (*shape, *inferred))
    widths = [(0, 0), (0, 0), *((0, t - i) for t, i in zip(target, inferred, strict=True))]
    return pad_with(y, widths, "constant")
