"""What a trace freezes without being asked: values that become Python numbers, and numpy's random numbers."""

from __future__ import annotations

import ctypes
import warnings
from typing import Any

import numpy as np

from ..base.errors import TraceWarning
from ..tensors.source import Place, here, shown

__all__ = ["FreezeWarnings", "GlobalDraws"]

_WORDS = 624
"""Words of the state of MT19937; behind them stands the number of the next one."""


class GlobalDraws:
    """Tells whether numpy's global random numbers were drawn since it was asked last.

    The whole state takes long to copy, so that where it can be found in memory only its position is looked at.
    """

    def __init__(self) -> None:
        self._position: Any = None
        try:
            generator = np.random.mtrand._rand._bit_generator
            place = ctypes.c_int.from_address(generator.ctypes.state_address + 4 * _WORDS)
            self._last = _position()
            if place.value == self._last:
                self._position, self._keep = place, generator
        except (AttributeError, TypeError, KeyError):
            self._last = 0

    def again(self) -> bool:
        """Tell whether they were drawn since the last call; False where that cannot be told."""
        if self._position is None:
            return False
        before, self._last = self._last, self._position.value
        return bool(before != self._last)


def _position() -> int:
    state = np.random.get_state(legacy=False)
    assert isinstance(state, dict)
    return int(state["state"]["pos"])


class FreezeWarnings:
    """Warns, once for each line, of what a recording keeps as it is in the first call.

    Args:
        wanted: whether the graph is to run without the Python code; else later calls notice what changed.
    """

    def __init__(self, wanted: bool) -> None:
        self._draws = GlobalDraws() if wanted else None
        self._wanted = wanted
        self._said: set[tuple[Place, str]] = set()

    def became(self, kind: str) -> None:
        """Take note that a value that depends on the inputs became a Python number of a kind."""
        if self._wanted:
            self._warn(
                f"a Python {kind}",
                f"a traced value becomes a Python {kind} in {{}}; what depends on it stays as in this call, whatever "
                "later inputs are: a branch that is not taken now is not in the graph. Compute with the tensor "
                "(where, maximum, cond_take), or decide outside the traced function",
            )

    def operator(self) -> None:
        """Take note that an operator was recorded."""
        if self._draws is not None and self._draws.again():
            self._warn(
                "random numbers",
                "numpy's random numbers were drawn in {} or just before it; they are constants of the graph, the same "
                "in every later run. Draw them with loadrun.build.random, or pass them in",
            )

    def _warn(self, what: str, text: str) -> None:
        place = here()
        if (place, what) not in self._said:
            self._said.add((place, what))
            warnings.warn_explicit(text.format(shown(place)), TraceWarning, *place)
