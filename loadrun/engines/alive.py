"""The values that are alive when a run takes the most memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..graph import Opr
from ..graph.dtypes import Array
from .program import MemoryMeter, root


@dataclass(frozen=True)
class LiveValue:
    """A value that was alive at the peak.

    Attributes:
        name: the variable's name, with the operator's type.
        shape: its shape.
        nbytes: bytes of memory that it holds.
    """

    name: str
    shape: tuple[int, ...]
    nbytes: int


class PeakMeter(MemoryMeter):
    """Counts as `MemoryMeter` does, and remembers who was alive at the peak.

    Args:
        ignore: arrays that are not intermediate values.

    Attributes:
        at: the operator after which the peak was reached, None before a run.
    """

    def __init__(self, ignore: Iterable[Array] = ()) -> None:
        super().__init__(ignore)
        self.at: Opr | None = None
        self._known: dict[int, tuple[int, LiveValue]] = {}
        # Only what happened since the peak is kept: listing the values at every new peak would be quadratic.
        self._changed: set[int] = set()
        self._before: list[tuple[int, LiveValue]] = []

    @property
    def alive(self) -> tuple[LiveValue, ...]:
        """The values that were alive at the peak, the largest first."""
        kept = (self._known[k] for k in self._held if k in self._known and k not in self._changed)
        return tuple(value for _, value in sorted([*self._before, *kept], key=lambda v: (-v[1].nbytes, v[0])))

    def __call__(self, opr: Opr, outputs: Sequence[Array]) -> None:
        """Count an operator's outputs, and note when there never was more."""
        before = self.peak
        for i, array in enumerate(outputs):
            base = root(array)
            if isinstance(base, np.ndarray):
                name = opr.outputs[i].label if i < len(opr.outputs) else opr.title
                value = LiveValue(f"{name} ({opr.type})", array.shape, base.nbytes)
                first = self._known[id(base)][0] if id(base) in self._held else self.executions
                self._change(id(base))
                self._known[id(base)] = first, value
        super().__call__(opr, outputs)
        if self.peak > before:
            self.at = opr
            self._changed.clear()
            self._before.clear()

    def release(self, key: int, size: int) -> None:
        """Stop counting a value whose memory was freed."""
        self._change(key)
        self._known.pop(key, None)
        super().release(key, size)

    def _change(self, key: int) -> None:
        """Keep what a value was at the peak, before it changes."""
        if key not in self._changed:
            self._changed.add(key)
            if key in self._held:
                self._before.append(self._known[key])
