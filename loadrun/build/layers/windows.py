"""Windows that move over one to three axes of space."""

from __future__ import annotations

from collections.abc import Sequence

from ...tensors import Tensor
from ...tensors.symbolic import largest, least
from .. import emit as e
from .sizes import is_open

__all__ = ["WindowGeometry"]


class WindowGeometry:
    """How a window moves over (N, C, ...), for each axis of space.

    Attributes:
        kernel: how many elements it takes.
        strides: from one window to the next.
        dilations: from one of its elements to the next.
        pads: what is added before and behind.
        sizes: those of the axes, where they are the same in every run.
        beyond: what is added behind the pads, for a last window that would not be complete.
    """

    def __init__(
        self,
        kernel: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        pads: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self.kernel, self.strides, self.dilations = list(kernel), list(strides), list(dilations)
        self.pads = [(0, 0)] * len(self.kernel) if pads is None else list(pads)
        self.sizes: Sequence[int] | None = None
        self.beyond = [0] * len(self.kernel)

    @property
    def reach(self) -> list[int]:
        """How far a window reaches on each axis."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def even(self) -> bool:
        """Tell whether there is as much padding before as behind, at any size."""
        if is_open(*self.beyond, *(w for pair in self.pads for w in pair)):
            return False
        return all(a == b >= 0 for a, b in self.pads) and not any(self.beyond)

    def complete(self, sizes: Sequence[int]) -> None:
        """Let the last windows be complete ones, at sizes that may be open.

        A window that would begin behind the data and the pads in front is left out.
        """
        for i, (size, (a, b), reach, s) in enumerate(
            zip(sizes, self.pads, self.reach, self.strides, strict=True)
        ):
            steps, begun = (size + a + b - reach + s - 1) // s, (size + a - 1) // s
            steps = least(steps, begun) if is_open(steps, begun) else min(steps, begun)
            more = steps * s + reach - (size + a + b)
            self.beyond[i] = 0 if s == 1 else largest(more, 0) if is_open(more) else max(more, 0)

    def padded(self, x: Tensor, value: float = 0.0) -> Tensor:
        """Return the input with all padding as elements."""
        widths = [(a, b + more) for (a, b), more in zip(self.pads, self.beyond, strict=True)]
        from .padding import pad  # for start-up

        return pad(x, [(0, 0), (0, 0), *widths], value=value)

    def tap(self, x: Tensor, axis: int, i: int, k: int) -> Tensor:
        """Return what the `k`-th elements of the windows along the `i`-th axis of space meet on an axis of `x`."""
        s, d, reach = self.strides[i], self.dilations[i], self.reach[i]
        if reach == s == 1:
            return x
        last = k * d - reach + 1
        index = (axis, k * d or None, last if last < 0 else None, None if s == 1 else s, None)
        return e.subtensor(x, [index])
