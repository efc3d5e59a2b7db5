"""Fourier transforms as products with cosines, since MegEngine has no complex numbers."""

from typing import Any

import numpy as np

from ...layers import emit as e
from ...layers.fourier import Pair, real_of_half, transform
from ..operators import signal
from . import instead, operand

__all__: list[str] = []


@instead(signal.transformed)
def transformed(x: Any, length: Any, axis: int, inverse: int, onesided: int) -> Any:
    axis, n, shape = signal.dft_sizes(x, length, axis, inverse, onesided)
    turned = _fitted(np.moveaxis(x, axis, -2), n // 2 + 1 if inverse and onesided else n)
    parts = Pair(*(operand(turned[..., i]) for i in range(turned.shape[-1])))
    if inverse and onesided:
        y = e.add_axes(real_of_half(parts, n, turned.shape[-2]), [x.ndim - 1])
    else:
        pair = transform(parts, n, bins=shape[axis], inverse=bool(inverse), power=1.0 if inverse else 0.0)
        y = e.concat([e.add_axes(v, [x.ndim - 1]) for v in pair if v is not None], x.ndim - 1)
    return e.permute(y, _back(x.ndim, axis))


def _back(rank: int, axis: int) -> list[int]:
    """Return the order of axes that brings the last but one to its place."""
    order = [i for i in range(rank - 1) if i != axis] + [axis, rank - 1]
    return [order.index(i) for i in range(rank)]


def _fitted(x: Any, length: int) -> Any:
    """Cut or zero-pad the last axis but one."""
    short = length - x.shape[-2]
    if short > 0:
        return np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, short), (0, 0)])
    return x[..., :length, :]
