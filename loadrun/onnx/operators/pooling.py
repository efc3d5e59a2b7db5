"""Pooling over windows, and global pooling."""

from collections.abc import Callable
from math import prod
from typing import Any

from ...arrays.names import kernel, np
from ...base.registry import late
from ...graph.composite import Flag, Known, NodeTypes
from ...graph.dtypes import Array
from . import operator
from .common import refuse_unless, refuse_where, taking
from .convolution import laid_out
from .windows import SPACE, Ints, SpatialWindow, given_pads, spaced, window_of

with late(__name__):
    from . import indexing

CONTRIB = "com.microsoft"
POOL = {**SPACE, "ceil_mode": 0}


def pooling_window(
    x: Array,
    kernel_shape: Ints,
    *,
    strides: Ints = None,
    dilations: Ints = None,
    auto_pad: str = "NOTSET",
    pads: Ints = None,
    ceil_mode: Flag = 0,
    **others: object,
) -> SpatialWindow:
    """Return the window over (N, C, ...), with as many positions as ``ceil_mode`` asks for.

    Raises:
        ValueError: attributes that contradict each other, or a window larger than its input.
    """
    sizes = x.shape[2:]
    kernel = kernel_shape or []
    fits = len(kernel) == len(sizes) > 0
    refuse_unless(fits, f"kernel_shape must name {len(sizes)} axes, found {kernel_shape}")
    window = window_of(sizes, kernel, strides=strides, dilations=dilations, auto_pad=auto_pad, pads=pads)
    refuse_unless(
        not auto_pad.startswith("SAME") or {*window.dilations} <= {1},
        "ONNX Runtime pads to the same size as if there were no dilations, ONNX's shape inference with them: give pads",
    )
    out, around = list(window.out), list(window.pads)
    for i, (size, s, r) in enumerate(zip(sizes, window.strides, window.reach, strict=True)):
        a, b = around[i]
        refuse_unless(size + a + b >= r, f"a window of {r} is larger than its input ({size + a + b})")
        if auto_pad.startswith("SAME") and s > r + 1:
            # ONNX Runtime leaves out half of what windows shorter than their stride do not reach.
            rest = (size - 1) % s + 1 - r - (auto_pad == "SAME_LOWER")
            around[i] = (a - max(rest, 0) // 2, b)
        if ceil_mode:
            # A window that would begin after the data and the pads in front is left out.
            out[i] = min(-(-(size + a + b - r) // s), (size + a - 1) // s) + 1
    return window._replace(pads=tuple(around), out=tuple(out))


def pooled_shape(x: Array, *, kernel_shape: Ints = None, **space: Any) -> tuple[int, ...]:
    """Return the shape of the results of all windows."""
    return (*x.shape[:2], *pooling_window(x, kernel_shape, **space).out)


@kernel
def folded(x: Array, window: SpatialWindow, fold: Callable[[Array, Array], Array], start: float) -> Array:
    """Fold the elements of all windows, one axis of space after the other; pads hold a number to start with."""
    for i, (k, s, d) in enumerate(zip(window.kernel, window.strides, window.dilations, strict=True)):
        axis, out = 2 + i, window.out[i]
        if k == s == 1 and not any(window.pads[i]):
            continue
        x = seen(x, axis, window, i, start)
        total: Array | None = None
        for tap in range(k):
            where = slice(tap * d, tap * d + (out - 1) * s + 1, s)
            part = x[(slice(None),) * axis + (where,)]
            total = part if total is None else fold(total, part)
        assert total is not None
        x = total
    return x


def seen(x: Array, axis: int, window: SpatialWindow, i: int, value: float) -> Array:
    """Return what the windows along one axis of space see, as long as they reach."""
    before = window.pads[i][0]
    if before < 0:
        x = x[(slice(None),) * axis + (slice(-before, None),)]
    before = max(before, 0)
    length = (window.out[i] - 1) * window.strides[i] + window.reach[i]
    after = max(length - before - x.shape[axis], 0)
    if not before and not after:
        return x
    widths = [(before, after) if a == axis else (0, 0) for a in range(x.ndim)]
    return np.pad(x, widths, constant_values=value)


def _lowest(dtype: np.dtype[Any]) -> float:
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


@operator("MaxPool", out=(0, "Int64"), shape=lambda x, **how: [pooled_shape(x, **how)] * 2)
@taking(**POOL)
def max_pool(
    x: Array, *, storage_order: Flag = 0, types: NodeTypes | None = None, **space: Any
) -> Array | tuple[Array, Array]:
    """Take the largest element of every window, and its place in the tensor."""
    window = pooling_window(x, **space)
    if types is not None and types.wanted[1:] == (True,):
        return _max_with_places(x, window, bool(storage_order))
    y = folded(x, window, np.maximum, _lowest(x.dtype))
    return y if types is None or len(types.wanted) < 2 else (y, np.zeros(y.shape, np.int64))


def _max_with_places(x: Array, window: SpatialWindow, columns: bool) -> tuple[Array, Array]:
    """Return the maxima and their places; by columns, the first axis of space runs fastest in a channel."""
    sizes, n = window.sizes, len(window.sizes)
    cells = np.arange(prod(sizes))
    inside = cells.reshape(sizes[::-1]).transpose() if columns else cells.reshape(sizes)
    rows = np.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * n)
    best, place = x, rows * prod(sizes) + inside
    # The last axis first: of equal values the one that stands first in the memory is kept.
    for i in range(n - 1, -1, -1):
        axis, s, d = 2 + i, window.strides[i], window.dilations[i]
        values, places = seen(best, axis, window, i, _lowest(x.dtype)), seen(place, axis, window, i, -1)
        for tap in range(window.kernel[i]):
            index = (*(slice(None),) * axis, slice(tap * d, tap * d + (window.out[i] - 1) * s + 1, s))
            value, at = values[index], places[index]
            better = (value > best) | (place < 0) if tap else None
            best = value if better is None else np.where(better, value, best)
            place = at if better is None else np.where(better, at, place)
    return best, place


@operator("AveragePool", shape=pooled_shape)
@taking(**POOL)
def average_pool(x: Array, *, count_include_pad: Flag = 0, **space: Any) -> Array:
    """Take the mean of every window, with or without its pads."""
    window = pooling_window(x, **space)
    return folded(x, window, np.add, 0) / counted(window, include=bool(count_include_pad)).astype(x.dtype)


def counted(window: SpatialWindow, *, include: bool) -> Array:
    """Count the elements of the windows, with their pads or without; what is beyond the pads never counts."""
    total = np.ones((1,) * len(window.out), np.int64)
    for i, (k, s, d) in enumerate(zip(window.kernel, window.strides, window.dilations, strict=True)):
        (before, after), size = window.pads[i], window.sizes[i]
        at = np.arange(window.out[i])[:, None] * s - before + np.arange(k) * d
        low, high = (-before, size + after) if include else (0, size)
        count = ((at >= min(low, 0)) & (at < high)).sum(1)
        total = total * count.reshape([-1 if a == i else 1 for a in range(len(window.out))])
    return total


def _power(x: Array, p: float) -> Array:
    refuse_unless(p > 0, f"its p is {p:g}, expected more than 0")
    return x * x if p == 2 else np.abs(x) if p == 1 else np.abs(x) ** p


def _root(x: Array, p: float) -> Array:
    return np.sqrt(x) if p == 2 else x if p == 1 else x ** (1 / p)


@operator("LpPool", shape=pooled_shape)
@taking(**POOL)
def lp_pool(x: Array, *, p: float = 2, **space: Any) -> Array:
    """Take the p-norm of every window."""
    return _root(folded(_power(x, p), pooling_window(x, **space), np.add, 0), p)


# Global pooling


def _space(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


def of_channels(x: Array, *others: Array | None, p: float = 2) -> tuple[int, ...]:
    """Return the shape of what is one number for each channel."""
    return *x.shape[:2], *(1,) * (x.ndim - 2)


operator("GlobalAveragePool", shape=of_channels)(lambda x: x.mean(_space(x), keepdims=True))
operator("GlobalMaxPool", shape=of_channels)(lambda x: x.max(_space(x), keepdims=True))


@operator("GlobalLpPool", shape=of_channels)
def global_lp(x: Array, *, p: float = 2) -> Array:
    """Take the p-norm over space."""
    return _root(_power(x, p).sum(_space(x), keepdims=True), p)


# Back from the largest


def _unpooled_shape(
    x: Array,
    places: Array,
    output_shape: Known | None = None,
    *,
    kernel_shape: list[int],
    strides: Ints = None,
    pads: Ints = None,
) -> tuple[int, ...]:
    steps, _ = spaced(kernel_shape, strides, None)
    around = given_pads(pads, len(kernel_shape))
    inferred = [
        (i - 1) * s - a - b + k
        for i, s, (a, b), k in zip(x.shape[2:], steps, around, kernel_shape, strict=True)
    ]
    if output_shape is not None:
        target = [int(n) for n in output_shape][-len(inferred) :]
        if target != inferred:
            raise ValueError(
                f"its output_shape asks for {target} where {inferred} follow from the window; ONNX and ONNX Runtime "
                "put values in different places there"
            )
    return (*x.shape[:2], *inferred)


@operator("MaxUnpool", since=9, shape=_unpooled_shape)
def max_unpool(
    x: Array,
    places: Array,
    output_shape: Known | None = None,
    *,
    kernel_shape: list[int],
    strides: Ints = None,
    pads: Ints = None,
) -> Array:
    """Put values back at the places that they came from, zeros elsewhere."""
    shape = _unpooled_shape(x, places, output_shape, kernel_shape=kernel_shape, strides=strides, pads=pads)
    size, at = prod(shape), places.reshape(-1)

    refuse_where((at < 0) | (at >= size), f"some of its indices are no places of {size}")
    return indexing.combined(np.zeros(size, x.dtype), (at,), x.reshape(-1), "none").reshape(shape)


operator("NhwcMaxPool", domain=CONTRIB, shape=laid_out(pooled_shape, 1))(laid_out(max_pool, 1))
