"""Models in files measured side by side and compared with a baseline."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from ...base import schema
from ...base.errors import Failure, FormatError, InputError, LoadRunError, clean, failure
from ...base.files import contents, files_of
from ...compare.results import EXIT_FAIL, EXIT_NOT_COMPARED, EXIT_PASS
from ...inputs.feeds import ModelOptions
from ...runner import Verdict
from .environment import environment
from .running import run_subjects
from .timing import Measurement, Subject, Timing, change, short_names

VERSION = 2
"""Version of the files that baselines stand in."""
_TIMES = schema.items(schema.number(1e-12), least=1)
_SUBJECT = schema.record(
    {
        "file": schema.text,
        "engine": schema.text,
        "threads": schema.either(schema.integer(0, 2**16)),
        "batch": schema.either(schema.integer(0, 2**32)),
        "wall_seconds": _TIMES,
    },
    {
        "processor_seconds": _TIMES,
        "verdict": schema.text,
        "path": schema.text,
    },
)
BASELINE = schema.record(
    {"benchmark": schema.integer(0, 2**16), "subjects": schema.items(_SUBJECT)},
    {"environment": schema.record({}, {"processor": schema.either(schema.text)})},
)
"""The parts of a baseline that are read."""


@dataclass(frozen=True)
class Regression:
    """A subject compared with its baseline.

    Attributes:
        text: one line.
        failed: whether it is slower than allowed.
        compared: whether both have it.
    """

    text: str
    failed: bool
    compared: bool = True


def require_baseline(content: object, path: str) -> None:
    """Check that the content of a file is that of a baseline.

    Raises:
        InputError: it is not, or of another version.
    """
    try:
        baseline = BASELINE(content, "the baseline")
    except FormatError as e:
        raise InputError(f"{path} is not a file of `loadrun bench --json`: {e.message}") from None
    if baseline["benchmark"] != VERSION:
        raise InputError(f"{path}: the baseline is of version {baseline['benchmark']}, expected {VERSION}")


def regressions(
    measurements: Sequence[Measurement], baseline: Mapping[str, Any], allowed: float
) -> list[Regression]:
    """Compare with what `loadrun.report.benchmark.benchmark_json` gave some time ago.

    A subject fails when its median is slower by more than `allowed` and the 95 % interval of the ratio says that it is
    slower at all.

    Args:
        measurements: what was measured.
        baseline: the data of the baseline.
        allowed: the largest slowdown, 0.1 for 10 %.

    Raises:
        InputError: the baseline holds none of the subjects.
    """
    subjects = [m.subject for m in measurements]
    keys = [{**s.key, "path": s.path} for s in subjects]
    lines = []
    before = counterparts(keys, baseline["subjects"])
    for m, was in zip(measurements, before, strict=True):
        label = clean(m.subject.label(subjects), 80)
        if was is None:
            lines.append(Regression(f"{label}: not compared, it is not in the baseline", False, False))
            continue
        speed = change(timing_of(was), m.timing)
        slower = 1 / speed.value - 1
        failed = slower > allowed and speed.high < 1
        verdict = f"FAIL: {slower:.1%} slower, allowed {allowed:.0%}" if failed else "ok"
        lines.append(Regression(f"{speed.text(label, 'its baseline')}: {verdict}", failed))
    if not any(line.compared for line in lines):
        raise InputError(
            "nothing that was measured is in the baseline: file name, engine, threads and batch must be the same"
        )
    moved = [(_path(s), m.subject.path) for m, s in zip(measurements, before, strict=True) if s is not None]
    for path in _gone(dict.fromkeys(map(_path, baseline["subjects"])), moved):
        lines.append(
            Regression(
                f"{clean(path, 200)}: not compared, it is in the baseline and not there now", False, False
            )
        )
    was_there = baseline.get("environment", {}).get("processor")
    here = environment()["processor"]
    if was_there != here:
        lines.append(
            Regression(f"the baseline was measured on another processor: {was_there}, here {here}", False)
        )
    return lines


def timing_of(subject: Mapping[str, Any]) -> Timing:
    """Return the times of a subject of a baseline."""
    return Timing(tuple(subject["wall_seconds"]), processor=tuple(subject.get("processor_seconds", ())))


def _gone(paths: Iterable[str], moved: Sequence[tuple[str, str]]) -> list[str]:
    """Return the files that are not there, neither where they were nor where others of theirs have moved to."""
    roots = dict.fromkeys(_without_end(was, now) for was, now in moved)
    gone = []
    for path in paths:
        places = [path]
        places += [
            str(new / Path(path).relative_to(old)) for old, new in roots if Path(path).is_relative_to(old)
        ]
        if not any(Path(place).exists() for place in places):
            gone.append(path)
    return gone


def _without_end(a: str, b: str) -> tuple[Path, Path]:
    """Return two paths without the last parts that they share.

    >>> [p.as_posix() for p in _without_end("/a/x/net.mge", "b/x/net.mge")]
    ['/a', 'b']
    """
    first, second = Path(a), Path(b)
    while first.name and first.name == second.name:
        first, second = first.parent, second.parent
    return first, second


def subject_keys(subjects: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what identifies subjects beside one another: file, engine, threads, batch.

    The file is its name, with as many folders before it as it takes to tell it from others of that name.
    """
    names = short_names({_path(s) for s in subjects})
    return [(names[_path(s)], *(s[k] for k in ("engine", "threads", "batch"))) for s in subjects]


def counterparts(
    subjects: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any] | None]:
    """Return for each of some subjects the same one of another report, None if that has none.

    Files are the same where the names that tell them apart in either report end both paths, so that folders may be at
    another place.
    """
    keys, known = subject_keys(subjects), subject_keys(others)
    by_rest: dict[tuple[Any, ...], list[int]] = {}
    for i, key in enumerate(known):
        by_rest.setdefault((*key[1:], Path(key[0]).name), []).append(i)
    same: list[Mapping[str, Any] | None] = []
    for key, subject in zip(keys, subjects, strict=True):
        for i in by_rest.get((*key[1:], Path(key[0]).name), ()):
            if _ends(_path(subject), known[i][0]) and _ends(_path(others[i]), key[0]):
                same.append(others[i])
                break
        else:
            same.append(None)
    return same


def _path(subject: Mapping[str, Any]) -> str:
    path: str = subject.get("path", subject["file"])
    return path


def _ends(path: str, end: str) -> bool:
    parts = Path(end).parts
    return Path(path).parts[-len(parts) :] == parts


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
    >>> [(m.subject.threads, m.cases, len(m.timing.samples)) for m in found.measurements], found.exit_code
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
        one = replace(said, message=f"{where}{said.message}")
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
