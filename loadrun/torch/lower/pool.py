"""Pooling of one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...build import emit as e
from ...build import nn as F
from ...tensors import least
from ..call import FxCall
from ..registry import aten
from ..values import arr, ten

__all__: list[str] = []


def _many(value: Any, n: int, default: Sequence[int] = ()) -> list[int]:
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    given = given or list(default)
    return [int(v) for v in (given * n if len(given) == 1 else given)]


class _Window:
    """Where the windows of a pooling lie.

    Attributes:
        front, back: padding before and behind each axis; `back` has what ceil_mode adds.
    """

    def __init__(
        self, call: FxCall, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
    ) -> None:
        self.n = n
        self.kernel = _many(kernel, n)
        self.stride = _many(stride, n, self.kernel)
        self.front = _many(padding, n)
        self.dilation = _many(dilation, n)
        self.back = list(self.front)
        self.outer = len(call.given(0)) - n
        out = call.shape[self.outer :]
        self.ceil = ceil
        self.fixed = all(isinstance(n, int) for n in (*call.given(0)[self.outer :], *out))
        if ceil and not self.fixed:
            # Wide enough for one more window, whatever the size.
            self.back = [n + s - 1 for n, s in zip(self.front, self.stride, strict=True)]
        elif ceil:
            sizes = call.given(0)[self.outer :]
            for i, (size, want) in enumerate(zip(sizes, out, strict=True)):
                reach = (want - 1) * self.stride[i] + self.dilation[i] * (self.kernel[i] - 1) + 1
                self.back[i] = max(reach - size - self.front[i], self.front[i])

    @property
    def plain(self) -> bool:
        """Whether MegEngine's pooling has these windows."""
        return self.back == self.front and set(self.dilation) == {1}

    def padded(self, x: Any, value: float) -> Any:
        """The input with all padding as elements."""
        widths = list(zip(self.front, self.back, strict=True))
        if not any(map(any, widths)):
            return x
        return np.pad(x, [(0, 0)] * self.outer + widths, constant_values=value)

    def taps(self, x: Any, call: FxCall) -> list[Any]:
        """For every place in a window the elements that lie there, all windows beside one another."""
        out = call.shape[self.outer :] if self.fixed else self.counts(x)
        result = [x]
        for axis, (k, s, d, n) in enumerate(zip(self.kernel, self.stride, self.dilation, out, strict=True)):
            before = (slice(None),) * (self.outer + axis)
            cuts = [slice(i * d, i * d + (n - 1) * s + 1, s) for i in range(k)]
            result = [part[before + (cut,)] for part in result for cut in cuts]
        return result

    def counts(self, padded: Any) -> list[Any]:
        """How many windows lie along each axis of a padded input whose size follows that of the graph."""
        found = []
        for i, n in enumerate(ten(padded).shape[self.outer :]):
            count = (n - self.dilation[i] * (self.kernel[i] - 1) - 1) // self.stride[i] + 1
            if self.ceil:
                # The last window begins in the input or in the padding before it.
                most = (n - self.back[i] - 1) // self.stride[i] + 1
                count = least(count, most)
            found.append(count)
        return found


def _as_images(x: Any, n: int, outer: int) -> tuple[Any, Any]:
    """The input as (N, C, H, W), for pooling over one or two axes, and its leading sizes."""
    result = ten(x)
    lead = result.shape[:outer]
    if n == 1:
        result = e.add_axes(result, [outer + 1])
    if outer == 1:
        result = e.add_axes(result, [0])
    return result, lead


def _from_images(y: Any, n: int, outer: int) -> Any:
    if outer == 1:
        y = e.drop_axes(y, [0])
    return e.drop_axes(y, [outer + 1]) if n == 1 else y


def _wide(values: Sequence[int], n: int, fill: int) -> list[int]:
    return [*values, fill] if n == 1 else list(values)


