"""Measurements compared with an earlier baseline."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base import schema
from ...base.errors import FormatError, InputError, clean
from .environment import environment
from .timing import Measurement, Timing, change, short_names

VERSION = 2
"""Version of the files that baselines stand in."""
_MOST_SAMPLES = 100_000
_TIMES = schema.items(schema.number(1e-12), _MOST_SAMPLES, 1)
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
