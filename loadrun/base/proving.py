"""How much is proven of what is written; see `loadrun.proof`."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .errors import UsageError

LEVELS = ("none", "quick", "full")
"""How much is proven: nothing, what takes no longer than the writing or a second, or everything."""
_level: ContextVar[str] = ContextVar("level", default="quick")


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
        yield
    finally:
        _level.reset(before)


def level() -> str:
    """Return how much is proven of what is written now."""
    return _level.get()