def _max_pooled(call: FxCall, x: Any, window: _Window) -> Any:
    floating = call.dtype.kind == "f"
    if window.n < 3 and window.plain and floating:
        found, _ = _as_images(x, window.n, window.outer)
        n = window.n
        y = F.max_pool2d(
            found, _wide(window.kernel, n, 1), _wide(window.stride, n, 1), _wide(window.front, n, 0)
        )
        return _from_images(y, n, window.outer)
    lowest = -np.inf if floating else np.iinfo(call.dtype).min
    taps = window.taps(window.padded(arr(x), lowest), call)
    best = taps[0]
    for tap in taps[1:]:
        best = np.maximum(best, tap)
    return best


@aten("aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool3d.default")
def max_pool(
    call: FxCall,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil: bool = False,
) -> Any:
    """Largest values of windows."""
    n = _dimensions(call)
    return _max_pooled(call, x, _Window(call, n, kernel, stride, padding, dilation, ceil))


def _places_are_read(call: FxCall) -> bool:
    """Whether something reads the second result of a pooling."""
    return any(u.args[1:] == (1,) and u.users for u in call.node.users)


def _dimensions(call: FxCall) -> int:
    name = str(call.node.target)
    return next(n for n in (1, 2, 3) if f"{n}d" in name)


@aten(
    "aten.max_pool1d_with_indices.default",
    "aten.max_pool2d_with_indices.default",
    "aten.max_pool3d_with_indices.default",
)
def max_pool_with_indices(
    call: FxCall,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil: bool = False,
) -> Any:
    """Largest values of windows, and their places in the flattened image."""
    n = _dimensions(call)
    window = _Window(call, n, kernel, stride, padding, dilation, ceil)
    if not _places_are_read(call):
        return _max_pooled(call, x, window), ten(np.int32(0))
    sizes = call.static(call.given(0)[window.outer :], "pooling with indices")
    numbers = np.arange(int(np.prod(sizes)), dtype=np.int32).reshape(sizes)
    flat = _Window(call, n, kernel, stride, padding, dilation, ceil)
    flat.outer = 0
    shape, outer = call.shape, window.outer
    padded = np.pad(numbers, list(zip(flat.front, flat.back, strict=True)))
    places = [padded]
    for axis in range(n):
        cuts = [
            slice(
                i * flat.dilation[axis],
                i * flat.dilation[axis] + (shape[outer + axis] - 1) * flat.stride[axis] + 1,
                flat.stride[axis],
            )
            for i in range(flat.kernel[axis])
        ]
        places = [p[(slice(None),) * axis + (cut,)] for p in places for cut in cuts]
    taps = window.taps(
        window.padded(arr(x), -np.inf if call.dtype.kind == "f" else np.iinfo(call.dtype).min), call
    )
    best, where = taps[0], np.zeros_like(arr(taps[0], "int32")) + arr(places[0], "int32")
    for tap, place in zip(taps[1:], places[1:], strict=True):
        better = tap > best
        if call.dtype.kind == "f":
            better = better | np.isnan(tap)
        best, where = np.where(better, tap, best), np.where(better, arr(place, "int32"), where)
    return best, where


