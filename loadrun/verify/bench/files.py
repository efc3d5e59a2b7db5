"""Models in files measured side by side and compared with a baseline."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from ...base.errors import Failure, InputError, LoadRunError, failure
from ...base.files import contents, files_of
from ...compare.results import EXIT_FAIL, EXIT_NOT_COMPARED, EXIT_PASS
from ...inputs.feeds import ModelOptions
from ...runner import Verdict
from .baseline import Regression, regressions, require_baseline
from .running import run_subjects
from .timing import Measurement, Subject


@dataclass(frozen=True, kw_only=True)
class BenchOptions(ModelOptions):
    """Describe how models are timed; the options of `ModelOptions` are among these.

    Attributes:
        engine: engines to compare.
        threads: thread counts to compare.
        batch: batch sizes to compare, along axis 0 of the inputs of one testcase.
        testcase: use only testcase N (default: all in turn).
        min_time: measure each model for at least this many seconds.
        min_passes: ... and for at least this many passes.
        seed: seed for everything that is drawn at random (default 0).
        baseline: compare with measurements that --json wrote.
        max_slowdown: fail if a model is slower than the baseline by more than this: 10% or 1.1x (default 10%). In
            Python, 0.1 for 10 %.
    """

    engine: tuple[str, ...] = ("reference",)
    threads: tuple[int | None, ...] = (None,)
    batch: tuple[int | None, ...] = (None,)
    testcase: int | None = None
    min_time: float = 3.0
    min_passes: int = 5
    seed: int = 0
    baseline: str | os.PathLike[str] | None = None
    max_slowdown: float = 0.1


@dataclass
class Benchmark:
    """The result of measuring.

    Attributes:
        measurements: one for every model, engine, number of threads and batch.
        failures: why what is not among the measurements could not be read or run.
    """

    measurements: list[Measurement]
    failures: list[Failure]
    _baseline: Mapping[str, Any] | None = None
    _allowed: float = 0.0

    @cached_property
    def regressions(self) -> list[Regression]:
        """Compare each with the baseline; return nothing without one.

        Raises:
            InputError: the baseline holds none of them, or is none.
        """
        if self._baseline is None or not self.measurements:
            return []
        return regressions(self.measurements, self._baseline, self._allowed)

    @property
    def exit_code(self) -> int:
        """Return the exit code of `loadrun bench`: 0 when all was measured, no check failed, nothing is too slow."""
        if self.failures:
            return max(f.code for f in self.failures)
        wrong = any(m.verdict in (Verdict.FAIL, Verdict.ERROR) for m in self.measurements)
        if wrong or any(r.failed for r in self.regressions):
            return EXIT_FAIL
        return EXIT_PASS if all(r.compared for r in self.regressions) else EXIT_NOT_COMPARED


def bench_files(
    files: Iterable[str | os.PathLike[str]],
    options: BenchOptions | None = None,
) -> Benchmark:
    """Time models: loading, the first run, the steady state. Several take turns.

    Args:
        files: names, patterns and folders.
        options: what is compared, and for how long each is measured.

    A model that cannot be read or run is a failure of its own; the others are measured.

    Raises:
        LoadRunError: there is no file, or the baseline cannot be read.

    >>> found = bench_files(["fixtures/nets/mlp.mge"], BenchOptions(min_time=0, threads=(1, 2)))
    >>> [(m.subject.threads, m.cases, len(m.wall)) for m in found.measurements], found.exit_code
    ([(1, 3, 5), (2, 3, 5)], 0)
    """
    options = options or BenchOptions()
    paths = list(files_of([os.fspath(f) for f in files]))
    baseline = None if options.baseline is None else _read(options.baseline)
    compared = product(paths, options.engine, options.threads, options.batch)
    failures: list[Failure] = []

    def failed(subject: Subject, error: LoadRunError | OSError) -> None:
        said = failure(error, named=True)
        where = "" if subject.path in said.message else f"{subject.path}: "
        one = Failure(f"{where}{said.message}", said.fault, said.late)
        if one not in failures:
            failures.append(one)

    measurements = run_subjects(
        [Subject(*what) for what in compared],
        seconds=options.min_time,
        passes=max(1, options.min_passes),
        testcase=options.testcase,
        seed=options.seed,
        read=options.read,
        failed=failed,
    )
    return Benchmark(measurements, failures, baseline, options.max_slowdown)


def _read(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    try:
        content: Mapping[str, Any] = json.loads(contents(path, "a baseline"))
    except (ValueError, RecursionError) as e:
        raise InputError(f"{os.fspath(path)}: not a baseline: {e}") from None
    require_baseline(content, os.fspath(path))
    return content
