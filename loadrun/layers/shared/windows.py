"""Layers over windows of one to three axes: convolutions, pooling, and padding."""

from collections.abc import Callable, Sequence

import numpy as np

from ...graph import params as P
from ...ops.registry import check_recorded, pay
from ...tensors import Tensor, const
from ...tensors.access import dtype_of, static_shape
from ...tensors.convert import product_of
from ...tensors.symbolic import largest, least
from .. import conv, emit as e, windows as own
from ..emit import M
from .sizes import is_open, joined, of_length, per_channel


class WindowGeometry:
    """How a window moves over (N, C, ...), for each axis of space.

    Attributes:
        kernel: how many elements it takes.
        strides: from one window to the next.
        dilations: from one of its elements to the next.
        pads: what is added before and after.
        sizes: those of the axes, where they are the same in every run.
        beyond: what is added behind the pads, for a last window that would not be complete.
        cuts: what is left out in front, before the pads.
    """

    def __init__(
        self,
        kernel: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        pads: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self.kernel, self.strides, self.dilations = list(kernel), list(strides), list(dilations)
        self.pads = [(0, 0)] * len(self.kernel) if pads is None else list(pads)
        self.sizes: Sequence[int] | None = None
        self.beyond = [0] * len(self.kernel)
        self.cuts = [0] * len(self.kernel)

    @property
    def reach(self) -> list[int]:
        """How far a window reaches on each axis."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def even(self) -> bool:
        """Return whether there is as much padding before as behind, at any size."""
        if is_open(*self.beyond, *self.cuts, *(w for pair in self.pads for w in pair)):
            return False
        return all(a == b >= 0 for a, b in self.pads) and not any(self.beyond) and not any(self.cuts)

    def complete(self, sizes: Sequence[int]) -> None:
        """Let the last windows be complete ones, at sizes that may be open.

        A window that would begin after the data and the pads in front is left out.
        """
        for i, (size, (a, b), reach, s) in enumerate(
            zip(sizes, self.pads, self.reach, self.strides, strict=True)
        ):
            steps, begun = (size + a + b - reach + s - 1) // s, (size + a - 1) // s
            steps = least(steps, begun) if is_open(steps, begun) else min(steps, begun)
            more = steps * s + reach - (size + a + b)
            self.beyond[i] = 0 if s == 1 else largest(more, 0) if is_open(more) else max(more, 0)

    def padded(self, x: Tensor, value: float = 0.0) -> Tensor:
        """Return the input with all padding as elements."""
        cuts = [(2 + i, cut, None, None, None) for i, cut in enumerate(self.cuts) if is_open(cut) or cut]
        x = e.subtensor(x, cuts) if cuts else x
        widths = [(a, b + more) for (a, b), more in zip(self.pads, self.beyond, strict=True)]

        return pad(x, [(0, 0), (0, 0), *widths], value=value)

    def tap(self, x: Tensor, axis: int, i: int, k: int) -> Tensor:
        """Return what the `k`-th elements of the windows along the `i`-th axis of space meet on an axis of `x`."""
        s, d, reach = self.strides[i], self.dilations[i], self.reach[i]
        if reach == s == 1:
            return x
        last = k * d - reach + 1
        index = (axis, k * d or None, last if last < 0 else None, None if s == 1 else s, None)
        return e.subtensor(x, [index])


def with_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    """Return (N, C, ...) with one number added to every channel."""
    return y if bias is None else e.elem(M.ADD, y, per_channel(bias, y.ndim))


def grouped(weight: Tensor, groups: int) -> Tensor:
    """Return filters with an axis of groups in front, which MegEngine wants where there are several."""
    if groups == 1:
        return weight
    count, *rest = static_shape(weight)
    return e.folded(lambda w: e.reshape(w, (groups, count // groups, *rest)), weight)


def convolved(
    x: Tensor, weight: Tensor, window: WindowGeometry, groups: int = 1, bias: Tensor | None = None
) -> Tensor:
    """Convolve over one to three axes; float16 is summed in float32.

    Args:
        x: (N, C, ...), float.
        weight: (OC, C / groups, ...).
        window: strides, dilations and pads, which need not be even.
        groups: into how many parts the channels are divided.
        bias: (OC,).

    >>> convolved(Tensor([[[1.0, 2.0, 3.0]]]), Tensor([[[1.0, 1.0]]]), WindowGeometry([2], [1], [1], [(1, 0)])).tolist()
    [[[1.0, 3.0, 5.0]]]
    """
    if not window.even:
        x = window.padded(x)
        window = WindowGeometry(window.kernel, window.strides, window.dilations)
    before = [a for a, _ in window.pads]
    out = [
        (n + 2 * p - r) // s + 1
        for n, p, r, s in zip(static_shape(x)[2:], before, window.reach, window.strides, strict=True)
    ]
    if 0 in static_shape(x) or any(n < 1 for n in out):
        empty = (x.shape[0], static_shape(weight)[0], *(max(n, 0) for n in out))
        return with_bias(e.full(e.number(0, x), empty), bias)
    mode = "float32" if dtype_of(x).name == "Float16" else "default"
    filters = grouped(weight, groups)
    steps, spread = window.strides, window.dilations
    if len(out) == 1:
        y = conv.conv1d(x, filters, None, steps[0], before[0], spread[0], groups, compute_mode=mode)
    elif len(out) == 2:
        y = conv.conv2d(x, filters, None, steps, before, spread, groups, compute_mode=mode)
    else:
        wide, filters = e.as_float(x), e.as_float(filters)
        y = e.cast(conv.conv3d(wide, filters, None, steps, before, spread, groups), dtype_of(x))
    return with_bias(y, bias)


def transposed(
    x: Tensor,
    weight: Tensor,
    window: WindowGeometry,
    extra: list[int],
    groups: int = 1,
    bias: Tensor | None = None,
) -> Tensor:
    """Convolve transposed over one to three axes, in float32.

    Args:
        x: (N, C, ...), float.
        weight: (C, OC / groups, ...).
        window: strides, dilations, and what is cut off before and after, added where it is negative.
        extra: how many elements more there are behind each axis.
        groups: into how many parts the channels are divided.
        bias: (OC,).

    >>> transposed(Tensor([[[1.0, 2.0]]]), Tensor([[[1.0, 1.0]]]), WindowGeometry([2], [2], [1]), [1]).tolist()
    [[[1.0, 1.0, 2.0, 2.0, 0.0]]]
    """
    kind = dtype_of(x)
    wide, filters = e.as_float(x), grouped(e.folded(lambda w: e.as_float(w), weight), groups)
    own_ends = window.even and all(m < s for m, s in zip(extra, window.strides, strict=True))
    before = [a if own_ends else 0 for a, _ in window.pads]
    more = list(extra) if own_ends else [0] * len(before)
    steps, spread = window.strides, window.dilations
    if len(before) == 1:
        y = conv.conv_transpose2d(
            e.add_axes(wide, [3]),
            e.folded(lambda w: e.add_axes(w, [w.ndim]), filters),
            None,
            (steps[0], 1),
            (before[0], 0),
            (more[0], 0),
            (spread[0], 1),
            groups,
        )
        y = e.drop_axes(y, [3])
    else:
        function = conv.conv_transpose2d if len(before) == 2 else conv.conv_transpose3d
        y = function(wide, filters, None, steps, before, more, spread, groups)
    if not own_ends:
        widths = [(-a, m - b) for (a, b), m in zip(window.pads, extra, strict=True)]

        y = pad(y, [(0, 0), (0, 0), *widths])
    return with_bias(e.cast(y, kind), bias)


def padded(x: Tensor, widths: Sequence[tuple[int, int]], mode: str, value: float = 0.0) -> Tensor:
    """Return MegEngine's Padding, of booleans too; `mode` is "constant", "edge" or "reflect"."""
    if e.is_bool(x):
        return e.cast(padded(e.cast(x, "uint8"), widths, mode, value), "bool")
    return own.pad(x, widths, mode, value)


def pad(x: Tensor, widths: Sequence[tuple[int, int]], mode: str = "constant", value: float = 0.0) -> Tensor:
    """Add elements at the ends of axes; a negative width cuts off.

    Args:
        x: a tensor.
        widths: for each axis how many to add before and after. What follows from sizes stays computed from them;
            its sign is that of the sizes that are known.
        mode: "constant", "edge", "reflect" (the outermost element is not repeated) or "wrap".
        value: what "constant" adds.

    Raises:
        ValueError: an axis without elements has nothing to repeat.

    >>> pad(Tensor([[1.0, 2.0]]), [(0, 0), (3, -1)], "wrap").tolist()
    [[1.0, 1.0, 1.0, 1.0]]
    """
    for axis, (before, after) in enumerate(widths):
        if before < 0 or after < 0:
            begin = -before if before < 0 else None
            end = None if after >= 0 else x.shape[axis] + after if is_open(after) else after
            x = e.subtensor(x, [(axis, begin, end, None, None)])
    widths = [(0 if b < 0 else b, 0 if a < 0 else a) for b, a in widths]
    followed = is_open(*(w for pair in widths for w in pair))
    if not followed and not any(map(any, widths)):
        return x
    if mode == "constant" and 0 in static_shape(x):
        return e.full(e.number(value, x), [b + n + a for n, (b, a) in zip(x.shape, widths, strict=True)])
    # MegEngine's reflection takes less than the axis has.
    far = mode != "edge" and any(
        max(pair) >= n for n, pair in zip(static_shape(x), widths, strict=True) if any(pair)
    )
    # MegEngine's Padding holds its value in float32.
    large = dtype_of(x).np.itemsize == 4 and not dtype_of(x).is_float and abs(value) > 1 << 24
    if mode != "wrap" and not followed and not (far if mode == "reflect" else large):
        return padded(x, widths, mode, value)
    for axis, (before, after) in enumerate(widths):
        if before or after or is_open(before, after):
            x = _bordered(x, axis, before, after, mode, value, far=far)
    return x


def _bordered(x: Tensor, axis: int, before: int, after: int, mode: str, value: float, *, far: bool) -> Tensor:
    """Return one axis with its borders by indexing, or joined with a constant."""
    if mode == "constant":
        shape = list(x.shape)
        ends = [e.full(e.number(value, x), [*shape[:axis], w, *shape[axis + 1 :]]) for w in (before, after)]
        return joined([ends[0], x, ends[1]], axis)
    if not static_shape(x)[axis]:
        raise ValueError(f"axis {axis} is empty: the mode {mode!r} has nothing to repeat there")
    if far:
        x = of_length(x, axis)
        n = static_shape(x)[axis]
        pay(16 * (int(before) + n + int(after)))
        places = np.arange(-int(before), n + int(after))
        if mode == "wrap":
            places = places % n
        else:
            period = max(2 * (n - 1), 1)
            places = places % period
            places = np.where(places >= n, period - places, places)
        return e.gather(x, [(axis, const(places.astype(np.int32)))])
    size = x.shape[axis]
    at = e.arange(before + size + after)
    at = e.elem(M.SUB, at, e.like(before, at))
    last = e.like(size - 1, at)
    if mode == "wrap":
        width = e.like(size, at)
        at = e.elem(M.MOD, e.elem(M.ADD, at, width), width)
    elif mode == "edge":
        at = e.elem(M.MIN, e.elem(M.MAX, at, e.number(0, at)), last)
    else:
        beyond = e.elem(M.ABS, e.elem(M.SUB, last, e.elem(M.ABS, at)))
        at = e.elem(M.SUB, last, beyond)
    return e.gather(x, [(axis, at)])


def _lowest(x: Tensor) -> float:
    return -np.inf if dtype_of(x).is_float else float(np.iinfo(dtype_of(x).np).min)


def _has_operator(x: Tensor, window: WindowGeometry) -> bool:
    """Return whether MegEngine's pooling takes the windows, but for pads that are not even."""
    return x.ndim in (3, 4) and set(window.dilations) == {1}


def _small(window: WindowGeometry) -> bool:
    """Return whether every window has an element that is no padding, which MegEngine's pooling needs."""
    return window.even and all(a < k for (a, _), k in zip(window.pads, window.kernel, strict=True))


def _pooled(x: Tensor, window: WindowGeometry, function: Callable[..., Tensor], *mode: str) -> Tensor:
    """Apply MegEngine's pooling, of one axis too."""
    before = [a for a, _ in window.pads]
    if x.ndim == 4:
        return function(x, window.kernel, window.strides, before, *mode)
    geometry = (window.kernel[0], 1), (window.strides[0], 1), (before[0], 0)
    return e.drop_axes(function(e.add_axes(x, [3]), *geometry, *mode), [3])


def _without_pads(window: WindowGeometry) -> WindowGeometry:
    return WindowGeometry(window.kernel, window.strides, window.dilations)


def max_pooled(x: Tensor, window: WindowGeometry) -> Tensor:
    """Return the largest of every window; what is padded counts as nothing.

    >>> max_pooled(Tensor([[[1.0, 3.0, 2.0]]]), WindowGeometry([2], [1], [1], [(1, 0)])).tolist()
    [[[1.0, 3.0, 3.0]]]
    """
    native = _has_operator(x, window) and dtype_of(x).name in ("Float32", "Float16", "Int8")
    if native and _small(window):
        return _pooled(x, window, own.max_pool2d)
    x = window.padded(x, _lowest(x))
    if native:
        return _pooled(x, _without_pads(window), own.max_pool2d)
    return _along_axes(x, window, M.MAX)


def _along_axes(x: Tensor, window: WindowGeometry, mode: P.ElemwiseMode) -> Tensor:
    """Return the elements of every window combined, axis by axis."""
    check_recorded(sum(k - 1 for k in window.kernel))
    for i, count in enumerate(window.kernel):
        total = window.tap(x, 2 + i, i, 0)
        for k in range(1, count):
            total = e.elem(mode, total, window.tap(x, 2 + i, i, k))
        x = total
    return x


def summed(x: Tensor, window: WindowGeometry) -> Tensor:
    """Return the sum of every window, in the tensor's own dtype."""
    return _along_axes(window.padded(x), window, M.ADD)


def _ones(x: Tensor, window: WindowGeometry, include: bool) -> Tensor:
    """Return 1 for what counts of a padded (1, 1, ...), else 0: what stands beyond the pads never does."""
    ones = e.full(e.number(1.0, x), (1, 1, *(x.shape[2:] if window.sizes is None else window.sizes)))
    pads = WindowGeometry(window.kernel, window.strides, window.dilations, window.pads)
    pads.cuts = window.cuts
    beyond = _without_pads(window)
    beyond.beyond = window.beyond
    return beyond.padded(pads.padded(ones, 1.0 if include else 0.0))


def counted(x: Tensor, window: WindowGeometry, *, include: bool) -> Tensor:
    """Return how many elements every window over `x` has, (1, 1, ...); of the pads too if `include`."""
    return _along_axes(_ones(e.as_float(x), window, include), window, M.ADD)


def averaged(x: Tensor, window: WindowGeometry, *, include: bool, divisor: float | None = None) -> Tensor:
    """Return the mean of every window of floats.

    Args:
        x: (N, C, ...), float.
        window: the windows.
        include: count pads as elements; what stands beyond them never counts.
        divisor: divide by this instead of the count.

    >>> averaged(Tensor([[[1.0, 3.0, 2.0]]]), WindowGeometry([2], [1], [1], [(1, 0)]), include=True).tolist()
    [[[0.5, 2.0, 2.5]]]
    """
    kind = dtype_of(x)
    wide = e.as_float(x)
    if divisor is not None:
        total = summed(wide, window)
        return e.cast(e.elem(M.TRUE_DIV, total, e.number(divisor, total)), kind)
    if not _has_operator(x, window):
        return e.cast(e.elem(M.TRUE_DIV, summed(wide, window), counted(x, window, include=include)), kind)
    if _small(window):
        mode = "average" if include else "average_count_exclude_padding"
        return e.cast(_pooled(wide, window, own.avg_pool2d, mode), kind)
    plain = _without_pads(window)
    mean = _pooled(window.padded(wide), plain, own.avg_pool2d, "average")
    if include and not any(window.beyond) and not is_open(*window.beyond):
        return e.cast(mean, kind)
    share = _pooled(_ones(wide, window, include), plain, own.avg_pool2d, "average")
    return e.cast(e.elem(M.TRUE_DIV, mean, share), kind)


def max_with_places(x: Tensor, window: WindowGeometry) -> tuple[Tensor, Tensor]:
    """Return the largest of every window over (N, C, ...), and where it stands among the elements of its channel.

    >>> y, at = max_with_places(Tensor([[[1.0, 3.0, 2.0]]]), WindowGeometry([2], [1], [1]))
    >>> y.tolist(), at.tolist()
    ([[[3.0, 3.0]]], [[[1, 1]]])
    """
    n = x.ndim - 2
    sizes = list(x.shape[2:])
    grid = e.reshape(e.arange(product_of(sizes)), sizes)
    best, place = window.padded(x, _lowest(x)), window.padded(e.add_axes(grid, [0, 1]), -1.0)
    # The last axis first: of equal values the one that stands first in the memory is kept.
    for i in range(n - 1, -1, -1):
        taps = [
            (window.tap(best, 2 + i, i, k), window.tap(place, 2 + i, i, k)) for k in range(window.kernel[i])
        ]
        best, place = taps[0]
        for part, at in taps[1:]:
            better = e.compare(P.ElemwiseMultiTypeMode.LT, best, part)
            best, place = e.where(better, part, best), e.where(better, at, place)
    return best, e.broadcast(place, best.shape)
