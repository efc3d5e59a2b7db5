"""Thousands of cases of one kind, dozens to a test: a test costs more to collect and report than such a case.

Every case is looked at, whatever came of those before it; the failure names each that failed, with what it raised.
``LOADRUN_CASE=TEXT`` in the environment leaves only the cases with that text in their names. Of the largest sweeps
a run takes a part, in which every kind of case occurs, the same in every run; ``LOADRUN_WHOLE=1`` takes all, and the
tests that are marked ``slow``.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator
from importlib.util import find_spec
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any, TypeVar

import pytest

__all__ = ["BOTH", "WHOLE", "check_all", "fewer", "in_groups", "kind_of_file", "slow_but", "some_of"]

T = TypeVar("T")
ONLY = os.environ.get("LOADRUN_CASE", "")
WHOLE = bool(ONLY or os.environ.get("LOADRUN_WHOLE"))
SHOWN = 5
"""Of how many failures the tracebacks are shown."""


def in_groups(cases: Iterable[T], group: Callable[[T], str], most: int = 60) -> list[Any]:
    """Parameters of a test: lists of at most so many cases, which follow each other in a group."""
    return [pytest.param(part, id=label) for label, part in _parts(cases, group, most)]


def _parts(cases: Iterable[T], group: Callable[[T], str], most: int) -> Iterator[tuple[str, list[T]]]:
    for name, found in groupby(sorted(cases, key=group), group):
        held = list(found)
        for at in range(0, len(held), most):
            yield f"{name}-{at // most}" if len(held) > most else name, held[at : at + most]


def check_all(cases: Iterable[T], check: Callable[[T], object], name: Callable[[T], str] = str) -> None:
    """Check every case and fail once if any failed."""
    chosen = [case for case in cases if ONLY in name(case)]
    if ONLY and not chosen:
        pytest.skip(f"no case has {ONLY!r} in its name")
    failed: dict[str, Exception] = {}
    for case in chosen:
        try:
            check(case)
        except Exception as e:
            failed[name(case)] = e
    if not failed:
        return
    shown = ["".join(traceback.format_exception(e)) for e in [*failed.values()][:SHOWN]]
    lines = [
        f"{len(failed)} of {len(chosen)} cases failed (LOADRUN_CASE=NAME runs one alone):",
        *failed,
        *shown,
    ]
    pytest.fail("\n".join(lines), pytrace=False)


def some_of(cases: Iterable[T], every: int, kind: Callable[[T], Hashable] = lambda _: None) -> list[T]:
    """The first case of each kind, and one of `every` others."""
    seen: set[Hashable] = set()
    taken: list[T] = []
    others = 0
    for case in cases:
        new = kind(case) not in seen
        seen.add(kind(case))
        others += not new
        if WHOLE or new or others % every == 0:
            taken.append(case)
    return taken


def slow_but(always: Iterable[Hashable], cases: Iterable[Hashable]) -> list[Any]:
    """Parameters of a test that takes seconds for each: those in `always` stay in every run, the others are slow."""
    kept = {*always}
    return [case if case in kept else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def fewer(count: int, by: int = 4) -> int:
    """How many of so many random examples a run takes."""
    return count if WHOLE else -(-count // by)


def kind_of_file(name: str) -> tuple[str, str, bool]:
    """Folder, first word and format version of a fixture: which operator or net it holds, and who reads it."""
    path = PurePosixPath(name)
    return path.parent.as_posix(), path.name.partition(".")[0].partition("_")[0], ".v1." in path.name


BOTH = [
    "reference",
    pytest.param(
        "numba",
        marks=[
            pytest.mark.slow,
            pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed"),
        ],
    ),
]
"""Parameters of a test: the engines that run a model operator by operator in float32."""
