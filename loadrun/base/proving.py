"""How much is proven of what is written; see `loadrun.proof`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .errors import UsageError

LEVELS = ("none", "quick", "full")
"""How much is proven: nothing, what takes no longer than the writing or a second, or everything."""
_level: ContextVar[str] = ContextVar("level", default="quick")


_alone: ContextVar[bool] = ContextVar("alone", default=False)


_spent: ContextVar[list[float] | None] = ContextVar("spent", default=None)


@contextmanager
def sharing_time() -> Iterator[None]:
    """Let all that is proven inside, on the way to one file, share the time that quick has."""
    before = _spent.set(_spent.get() or [0.0, time.monotonic()])
    try:
        yield
    finally:
        _spent.reset(before)


def spent() -> float:
    """Return the seconds that were spent on proofs on the way to this file."""
    return (_spent.get() or [0.0])[0]


def written_for() -> float:
    """Return the seconds for which the file has been made so far, without the proofs."""
    total = _spent.get()
    return 0.0 if total is None else time.monotonic() - total[1] - total[0]


def spend(seconds: float) -> None:
    """Add seconds to those."""
    if (total := _spent.get()) is not None:
        total[0] += seconds


@contextmanager
def alone() -> Iterator[None]:
    """Ask no other runtime inside: models are written because of what one of them computes otherwise."""
    before = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(before)


def is_alone() -> bool:
    """Return whether no other runtime is asked."""
    return _alone.get()


@contextmanager
def proving(level: str) -> Iterator[None]:
    """Say how much is proven of the models that are written inside.

    Args:
        level: ``none``, ``quick`` (by default: testcases, then data of other kinds for up to a second) or ``full``.

    Raises:
        UsageError: there is no such level.

    >>> with proving("none"):
    ...     level()
    'none'
    """
    if level not in LEVELS:
        raise UsageError(f"prove must be one of {', '.join(LEVELS)}, found {level!r}")
    before = _level.set(level)
    try:
        with sharing_time():
            yield
    finally:
        _level.reset(before)


def level() -> str:
    """Return how much is proven of what is written now."""
    return _level.get()
