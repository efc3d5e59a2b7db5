"""The plain convolution: one product per filter tap, summed in a wide type. Slow, for any dtype and rank.

It is the formulation that the fast paths are held against.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from loadrun.graph.dtypes import Array
from loadrun.ops.conv.rules import Geometry
from loadrun.ops.formulas.windows import taps

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
    met = {tap: (to, at) for tap, to, at in taps(geo)}
    for tap in product(*map(range, geo.kernel)):
        # A padding that is not zero contributes everywhere the tap leaves the input.
        seen = np.full((n, geo.groups, geo.icg, *geo.out), pad_value, x.dtype)
        if tap in met:
            to, at = met[tap]
            seen[to] = grouped[at]
        out += np.einsum("goi,ngi...->ngo...", w[(slice(None),) * 3 + tap], seen)
    return out.reshape(n, geo.channels, *geo.out)


def deconv_plain(x: Array, w: Array, geo: Geometry) -> Array:
    """The transpose of `conv_plain`: from (batch, groups * ocg, out...) to (batch, groups * icg, size...)."""
    n = x.shape[0]
    result = np.zeros((n, geo.groups, geo.icg, *geo.size), np.result_type(x, w))
    grouped = x.reshape(n, geo.groups, geo.ocg, *geo.out)
    for tap, source, to in taps(geo):
        result[to] += np.einsum("goi,ngo...->ngi...", w[(slice(None),) * 3 + tap], grouped[source])
    return result.reshape(n, geo.groups * geo.icg, *geo.size)
