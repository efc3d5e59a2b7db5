"""Fast convolution of volumes: the planes that one output plane reads are channels of an image."""

import numpy as np

from ...graph.dtypes import Array
from ..numeric.taps import Taps
from .fast import conv_fast
from .rules import Geometry

_BLOCK = 1 << 22


def conv_volume(x: Array, w: Array, geo: Geometry) -> Array:
    """Convolve float32 arrays of three spatial axes.

    Args:
        x: (batch, groups * icg, D, H, W).
        w: (groups, ocg, icg, KD, KH, KW), not flipped.
        geo: from `geometry.geometry`.

    Returns:
        (batch, groups * ocg, OD, OH, OW).
    """
    batch = x.shape[0]
    out = np.empty((batch, geo.channels, *geo.out), x.dtype)
    flat = Geometry(
        geo.kernel[1:],
        geo.pad[1:],
        geo.stride[1:],
        geo.dilate[1:],
        geo.size[1:],
        geo.out[1:],
        geo.groups,
        geo.icg * geo.kernel[0],
        geo.ocg,
    )
    filters = np.ascontiguousarray(w).reshape(geo.groups, geo.ocg, flat.icg, *geo.kernel[1:])
    channels = geo.groups * geo.icg
    depth = geo.kernel[0]
    per = max(1, _BLOCK // max(1, channels * depth * geo.size[1] * geo.size[2]))
    for n in range(batch):
        for first in range(0, geo.out[0], per):
            last = min(geo.out[0], first + per)
            planes = np.zeros((last - first, channels, depth, *geo.size[1:]), x.dtype)
            before = geo.pad[0] - first * geo.stride[0]
            for k, to, at in Taps(geo.size[0], last - first, depth, geo.stride[0], before, geo.dilate[0]):
                planes[to, :, k] = x[n, :, at].swapaxes(0, 1)
            images = planes.reshape(last - first, channels * depth, *geo.size[1:])
            out[n, :, first:last] = conv_fast(images, filters, flat).swapaxes(0, 1)
    return out
