"""The places where the taps of windows meet an input, and what they see there."""

from collections.abc import Iterator
from types import EllipsisType

import numpy as np

from ...graph.dtypes import Array
from ..conv.rules import Geometry

Place = tuple[EllipsisType | slice, ...]


def taps(geo: Geometry) -> Iterator[tuple[tuple[int, ...], Place, Place]]:
    """Yield every tap that meets the input: its place in the filter, outputs that have it, inputs they see.

    Output ``o`` sees input ``o * stride - pad + tap * dilate`` of each spatial axis.

    >>> from loadrun.ops.conv.rules import geometry
    >>> geo = geometry((1, 1, 5), 1, 1, 1, (3,), (1,), (2,), (1,))
    >>> next(taps(geo))
    ((0,), (Ellipsis, slice(1, 3, None)), (Ellipsis, slice(1, 4, 2)))
    """
    for tap in np.ndindex(*geo.kernel):
        met = []
        for k, size, out, stride, pad, dilate in zip(
            tap, geo.size, geo.out, geo.stride, geo.pad, geo.dilate, strict=True
        ):
            start = k * dilate - pad
            first = max(0, -(start // stride))
            end = min(out, (size - 1 - start) // stride + 1)
            at = first * stride + start
            met.append((slice(first, end), slice(at, at + (end - 1 - first) * stride + 1, stride)))
        if all(to.start < to.stop for to, _ in met):
            yield tap, (..., *(to for to, _ in met)), (..., *(at for _, at in met))


def columns(x: Array, geo: Geometry) -> Array:
    """Gather what every window of [N, C, size...] sees, zero outside: [kernel..., N, C, out...]."""
    n = len(geo.kernel)
    seen = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in geo.pad)])
    for i, (k, out, stride, dilate) in enumerate(
        zip(geo.kernel, geo.out, geo.stride, geo.dilate, strict=True)
    ):
        seen = seen.take(np.arange(k)[:, None] * dilate + np.arange(out) * stride, 2 + 2 * i)
    return seen.transpose(*range(2, 2 + 2 * n, 2), 0, 1, *range(3, 3 + 2 * n, 2))
