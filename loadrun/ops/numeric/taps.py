"""The taps of windows that meet the data: slices of outputs and inputs, along one axis and along all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import EllipsisType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from ..conv.rules import Geometry

Place: TypeAlias = tuple[EllipsisType | slice, ...]


@dataclass(frozen=True)
class Taps:
    """Windows along one axis: output `o` looks at inputs ``o * stride - pad + k * dilate`` for every tap `k`.

    >>> list(Taps(size=5, out=3, window=3, stride=2, pad=1))  # doctest: +NORMALIZE_WHITESPACE
    [(0, slice(1, 3, None), slice(1, 4, 2)),
     (1, slice(0, 3, None), slice(0, 5, 2)),
     (2, slice(0, 2, None), slice(1, 4, 2))]
    """

    size: int
    out: int
    window: int
    stride: int
    pad: int
    dilate: int = 1

    def __iter__(self) -> Iterator[tuple[int, slice, slice]]:
        """Iterate over the taps that meet data, with the outputs that have them and the inputs that they see."""
        for k in self._useful():
            shift = k * self.dilate - self.pad
            lo = max(0, -(shift // self.stride))
            hi = min(self.out, (self.size - 1 - shift) // self.stride + 1)
            if lo < hi:
                first = lo * self.stride + shift
                yield k, slice(lo, hi), slice(first, first + (hi - lo - 1) * self.stride + 1, self.stride)

    def _useful(self) -> Iterator[int]:
        def span(start: int) -> tuple[int, int]:
            """Return the taps at which windows that begin at `start` and before can be inside."""
            return max(0, -(start // self.dilate)), min(
                self.window, (self.size - 1 - start) // self.dilate + 1
            )

        if self.out < 1 or self.size < 1:
            return
        lo = span((self.out - 1) * self.stride - self.pad)[0]
        hi = span(-self.pad)[1]
        if hi - lo <= self.size * self.out:
            yield from range(lo, hi)
        else:
            # Strides or paddings beyond reason: most taps of the range meet nothing.
            taps: set[int] = set()
            for o in range(self.out):
                taps.update(range(*span(o * self.stride - self.pad)))
            yield from sorted(taps)


def axis_taps(geo: Geometry) -> Iterator[Taps]:
    """Return the taps along each spatial axis."""
    return map(Taps, geo.size, geo.out, geo.kernel, geo.stride, geo.pad, geo.dilate)


def taps_of(geo: Geometry) -> Iterator[tuple[int, Place, Place]]:
    """Yield the number of each tap that meets the input, the outputs that have it, and the inputs that they see.

    >>> from loadrun.ops.conv.rules import geometry
    >>> next(taps_of(geometry((1, 1, 5), 1, 1, 1, (3,), (1,), (2,), (1,))))
    (0, (Ellipsis, slice(1, 3, None)), (Ellipsis, slice(1, 4, 2)))
    """
    for tap in product(*axis_taps(geo)):
        number = int(np.ravel_multi_index([k for k, _, _ in tap], geo.kernel))
        yield number, (..., *(to for _, to, _ in tap)), (..., *(at for _, _, at in tap))
