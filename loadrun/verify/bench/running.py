"""Models measured: load, first run and steady state apart, several in turns."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import LoadRunError, UsageError
from ...dump import load
from ...engines import runs_file
from ...engines.alive import PeakMeter
from ...engines.reference import ReferenceEngine
from ...graph.dtypes import Array, nbytes
from ...inputs.feeds import random_inputs
from ...ops.infer import infer_dtypes, infer_shapes
from ...ops.numeric.parallel import set_threads, threads
from ...runner import Runner, Verdict
from ...testcase import Bundle, FileValue, Testcase
from .machine import MachineMonitor
from .timing import Timing

__all__ = ["Measurement", "Subject", "peak_memory", "run_subjects"]

_LEAST = 5
_MOST = 100_000
_REFERENCE = "reference"


@dataclass(frozen=True)
class Subject:
    """What is measured: a file, an engine, a number of threads, a batch.

    Attributes:
        path: the file.
        engine: name of the engine.
        threads: how many threads, None for as many as there are.
        batch: items of axis 0 of every input, None for those of the testcases.
    """

    path: str
    engine: str = _REFERENCE
    threads: int | None = None
    batch: int | None = None

    def label(self, others: Sequence[Subject]) -> str:
        """Return a short name that says in what it differs from the others."""
        parts = [Path(self.path).name] if len({o.path for o in others}) > 1 else []
        if len({o.engine for o in others}) > 1:
            parts.append(self.engine)
        if len({o.threads for o in others}) > 1:
            parts.append(f"{self.threads} thread{'s' * (self.threads != 1)}")
        if len({o.batch for o in others}) > 1:
            parts.append(f"batch {self.batch}")
        return ", ".join(parts) or Path(self.path).name

    @property
    def key(self) -> dict[str, Any]:
        """What identifies it in a baseline."""
        return {
            "file": Path(self.path).name,
            "engine": self.engine,
            "threads": self.threads,
            "batch": self.batch,
        }


@dataclass(eq=False)
class Measurement:
    """What was measured of a subject; times are seconds, a sample is one pass through all testcases.

    Attributes:
        load: reading the file.
        first: the first pass, in which the engine is made.
        wall: passes of the steady state.
        processor: processor time of the same passes.
        each: the passes' times, by testcase.
        flops: operations of a pass, None where a shape is unknown.
        memory: most bytes of intermediate values at a time, None for other engines than the reference engine.
        weights: bytes of constants.
        verdict: what the file's checks say, not compared when the data was changed.
    """

    subject: Subject
    load: float
    first: float
    cases: int
    flops: int | None
    memory: int | None
    weights: int
    verdict: Verdict
    about: str
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    each: list[list[float]] = field(default_factory=list)

    @property
    def timing(self) -> Timing:
        """The steady state."""
        return Timing(tuple(self.wall), 1)

    @property
    def rate(self) -> float | None:
        """Operations per second, of the median pass."""
        return None if not self.flops else self.flops / self.timing.median


@dataclass(eq=False)
class _Ready:
    """A subject that can be run."""

    runner: Runner
    feeds: list[Mapping[str, FileValue]]
    measured: Measurement
    threads: int

    def once(self) -> None:
        """One pass through all testcases."""
        set_threads(self.threads)
        began = time.process_time_ns()
        each = [self.runner.run(f).seconds or 0.0 for f in self.feeds]
        self.measured.processor.append((time.process_time_ns() - began) * 1e-9)
        self.measured.wall.append(sum(each))
        self.measured.each.append(each)


def run_subjects(
    subjects: Sequence[Subject],
    *,
    seconds: float = 3.0,
    passes: int = _LEAST,
    testcase: int | None = None,
    seed: int = 0,
    read: Mapping[str, Any] | None = None,
    done: Callable[[float], None] | None = None,
) -> tuple[list[Measurement], list[str]]:
    """Measure subjects in turns, so that what changes meanwhile changes all of them.

    Args:
        subjects: what to measure.
        seconds: the least time for each of them.
        passes: the least number of passes for each of them.
        testcase: the only testcase to run, default all.
        seed: seed of random inputs, and of the order within rounds.
        read: what `loadrun.load` is told of ONNX models: input_shapes, constants.
        done: told how much is done, from 0 to 1.

    Returns:
        what was measured, and what makes the times doubtful.

    Raises:
        LoadRunError: a file cannot be read or run.
    """
    before = threads()
    order = random.Random(seed)
    try:
        ready = [_prepared(s, testcase, seed, s.threads or before, read or {}) for s in subjects]
        machine = MachineMonitor(before)
        enabled = gc.isenabled()
        gc.disable()
        try:
            while not all(_enough(r.measured, seconds, passes) for r in ready):
                machine.sample()
                for r in order.sample(ready, len(ready)):
                    r.once()
                if done is not None:
                    done(min(min(1.0, sum(r.measured.wall) / seconds) if seconds else 1.0 for r in ready))
        finally:
            if enabled:
                gc.enable()
    finally:
        set_threads(before)
    found = [r.measured for r in ready]
    least = min(s.threads or before for s in subjects)
    wall = [t for m in found for t in m.wall]
    return found, machine.warnings(wall, [t for m in found for t in m.processor], least)


def _enough(m: Measurement, seconds: float, passes: int) -> bool:
    return len(m.wall) >= _MOST or (len(m.wall) >= passes and sum(m.wall) >= seconds)


def _prepared(
    subject: Subject, testcase: int | None, seed: int, count: int, read: Mapping[str, Any]
) -> _Ready:
    """Load, run for the first time, and verify."""
    set_threads(count)
    start = time.perf_counter()
    bundle = load(subject.path, native=runs_file(subject.engine), **read)
    took = time.perf_counter() - start
    runner = Runner(bundle, subject.engine, seed=seed)
    cases, verdict = _cases(bundle, subject, testcase, seed)
    feeds = [runner.inputs_of(case) for case in cases]
    start = time.perf_counter()
    for f in feeds:
        runner.run(f)
    first = time.perf_counter() - start
    for f in feeds:
        runner.run(f)
    memory = None
    if subject.engine == _REFERENCE:
        memory = max(peak_memory(bundle.for_data(c.arrays), c.inputs, seed).peak for c in cases)
    flops, weights = _costs(bundle, [c.inputs for c in cases])
    about = runner.about.text
    return _Ready(
        runner,
        feeds,
        Measurement(subject, took, first, len(feeds), flops, memory, weights, verdict, about),
        count,
    )


def _cases(
    bundle: Bundle, subject: Subject, testcase: int | None, seed: int
) -> tuple[list[Testcase], Verdict]:
    """Return the data to run on, and what the checks say about it."""
    count = len(bundle.testcases)
    if testcase is not None and not 0 <= testcase < count:
        raise UsageError(f"{subject.path}: there is no testcase {testcase}; the file has {count}")
    chosen = range(count) if testcase is None else (testcase,)
    cases = [bundle.testcases[i] for i in chosen] or [Testcase(random_inputs(bundle, seed))]
    if subject.batch is not None:
        # One batch is one testcase: others would be the same shape once more.
        inputs = {n: _resized(a, subject.batch) for n, a in cases[0].inputs.items()}
        return [Testcase(inputs)], Verdict.NOT_COMPARED
    if not count:
        return cases, Verdict.NOT_COMPARED
    fresh = Runner(bundle, subject.engine, seed=seed)
    return cases, Verdict.worst(fresh.replay_one(i).verdict for i in chosen)


def _resized(array: Array, size: int) -> Array:
    return array[np.arange(size) % len(array)] if array.ndim and len(array) else array


def _costs(bundle: Bundle, feeds: Sequence[Mapping[str, Array]]) -> tuple[int | None, int]:
    """Operations of a pass, None where one is unknown, and bytes of constants."""
    total, weights = 0, 0
    for f in feeds:
        sized = bundle.for_data(f)
        oprs = sized.graph.needed(sized.outputs.values())
        infer_dtypes(oprs)
        weights = sum(
            nbytes(t.shape or (), t.dtype) for o in oprs if o.type != "Host2DeviceCopy" for t in o.tensors
        )
        try:
            known = infer_shapes(sized.graph, oprs, {n: a.shape for n, a in f.items()})
        except LoadRunError:
            return None, weights
        if any(o.id not in known.flops for o in oprs if o.type != "Host2DeviceCopy"):
            return None, weights
        total += sum(known.flops.values())
    return total, weights


def peak_memory(bundle: Bundle, feeds: Mapping[str, Array], seed: int = 0) -> PeakMeter:
    """How much memory intermediate values take at most in one run on the reference engine, and which those are."""
    engine = ReferenceEngine(bundle.graph, list(bundle.outputs.values()), seed=seed)
    engine.run(feeds)
    meter = PeakMeter(feeds.values())
    engine.run(feeds, memory=meter)
    return meter
