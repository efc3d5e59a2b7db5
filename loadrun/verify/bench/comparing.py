"""How much faster one subject is than another, with a confidence interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .timing import Timing

__all__ = ["Ratio", "change", "paired_ratio", "ratio"]

_DRAWS = 2000
_LOW, _HIGH = 2.5, 97.5
_SAME = 1.01
"""Two loads of one model may differ by that much, by where their memory lies."""


@dataclass(frozen=True)
class Ratio:
    """A speedup: a ratio of medians and its 95 % interval.

    >>> Ratio(1.18, 1.12, 1.25).text("b", "a")
    'b is 1.18x [1.12, 1.25] faster than a'
    >>> Ratio(1.01, 0.97, 1.04).text("b", "a")
    'b and a do not differ measurably: 1.01x [0.97, 1.04]'

    Attributes:
        share: the part of a processor that the slower one of the processes got, where times are those of the processor
            because it is small.
    """

    value: float
    low: float
    high: float
    share: float | None = None

    @property
    def told(self) -> bool:
        """Whether the interval leaves no doubt that one is faster by more than where memory lies may make it."""
        return self.low > _SAME or self.high < 1 / _SAME

    @property
    def inverse(self) -> Ratio:
        """The inverse ratio."""
        return Ratio(1 / self.value, 1 / self.high, 1 / self.low, self.share)

    def text(self, name: str, other: str) -> str:
        """One line about `name`, compared with `other`."""
        shown, word = (self, "faster") if self.value >= 1 else (self.inverse, "slower")
        numbers = f"{shown.value:.2f}x [{shown.low:.2f}, {shown.high:.2f}]"
        how = "" if self.share is None else f" (by processor time: runs got {self.share:.0%} of a processor)"
        if not self.told:
            return f"{name} and {other} do not differ measurably: {numbers}{how}"
        return f"{name} is {numbers} {word} than {other}{how}"


def paired_ratio(base: Sequence[float], other: Sequence[float], seed: int = 0) -> Ratio:
    """How many times as fast `other` is as `base`, from times taken in turns.

    Rounds are drawn, not single times: what slowed down a whole round slows down both, and leaves their ratio as it is.

    Args:
        base: seconds, one a round.
        other: seconds of the same rounds.
        seed: seed of the bootstrap.

    >>> paired_ratio([2.0, 2.1, 1.9], [1.0, 1.05, 0.95]).value
    2.0
    """
    a, b = np.asarray(base, np.float64), np.asarray(other, np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(a), (_DRAWS, len(a)))
    return _ratio(np.median(a) / np.median(b), np.median(a[drawn], 1) / np.median(b[drawn], 1))


def ratio(base: Sequence[float], other: Sequence[float], seed: int = 0) -> Ratio:
    """How many times as fast `other` is as `base`, from times that were taken one after the other.

    Args:
        base: seconds.
        other: seconds, of any number.
        seed: seed of the bootstrap.

    >>> ratio([2.0, 2.0], [1.0, 1.0, 1.0]).value
    2.0
    """
    a, b = np.asarray(base, np.float64), np.asarray(other, np.float64)
    rng = np.random.default_rng(seed)
    drawn = [np.median(x[rng.integers(0, len(x), (_DRAWS, len(x)))], 1) for x in (a, b)]
    return _ratio(np.median(a) / np.median(b), drawn[0] / drawn[1])


def change(before: Timing, after: Timing) -> Ratio:
    """How many times as fast a model is as before; by processor time where runs of either waited for the processor.

    >>> busy = Timing((4.0, 2.0), processor=(1.0, 1.0))
    >>> change(Timing((2.0, 2.0), processor=(2.0, 2.0)), busy).text("it", "before")
    'it is 2.00x [2.00, 2.00] faster than before (by processor time: runs got 33% of a processor)'
    """
    if (before.disturbed or after.disturbed) and before.processor and after.processor:
        found = ratio(before.processor, after.processor)
        return replace(found, share=min(before.share, after.share))
    return ratio(before.samples, after.samples)


def _ratio(value: float, drawn: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Ratio:
    low, high = np.percentile(drawn, (_LOW, _HIGH))
    return Ratio(float(value), float(low), float(high))
