"""The geometry of a convolution's taps: sizes, strides, padding, and the checks on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ..registry import Shape

__all__ = ["Geometry", "geometry", "output_size", "tap_range"]

_LIMIT = 1 << 31


@dataclass(frozen=True)
class Geometry:
    """A convolution of any number of spatial axes on plain (batch, channel, spatial...) arrays.

    Attributes:
        kernel, pad, stride, dilate, size, out: per spatial axis; `size` is the input's, `out` the output's.
        groups: channel groups.
        icg, ocg: input and output channels of one group.
    """

    kernel: tuple[int, ...]
    pad: tuple[int, ...]
    stride: tuple[int, ...]
    dilate: tuple[int, ...]
    size: tuple[int, ...]
    out: tuple[int, ...]
    groups: int
    icg: int
    ocg: int

    @property
    def channels(self) -> int:
        """Output channels."""
        return self.groups * self.ocg

    @property
    def taps(self) -> int:
        """Filter taps over all spatial axes."""
        return prod(self.kernel)

    @property
    def points(self) -> int:
        """Output positions of one channel."""
        return prod(self.out)

    @property
    def pointwise(self) -> bool:
        """True if the input itself is the matrix that the filter is multiplied with."""
        return self.taps == 1 and all(s == 1 for s in self.stride) and not any(self.pad)


def output_size(size: int, kernel: int, pad: int, stride: int, dilate: int) -> int:
    """Return the output length of one axis: ``floor((size + 2 pad - (kernel - 1) dilate - 1) / stride) + 1``.

    Raises:
        ValueError: a stride or dilation of 0, an empty filter, or a window larger than the padded input.

    >>> output_size(224, 7, 3, 2, 1)
    112
    """
    if stride < 1 or dilate < 1:
        raise ValueError(f"stride and dilation must be at least 1, got stride {stride}, dilation {dilate}")
    if kernel < 1:
        raise ValueError(f"a filter axis of size {kernel} has no taps")
    if max(pad, stride, dilate) >= _LIMIT or size + 2 * pad >= _LIMIT:
        raise ValueError(f"an axis of {size} with padding {pad} is beyond 2^31 elements")
    window = (kernel - 1) * dilate + 1
    if size + 2 * pad < window:
        raise ValueError(
            f"a filter of {kernel} taps with dilation {dilate} spans {window} elements, "
            f"more than the input's {size} with padding {pad} on both sides"
        )
    return (size + 2 * pad - window) // stride + 1


def geometry(
    x: Shape,
    groups: int,
    icg: int,
    ocg: int,
    kernel: Sequence[int],
    pad: Sequence[int],
    stride: Sequence[int],
    dilate: Sequence[int],
) -> Geometry:
    """Check a plain input shape (batch, channels, spatial...) against a filter.

    Raises:
        ValueError: ranks, channels or windows that do not fit.
    """
    if len(x) != 2 + len(kernel):
        raise ValueError(f"the input must have {2 + len(kernel)} axes, got shape {list(x)}")
    if groups < 1 or icg < 1 or ocg < 1:
        raise ValueError(f"a filter with {groups} groups of {icg} -> {ocg} channels computes nothing")
    if x[1] != groups * icg:
        raise ValueError(
            f"the input has {x[1]} channels, the filter takes {groups * icg} ({groups} groups of {icg})"
        )
    out = tuple(map(output_size, x[2:], kernel, pad, stride, dilate))
    return Geometry(
        tuple(kernel), tuple(pad), tuple(stride), tuple(dilate), tuple(x[2:]), out, groups, icg, ocg
    )


def tap_range(geo: Geometry, axis: int, tap: int, start: int, stop: int) -> tuple[int, int, int]:
    """Return which outputs of ``start:stop`` read inside the input for that tap, and where the first one reads.

    Returns:
        (first output, end of outputs, input position of the first); first == end when all read padding.
    """
    stride = geo.stride[axis]
    shift = tap * geo.dilate[axis] - geo.pad[axis]
    first = max(start, -(shift // stride))
    end = min(stop, (geo.size[axis] - 1 - shift) // stride + 1)
    if end <= first:
        return start, start, 0
    return first, end, first * stride + shift
