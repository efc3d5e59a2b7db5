"""How much is proven of what is written, and how long that takes; see `loadrun.proof`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .errors import UsageError

LEVELS = ("none", "quick", "full")
"""How much is proven: nothing, what takes no longer than the writing or a second, or everything."""
LARGE = 1 << 26
"""Bytes of weights from which on quick compares testcases alone, whatever the time: files must not depend on that."""
_QUICK = 1.0
_SHORT, _BUSIEST = 0.05, 20.0


class Watch:
    """The time that this process takes for something: that of its processors, so that a busy machine changes nothing.

    Where several of them work, the time that passes is less.
    """

    def __init__(self) -> None:
        self._began, self._worked = time.monotonic(), time.process_time()

    @property
    def seconds(self) -> float:
        """What was taken since."""
        return min(time.monotonic() - self._began, time.process_time() - self._worked)

    def slowdown(self, waited: float) -> float:
        """Return how many times as long everything takes as where nothing else runs, but for what was waited."""
        passed = time.monotonic() - self._began - waited
        return min(max(passed / max(time.process_time() - self._worked, _SHORT), 1.0), _BUSIEST)


class _Clock:
    """The time since a file was begun, and how much of it went into proofs."""

    def __init__(self) -> None:
        self._whole = Watch()
        self._spent = self._waited = 0.0
        self._since: Watch | None = None

    @property
    def spent(self) -> float:
        """Seconds of proofs, those of the one that goes on included."""
        return self._spent + (0.0 if self._since is None else self._since.seconds)

    @property
    def written_for(self) -> float:
        """Seconds of everything else."""
        return self._whole.seconds - self.spent

    @contextmanager
    def spending(self) -> Iterator[None]:
        if self._since is not None:
            yield
            return
        self._since = Watch()
        try:
            yield
        finally:
            self._spent, self._since = self.spent, None

    @contextmanager
    def waiting(self, seconds: float | None) -> Iterator[float | None]:
        """Count the time inside, in which another process works for so many seconds; give those that may pass."""
        slowdown, began = self._whole.slowdown(self._waited), time.monotonic()
        try:
            yield None if seconds is None else seconds * slowdown
        finally:
            passed = time.monotonic() - began
            self._waited += passed
            self._spent += passed / slowdown


_level: ContextVar[str] = ContextVar("level", default="quick")
_alone: ContextVar[bool] = ContextVar("alone", default=False)
_clock: ContextVar[_Clock | None] = ContextVar("clock", default=None)


@contextmanager
def sharing_time() -> Iterator[_Clock]:
    """Let all that is proven inside, on the way to one file, share the time that quick has."""
    clock = _clock.get() or _Clock()
    before = _clock.set(clock)
    try:
        yield clock
    finally:
        _clock.reset(before)


@contextmanager
def spending() -> Iterator[None]:
    """Count the time inside as that of a proof."""
    with sharing_time() as clock, clock.spending():
        yield


def time_left(replay: float = 0.0) -> float:
    """Return how many seconds the proofs of a file may take still: as long as its writing, and a second at least.

    Args:
        replay: seconds of running what is written that belong to the writing, too.
    """
    clock = _clock.get()
    if level() == "full" or clock is None:
        return float("inf")
    return max(_QUICK, clock.written_for, replay) - clock.spent


@contextmanager
def waiting(seconds: float | None) -> Iterator[float | None]:
    """Count the time inside, in which another process works, as that of a proof.

    Args:
        seconds: how long it may take; what is given back is more on a busy machine. None for any time.
    """
    with sharing_time() as clock, clock.waiting(seconds) as most:
        yield most


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
