"""Pooling over windows of one to three axes."""

from collections.abc import Callable

import numpy as np

from ...graph import params as P
from ...ops.registry import check_recorded
from ...tensors import Tensor
from ...tensors.access import dtype_of
from ...tensors.convert import product_of
from .. import emit as e
from .. import pooling as own
from ..emit import M
from .sizes import is_open
from .windows import WindowGeometry


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
