"""Elements added at the ends of axes, or cut off."""

from collections.abc import Sequence

import numpy as np

from ...ops.registry import pay
from ...tensors import Tensor, const
from ...tensors.access import dtype_of, static_shape
from .. import emit as e
from .. import windows as own
from ..emit import M
from .sizes import is_open, joined, of_length


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
