"""Convolution whose sum is rounded after every product, as MegEngine's float16 and bfloat16 kernels do.

The running sum stays in the narrow type: each step computes ``sum + x * w`` in float32 and rounds it. Naive
kernels go over taps, then input channels; matrix-product kernels over input channels, then taps.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from ...graph.dtypes import Array
from ..numeric.parallel import parallel
from ..numeric.special import round_half
from ..numeric.taps import taps_of
from .rules import Geometry

Rounding = Callable[[Array], None]
_BLOCK = 1 << 16


def rounding(name: str) -> Rounding:
    """Return the function that rounds a contiguous float32 array in place to that dtype (Float16 or BFloat16).

    >>> a = np.array([1.00048828125, 2049, 1e-8, 70000, -0.0], "f4")
    >>> rounding("Float16")(a)
    >>> a.tolist()
    [1.0009765625, 2050.0, 0.0, inf, -0.0]
    """
    return _half if name == "Float16" else _bfloat


def _half(x: Array) -> None:
    bits = x.view(np.uint32)
    size = bits & np.uint32(0x7FFFFFFF)
    # Outside the normal half range the step is not 2^13 units of a float32; zero needs nothing.
    size -= np.uint32(1)
    odd = (size >= np.uint32(0x477FEFFF)) | (size < np.uint32(0x387FFFFF))
    special = np.flatnonzero(odd)
    kept = round_half(x.ravel()[special]).astype(np.float32) if special.size else None
    bits += np.uint32(0x1000)
    bits &= np.uint32(0xFFFFE000)
    if kept is not None:
        x.ravel()[special] = kept


def _bfloat(x: Array) -> None:
    bits = x.view(np.uint32)
    nan = np.flatnonzero(np.isnan(x))
    bits += np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    bits &= np.uint32(0xFFFF0000)
    if nan.size:
        x.ravel()[nan] = np.nan


def conv_steps(
    x: Array, w: Array, geo: Geometry, round_: Rounding, columns: bool = False, turned: bool = False
) -> Array:
    """Convolve float32 arrays, rounding the sum after every product.

    Args:
        x: (batch, groups * icg, spatial...) float32.
        w: (groups, ocg, icg, kernel...) float32, not flipped.
        geo: from `geometry.geometry`.
        round_: from `rounding`.
        columns: sum in the order of im2col, input channels outermost, as kernels by matrix product do.
        turned: whether the stored filter is turned, which turns the order of the taps.

    Returns:
        (batch, groups * ocg, out...) float32.
    """
    out = np.zeros((x.shape[0], geo.groups, geo.ocg, *geo.out), np.float32)
    grouped = x.reshape(x.shape[0], geo.groups, geo.icg, *geo.size)
    filters = w.reshape(geo.groups, geo.ocg, geo.icg, geo.taps)
    moves, channels = list(taps_of(geo))[:: -1 if turned else 1], range(geo.icg)
    order = list(product(channels, moves)) if columns else [(c, m) for m in moves for c in channels]
    per = max(1, _BLOCK // max(1, geo.points))
    blocks = -(-geo.ocg // per)

    def block(i: int) -> None:
        i, b = divmod(i, blocks)
        n, g = divmod(i, geo.groups)
        part = slice(b * per, (b + 1) * per)
        total = out[n, g, part]
        for c, (number, to, source) in order:
            step = grouped[n, g, c][source] * _column(filters[g, part, c, number], geo)
            step += total[to]
            round_(step)
            total[to] = step

    parallel(block, x.shape[0] * geo.groups * blocks)
    return out.reshape(x.shape[0], geo.channels, *geo.out)


def deconv_steps(x: Array, w: Array, geo: Geometry, round_: Rounding) -> Array:
    """Compute the transpose of `conv_steps`, with MegEngine's order: output channels outermost, then positions."""
    result = np.zeros((x.shape[0], geo.groups, geo.icg, *geo.size), np.float32)
    grouped = x.reshape(x.shape[0], geo.groups, geo.ocg, *geo.out)
    filters = w.reshape(geo.groups, geo.ocg, geo.icg, geo.taps)
    moves = list(taps_of(geo))[::-1]

    def block(i: int) -> None:
        n, g = divmod(i, geo.groups)
        total = result[n, g]
        for o in range(geo.ocg):
            for number, source, to in moves:
                inside = total[to]
                step = grouped[n, g, o][source] * _column(filters[g, o, :, number], geo)
                step += inside
                round_(step)
                inside[...] = step

    parallel(block, x.shape[0] * geo.groups)
    return result.reshape(x.shape[0], geo.groups * geo.icg, *geo.size)


def deconv_columns(
    x: Array, w: Array, geo: Geometry, round_: Rounding, steps: bool, turned: bool = False
) -> Array:
    """Compute a transposed convolution as MegEngine's matrix product does for narrow types without dilation.

    The products of each tap are summed over the output channels and rounded (after every product with `steps`,
    else once), then added up tap by tap with a rounding after each.
    """
    result = np.zeros((x.shape[0], geo.groups, geo.icg, *geo.size), np.float32)
    grouped = x.reshape(x.shape[0], geo.groups, geo.ocg, *geo.out)
    filters = w.reshape(geo.groups, geo.ocg, geo.icg, geo.taps)
    moves = list(taps_of(geo))[:: -1 if turned else 1]

    def block(i: int) -> None:
        n, g = divmod(i, geo.groups)
        total = result[n, g]
        for number, source, to in moves:
            products = np.zeros((geo.icg, *geo.out), np.float32)
            if steps:
                for o in range(geo.ocg):
                    products += grouped[n, g, o] * _column(filters[g, o, :, number], geo)
                    round_(products)
            else:
                products += np.tensordot(filters[g, :, :, number], grouped[n, g], (0, 0))
                round_(products)
            step = total[to] + products[source]
            round_(step)
            total[to] = step

    parallel(block, x.shape[0] * geo.groups)
    return result.reshape(x.shape[0], geo.groups * geo.icg, *geo.size)


def _column(weights: Array, geo: Geometry) -> Array:
    return weights.reshape(-1, *(1,) * len(geo.out))