@aten("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    call: FxCall,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    count_include_pad: bool = True,
    divisor: Any = None,
) -> Any:
    """Means of windows."""
    n = _dimensions(call)
    window = _Window(call, n, kernel, stride, padding, 1, ceil)
    whole = call.dtype.kind != "f"
    if n < 3 and window.plain and divisor is None and not whole:
        found, _ = _as_images(x, n, window.outer)
        mode = "average" if count_include_pad else "average_count_exclude_padding"
        y = F.avg_pool2d(
            found, _wide(window.kernel, n, 1), _wide(window.stride, n, 1), _wide(window.front, n, 0), mode
        )
        return _from_images(y, n, window.outer)
    taps = window.taps(window.padded(arr(x), 0), call)
    total = taps[0]
    for tap in taps[1:]:
        total = total + tap
    if whole:
        # Rounded towards zero; sums of integers are exact.
        sizes = call.static(call.given(0)[window.outer :], "average pooling of integers")
        counts = _counts(window, sizes, call.shape[window.outer :], count_include_pad)
        by = arr(counts if divisor is None else divisor, call.dtype)
        return np.sign(total) * (np.absolute(total) // by)
    if divisor is not None:
        return total / np.float32(divisor)
    if not window.fixed:
        return total / _following_counts(call, window, x, count_include_pad)
    sizes = [int(n) for n in call.given(0)[window.outer :]]
    return total / arr(_counts(window, sizes, call.shape[window.outer :], count_include_pad), call.dtype)


def _counts(window: _Window, sizes: Sequence[int], out: Sequence[int], padded: bool) -> Any:
    """How many elements every window has; what ceil_mode adds never counts."""
    result: Any = np.ones((), np.float32)
    for i, (size, n) in enumerate(zip(sizes, out, strict=True)):
        starts = np.arange(n) * window.stride[i] - window.front[i]
        ends = np.minimum(starts + window.kernel[i], size + window.front[i])
        if not padded:
            starts, ends = np.maximum(starts, 0), np.minimum(ends, size)
        result = result[..., None] * (ends - starts).astype(np.float32)
    return result


def _following_counts(call: FxCall, window: _Window, x: Any, padded: bool) -> Any:
    """The same where sizes follow the input, by adding ones up."""
    result: Any = np.float32(1)
    sizes = ten(x).shape[window.outer :]
    spread = ten(window.padded(arr(x), 0))
    for i, (n, count) in enumerate(zip(sizes, window.counts(spread), strict=True)):
        starts = arr(e.arange(count)) * window.stride[i] - window.front[i]
        ends = np.minimum(starts + window.kernel[i], arr(n, "int32") + window.front[i])
        if not padded:
            starts, ends = np.maximum(starts, 0), np.minimum(ends, arr(n, "int32"))
        column = [-1 if j == i else 1 for j in range(window.n)]
        result = arr(ends - starts, call.dtype).reshape(column) * result
    return result


def _edges(size: int, out: int) -> list[tuple[int, int]]:
    """Begin and end of torch's adaptive windows."""
    return [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


@aten(
    "aten.adaptive_avg_pool1d.default",
    "aten.adaptive_avg_pool2d.default",
    "aten.adaptive_avg_pool3d.default",
    "aten._adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool3d.default",
)
def adaptive_avg_pool(call: FxCall, x: Any, out: Any) -> Any:
    """Means of windows that divide an axis, which overlap where it cannot be divided."""
    n = _dimensions(call)
    shape = call.given(0)
    outer = len(shape) - n
    wanted = call.shape[outer:]
    values = arr(x, call.dtype)
    if all(isinstance(w, int) and w == 1 for w in wanted):
        return np.mean(values, axis=tuple(range(outer, len(shape))), keepdims=True)
    for axis, (size, want) in enumerate(zip(shape[outer:], wanted, strict=True), outer):
        if str(size) == str(want):
            continue
        if isinstance(want, int) and want == 1:
            values = np.mean(values, axis=axis, keepdims=True)
            continue
        if not isinstance(size, int):
            share = _following_shares(call, values.shape[axis], want)
            last = len(shape) - 1
            values = np.moveaxis(np.matmul(np.moveaxis(values, axis, last), share), last, axis)
            continue
        fixed, count = call.static([size, want], "adaptive pooling to more than one element")
        weights = np.zeros((fixed, count), np.float32)
        for i, (a, b) in enumerate(_edges(fixed, count)):
            weights[a:b, i] = 1 / (b - a)
        last = len(shape) - 1
        values = np.moveaxis(np.matmul(np.moveaxis(values, axis, last), arr(weights, call.dtype)), last, axis)
    return values


def _following_windows(size: Any, count: int) -> tuple[Any, Any, Any]:
    """Which elements of an axis whose size follows the input lie in each window, and where these begin and end."""
    n, number = arr(size, "int32"), np.arange(count, dtype=np.int32)
    starts = number * n // count
    ends = ((number + 1) * n + (count - 1)) // count
    place = arr(e.arange(size))[:, None]
    return (place >= starts) & (place < ends), starts, ends


def _following_shares(call: FxCall, size: Any, want: Any) -> Any:
    """The share that every element has in each window."""
    count = call.static([want], "the number of windows of adaptive pooling")[0]
    member, starts, ends = _following_windows(size, count)
    return arr(member, call.dtype) / arr(ends - starts, call.dtype)


@aten(
    "aten.adaptive_max_pool1d.default", "aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default"
)
def adaptive_max_pool(call: FxCall, x: Any, out: Any) -> Any:
    """Largest values of such windows, and their places in the flattened image."""
    n = _dimensions(call)
    shape = call.given(0)
    outer = len(shape) - n
    values = arr(x)
    indexed = _places_are_read(call)
    sizes = call.shape[outer:]
    if not indexed and all(isinstance(s, int) and s == 1 for s in sizes):
        return np.max(values, axis=tuple(range(outer, len(shape))), keepdims=True), ten(np.int32(0))
    if not indexed and not all(isinstance(n, int) for n in shape[outer:]):
        floor = -np.inf if call.dtype.kind == "f" else np.iinfo(call.dtype).min
        for axis, want in enumerate(sizes, outer):
            count = call.static([want], "the number of windows of adaptive pooling")[0]
            member, _, _ = _following_windows(values.shape[axis], count)
            spread = np.moveaxis(values, axis, -1)[..., None]
            best = np.max(np.where(member, spread, arr(floor, call.dtype)), axis=-2)
            values = np.moveaxis(best, -1, axis)
        return values, ten(np.int32(0))
    lengths = call.static(shape[outer:], "adaptive pooling to more than one element")
    rank = len(shape) - outer
    if not indexed:
        for axis, (size, want) in enumerate(zip(lengths, sizes, strict=True), outer):
            before = (slice(None),) * axis
            parts = [
                np.max(values[before + (slice(a, b),)], axis=axis, keepdims=True)
                for a, b in _edges(size, want)
            ]
            values = np.concatenate(parts, axis=axis)
        return values, ten(np.int32(0))
    edges = [_edges(size, want) for size, want in zip(lengths, sizes, strict=True)]
    numbers = np.arange(int(np.prod(lengths)), dtype=np.int32).reshape(lengths)
    best, where = [], []
    lead = values.shape[:outer]
    for cell in np.ndindex(*sizes):
        cut = tuple(slice(*edges[a][i]) for a, i in enumerate(cell))
        part = values[(slice(None),) * outer + cut].reshape((*lead, -1))
        places = numbers[cut].reshape(-1)
        best.append(np.max(part, axis=-1, keepdims=True))
        where.append(np.take(arr(places, "int32"), np.argmax(part, axis=-1, keepdims=True)))
    joined = [np.concatenate(v, axis=outer).reshape((*lead, *sizes)) for v in (best, where)]
    assert rank == n
    return joined[0], arr(joined[1], "int32")


@aten("aten.max_unpool2d.default", "aten.max_unpool3d.default")
def max_unpool(call: FxCall, x: Any, indices: Any, output_size: Any, *_: Any) -> Any:
    """Values put back to the places that they had before pooling."""
    n = _dimensions(call)
    shape = call.shape
    outer = len(shape) - n
    sizes = call.static(shape[outer:], "unpooling")
    rows = call.static(shape[:outer], "unpooling")
    size = int(np.prod(sizes))
    lead = int(np.prod(rows))
    flat = arr(x).reshape((lead, -1))
    places = arr(indices, "int32").reshape((lead, -1))
    target = np.zeros_like(flat[:, :1]) + arr(np.zeros((1, size)), call.dtype)
    np.put_along_axis(target, places, flat, axis=1)
    return target.reshape(shape)
