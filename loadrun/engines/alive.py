"""The values that are alive when a run takes the most memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..base.records import dataclass
from ..graph import Opr
from ..graph.dtypes import Array
from .program import MemoryMeter, root

__all__ = ["LiveValue", "PeakMeter"]


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
        alive: the values that were alive then, the largest first.
    """

    def __init__(self, ignore: Iterable[Array] = ()) -> None:
        super().__init__(ignore)
        self.at: Opr | None = None
        self.alive: tuple[LiveValue, ...] = ()
        self._known: dict[int, LiveValue] = {}

    def __call__(self, opr: Opr, outputs: Sequence[Array]) -> None:
        """Count an operator's outputs, and look at what is alive when there never was more."""
        before = self.peak
        for i, array in enumerate(outputs):
            base = root(array)
            if isinstance(base, np.ndarray):
                name = opr.outputs[i].label if i < len(opr.outputs) else opr.title
                self._known[id(base)] = LiveValue(f"{name} ({opr.type})", array.shape, base.nbytes)
        super().__call__(opr, outputs)
        if self.peak > before:
            self.at = opr
            live = [self._known[key] for key in self._held if key in self._known]
            self.alive = tuple(sorted(live, key=lambda a: -a.nbytes))
