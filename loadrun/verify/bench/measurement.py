"""Subjects of measurements, and their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from ...runner import Verdict
from .timing import Timing

__all__ = ["Measurement", "Subject", "short_names"]


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
        streams: how many passes run at once, each with an engine and its part of the threads.
    """

    path: str
    engine: str = "reference"
    threads: int | None = None
    batch: int | None = None
    streams: int = 1

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
        if len({o.streams for o in others}) > 1:
            parts.append(f"{self.streams} stream{'s' * (self.streams != 1)}")
        return ", ".join(parts) or Path(self.path).name

    @property
    def key(self) -> dict[str, Any]:
        """Return the key of the subject in a baseline."""
        return {
            "file": Path(self.path).name,
            "engine": self.engine,
            "threads": self.threads,
            "batch": self.batch,
            "streams": self.streams,
        }


@dataclass(eq=False)
class Measurement:
    """The measurements of a subject; times are seconds of one run of a testcase, a sample is their mean in one pass.

    A pass runs all testcases once.

    Attributes:
        load: reading the file.
        first: the first run, in which the engine is made.
        cases: how many testcases a pass runs.
        wall: times of the steady state, one for each pass.
        processor: processor time of the same passes.
        each: the passes' times, by testcase.
        rounds: how many of the passes each round made; rounds of several subjects take turns.
        spans: how long the rounds took.
        flops: operations of a run, on average; None if a shape is unknown.
        memory: most bytes of intermediate values at a time, None for other engines than the reference engine.
        weights: bytes of constants.
        verdict: what the file's checks say, not compared when the data was changed.
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
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    each: list[list[float]] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    spans: list[float] = field(default_factory=list)

    @property
    def timing(self) -> Timing:
        """The steady state."""
        return Timing(tuple(self.wall), 1, tuple(self.processor))

    @property
    def rate(self) -> float | None:
        """Operations per second, by the median time."""
        return None if not self.flops else self.flops / self.timing.median

    @property
    def throughput(self) -> float:
        """Runs a second, of all streams together."""
        return self.cases * sum(self.rounds) / sum(self.spans)

    def paces(self, *, whole: bool = False, processor: bool = False) -> list[float]:
        """Return the seconds that a run takes, by round.

        Args:
            whole: of all the time of the round, instead of the median of its passes.
            processor: of the processor, instead of the clock.
        """
        if whole:
            return [span / count / self.cases for span, count in zip(self.spans, self.rounds, strict=True)]
        ends = list(accumulate(self.rounds))
        times = self.processor if processor else self.wall
        return [median(times[end - n : end]) for n, end in zip(self.rounds, ends, strict=True)]

    def add(
        self, wall: Sequence[float], each: list[list[float]], processor: Sequence[float], span: float
    ) -> None:
        """Add the passes of a round."""
        self.wall += wall
        self.each += each
        self.processor += processor
        self.rounds.append(len(wall))
        self.spans.append(span)
