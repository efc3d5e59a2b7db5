"""The plain convolution: one product per filter tap, summed in a wide type. Slow, for any dtype and rank.

It is the formulation that the fast paths are held against.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from loadrun.graph.dtypes import Array
from loadrun.ops.conv.rules import Geometry, tap_range

__all__ = ["conv_plain", "deconv_plain"]


def conv_plain(x: Array, w: Array, geo: Geometry, pad_value: float = 0.0) -> Array:
    """Convolve in the dtype of the inputs (float64 for a reference, int64 for exact integers).

    Args:
        x: (batch, groups * icg, spatial...).
        w: (groups, ocg, icg, kernel...), not flipped.
        geo: from `geometry.geometry`.
        pad_value: what lies outside the input.

    Returns:
        (batch, groups * ocg, out...).

    >>> from loadrun.ops.conv.rules import geometry
    >>> geo = geometry((1, 1, 2, 2), 1, 1, 1, (2, 2), (0, 0), (1, 1), (1, 1))
    >>> conv_plain(np.arange(4.0).reshape(1, 1, 2, 2), np.ones((1, 1, 1, 2, 2)), geo)
    array([[[[6.]]]])
    """
    n = x.shape[0]
    out = np.zeros((n, geo.groups, geo.ocg, *geo.out), np.result_type(x, w))
    grouped = x.reshape(n, geo.groups, geo.icg, *geo.size)
    for tap in product(*map(range, geo.kernel)):
        to, source = [slice(None)] * 3, [slice(None)] * 3
        for axis, k in enumerate(tap):
            first, end, at = tap_range(geo, axis, k, 0, geo.out[axis])
            to.append(slice(first, end))
            source.append(slice(at, at + (end - first - 1) * geo.stride[axis] + 1, geo.stride[axis]))
        taken = grouped[tuple(source)] if all(s.stop > s.start for s in to[3:]) else None
        part = w[(slice(None),) * 3 + tap]
        if pad_value:
            # A padding that is not zero contributes everywhere the tap leaves the input.
            whole = np.full((n, geo.groups, geo.icg, *geo.out), pad_value, x.dtype)
            if taken is not None:
                whole[tuple(to)] = taken
            out += np.einsum("goi,ngi...->ngo...", part, whole)
        elif taken is not None:
            out[tuple(to)] += np.einsum("goi,ngi...->ngo...", part, taken)
    return out.reshape(n, geo.channels, *geo.out)


def deconv_plain(x: Array, w: Array, geo: Geometry) -> Array:
    """The transpose of `conv_plain`: from (batch, groups * ocg, out...) to (batch, groups * icg, size...)."""
    n = x.shape[0]
    result = np.zeros((n, geo.groups, geo.icg, *geo.size), np.result_type(x, w))
    grouped = x.reshape(n, geo.groups, geo.ocg, *geo.out)
    for tap in product(*map(range, geo.kernel)):
        source, to = [slice(None)] * 3, [slice(None)] * 3
        for axis, k in enumerate(tap):
            first, end, at = tap_range(geo, axis, k, 0, geo.out[axis])
            source.append(slice(first, end))
            to.append(slice(at, at + (end - first - 1) * geo.stride[axis] + 1, geo.stride[axis]))
        if all(s.stop > s.start for s in source[3:]):
            part = w[(slice(None),) * 3 + tap]
            result[tuple(to)] += np.einsum("goi,ngo...->ngi...", part, grouped[tuple(source)])
    return result.reshape(n, geo.groups * geo.icg, *geo.size)
