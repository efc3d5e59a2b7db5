"""Timing rules: warm-up first, raw samples kept, statistics that the number of samples supports; what was measured."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from ...runner import Verdict

_SHARE = 0.9
_NEEDED = ((50.0, 1), (90.0, 64), (99.0, 662))
"""Percentiles, and how many samples they take."""


def needed(p: float) -> int:
    """Return how many samples the p-th percentile needs.

    At 99 % confidence 64 samples tell the 90th and 662 the 99th percentile (MLPerf's early stopping).

    >>> needed(50), needed(90), needed(99)
    (1, 64, 662)
    """
    return next((n for limit, n in _NEEDED if p <= limit), 10 * _NEEDED[-1][1])


@dataclass(frozen=True)
class Timing:
    """Times of repeated runs, in seconds.

    Attributes:
        samples: by the clock.
        warmup: runs before these.
        processor: of the processor, of all threads together; empty if unknown.
        testcase: the number of the testcase that was run, None if there is none.

    >>> t = Timing((0.003, 0.001, 0.002))
    >>> t.median, t.best
    (0.002, 0.001)
    """

    samples: tuple[float, ...]
    warmup: int = 0
    processor: tuple[float, ...] = ()
    testcase: int | None = None

    @property
    def share(self) -> float:
        """The part of the time for which the runs had a processor, 1 if that is unknown; more with several threads.

        >>> Timing((1.0, 1.0), processor=(0.9, 0.7)).share
        0.8
        """
        return sum(self.processor) / sum(self.samples) if self.processor and sum(self.samples) else 1.0

    @property
    def cpu(self) -> Timing:
        """The same runs by processor time."""
        return Timing(self.processor, self.warmup, testcase=self.testcase)

    @property
    def disturbed(self) -> bool:
        """Whether runs waited for a processor so long that only its own time tells how long they take."""
        return self.share < _SHARE

    @property
    def median(self) -> float:
        """The middle sample, or the mean of the two middle ones."""
        return median(self.samples)

    @property
    def best(self) -> float:
        """The smallest sample."""
        return min(self.samples)

    @property
    def mean(self) -> float:
        """The arithmetic mean."""
        return fmean(self.samples)

    @property
    def deviation(self) -> float:
        """The median of the absolute distances from the median."""
        middle = self.median
        return median([abs(s - middle) for s in self.samples])

    def percentile(self, p: float) -> float | None:
        """Return the p-th percentile (0 < p < 100), or None if the samples are too few (see `needed`)."""
        if len(self.samples) < needed(p):
            return None
        if p == 50:
            return self.median
        ordered = sorted(self.samples)
        return ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))]


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep garbage from being collected meanwhile, which would count as time of a run."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def measure(run: Callable[[], object], iterations: int, warmup: int = 1) -> Timing:
    """Call `run` repeatedly and keep the time of every call.

    Args:
        run: what to time.
        iterations: the number of timed calls.
        warmup: calls before the timing begins.
    """
    for _ in range(warmup):
        run()
    samples: list[float] = []
    processor: list[float] = []
    with uncollected():
        for _ in range(iterations):
            used, start = time.process_time_ns(), time.perf_counter_ns()
            run()
            samples.append((time.perf_counter_ns() - start) * 1e-9)
            processor.append((time.process_time_ns() - used) * 1e-9)
    return Timing(tuple(samples), warmup, tuple(processor))


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


def paired_ratio(base: Sequence[float], other: Sequence[float]) -> Ratio:
    """How many times as fast `other` is as `base`, from times taken in turns.

    Rounds are drawn, not single times: what slowed down a whole round slows down both, and leaves their ratio as it is.

    Args:
        base: seconds, one a round.
        other: seconds of the same rounds.

    >>> paired_ratio([2.0, 2.1, 1.9], [1.0, 1.05, 0.95]).value
    2.0
    """
    a, b = np.asarray(base, np.float64), np.asarray(other, np.float64)
    drawn = np.random.default_rng(0).integers(0, len(a), (_DRAWS, len(a)))
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


def short_names(paths: Collection[str]) -> dict[str, str]:
    """Return the fewest last parts of each path that tell it from the others.

    >>> short_names(["a/x/model.onnx", "a/y/model.onnx", "a/net.mge"])
    {'a/x/model.onnx': 'x/model.onnx', 'a/y/model.onnx': 'y/model.onnx', 'a/net.mge': 'net.mge'}
    """
    names: dict[str, str] = {}
    parts = {path: Path(path).parts for path in paths}
    count = 0
    while len(names) < len(parts):
        count += 1
        ends = Counter(p[-count:] for p in parts.values())
        for path, p in parts.items():
            if path not in names and (ends[p[-count:]] == 1 or count >= len(p)):
                names[path] = str(Path(*p[-count:]))
    return {path: names[path] for path in paths}


@dataclass(frozen=True)
class Subject:
    """A subject of measuring: a file, an engine, a number of threads, a batch.

    Attributes:
        path: the file.
        engine: name of the engine.
        threads: how many threads, None for as many as there are.
        batch: items of axis 0 of every input, None for those of the testcases.
    """

    path: str
    engine: str = "reference"
    threads: int | None = None
    batch: int | None = None

    def label(self, others: Sequence[Subject]) -> str:
        """Return a short name that says in what it differs from the others."""
        paths = {o.path for o in others}
        parts = [short_names(paths)[self.path]] if len(paths) > 1 else []
        if len({o.engine for o in others}) > 1:
            parts.append(self.engine)
        if len({o.threads for o in others}) > 1:
            parts.append(f"{self.threads} thread{'s' * (self.threads != 1)}")
        if len({o.batch for o in others}) > 1:
            parts.append(f"batch {self.batch}")
        return ", ".join(parts) or Path(self.path).name

    @property
    def key(self) -> dict[str, Any]:
        """Return the key of the subject in a baseline."""
        return {
            "file": Path(self.path).name,
            "engine": self.engine,
            "threads": self.threads,
            "batch": self.batch,
        }


class Round(NamedTuple):
    """Passes, of which each runs all testcases once, in seconds.

    Attributes:
        each: the passes' times, by testcase.
        spent: time of the processor.
        span: how long the round took.

    >>> Round([[1.0, 3.0], [2.0, 2.0]], 12.0, 8.0).wall
    [2.0, 2.0]
    """

    each: list[list[float]]
    spent: float
    span: float

    @property
    def wall(self) -> list[float]:
        """Times of one run, for each pass, by which models with other numbers of testcases can be compared."""
        return [sum(times) / len(times) for times in self.each]

    @property
    def processor(self) -> float:
        """Time of the processor for one run."""
        return self.spent / sum(map(len, self.each))


@dataclass(eq=False)
class Measurement:
    """The measurements of a subject; times are seconds of one run of a testcase, a sample is their mean in one pass.

    Attributes:
        load: reading the file.
        first: the first run, in which the engine is made.
        cases: how many testcases a pass runs.
        flops: operations of a run, on average; None if a shape is unknown.
        memory: most bytes of intermediate values at a time, None for other engines than the reference engine.
        weights: bytes of constants.
        verdict: what the file's checks say, not compared when the data was changed.
        rounds: the steady state; rounds of several subjects take turns.
    """

    subject: Subject
    load: float
    first: float
    cases: int
    flops: float | None
    memory: int | None
    weights: int
    verdict: Verdict
    about: str
    rounds: list[Round] = field(default_factory=list)

    @property
    def timing(self) -> Timing:
        """The steady state, a sample for each pass."""
        processor = tuple(r.processor for r in self.rounds for _ in r.each)
        return Timing(tuple(t for r in self.rounds for t in r.wall), 1, processor)

    @property
    def rate(self) -> float | None:
        """Operations per second, by the median time."""
        return None if not self.flops else self.flops / self.timing.median

    @property
    def throughput(self) -> float:
        """Runs a second."""
        return self.cases * sum(len(r.each) for r in self.rounds) / sum(r.span for r in self.rounds)

    def paces(self, *, processor: bool = False) -> list[float]:
        """Return the seconds that a run takes, by round: the median of its passes, on demand of the processor."""
        return [r.processor if processor else median(r.wall) for r in self.rounds]
