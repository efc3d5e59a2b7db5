"""Windows that move over the axes of space: of convolutions and of pooling."""

from collections.abc import Sequence
from typing import NamedTuple

from .common import one_of, refuse_unless

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", "")
Ints = list[int] | None
SPACE: dict[str, object] = {
    "kernel_shape": None,
    "strides": None,
    "dilations": None,
    "pads": None,
    "auto_pad": "NOTSET",
}
"""The attributes of windows, and what they are where they are left out."""


class SpatialWindow(NamedTuple):
    """How a window moves over (N, C, ...), for each axis of space.

    Attributes:
        kernel: how many elements it takes.
        strides: from one window to the next.
        dilations: from one of its elements to the next.
        pads: what is added before and after; a negative number before leaves elements out.
        sizes, out: how many elements and windows there are.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    sizes: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def reach(self) -> list[int]:
        """How far a window reaches on each axis."""
        return reach_of(self.kernel, self.dilations)


def reach_of(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Return how far windows reach on each axis."""
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


def spaced(kernel: Sequence[int], strides: Ints, dilations: Ints) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return strides and dilations for every axis, 1 where they are left out.

    Raises:
        ValueError: there are too many or too few of them, or one is less than 1.
    """
    n = len(kernel)
    steps, spread = tuple(strides or (1,) * n), tuple(dilations or (1,) * n)
    refuse_unless(len(steps) == len(spread) == n, f"strides and dilations must name {n} axes")
    refuse_unless(
        min((*kernel, *steps, *spread), default=1) >= 1, "a kernel, stride or dilation is less than 1"
    )
    return steps, spread


def given_pads(pads: Ints, n: int) -> list[tuple[int, int]]:
    """Return pads before and after each axis.

    Raises:
        ValueError: there are too many or too few of them, or one is negative.
    """
    pads = pads or [0] * (2 * n)
    fits = len(pads) == 2 * n and min(pads, default=0) >= 0
    refuse_unless(fits, f"its pads are {pads[:8]}, expected {2 * n} numbers from 0 on")
    return list(zip(pads[:n], pads[n:], strict=True))


def check_kernel(kernel_shape: Ints, kernel: Sequence[int]) -> None:
    """Raise a ValueError if an attribute says otherwise than the weight how large a kernel is."""
    fits = kernel_shape is None or kernel_shape == list(kernel)
    refuse_unless(fits, f"its kernel_shape is {kernel_shape}, expected {list(kernel)} as the weight has it")


def window_of(
    sizes: Sequence[int],
    kernel: Sequence[int],
    *,
    kernel_shape: Ints = None,
    strides: Ints = None,
    dilations: Ints = None,
    auto_pad: str = "NOTSET",
    pads: Ints = None,
) -> SpatialWindow:
    """Compute the window of a convolution from its attributes.

    Raises:
        ValueError: attributes that contradict each other, or a window larger than its input.
    """
    n = len(kernel)
    check_kernel(kernel_shape, kernel)
    refuse_unless(len(sizes) == n, f"its input has {len(sizes)} axes of space, its windows {n}")
    steps, spread = spaced(kernel, strides, dilations)
    reach, auto = reach_of(kernel, spread), one_of("auto_pad", auto_pad, *AUTO_PADS)
    if auto == "VALID":
        around = [(0, 0)] * n
    elif auto.startswith("SAME"):
        around = []
        for size, s, r in zip(sizes, steps, reach, strict=True):
            total = max((-(-size // s) - 1) * s + r - size, 0)
            half = total // 2
            around.append((half, total - half) if auto == "SAME_UPPER" else (total - half, half))
    else:
        around = given_pads(pads, n)
    out = []
    for size, (a, b), s, r in zip(sizes, around, steps, reach, strict=True):
        extent = size + a + b
        refuse_unless(not 0 < extent < r, f"a window of {r} is larger than its input ({extent})")
        out.append(max((size + a + b - r) // s + 1, 0))
    return SpatialWindow(tuple(kernel), steps, spread, tuple(around), tuple(sizes), tuple(out))
