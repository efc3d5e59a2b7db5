"""Locks that are released in a forked child, whatever other threads of its parent were doing."""

import os
import threading
from collections.abc import Callable
from types import TracebackType
from weakref import WeakSet


def after_fork(
    func: Callable[[], object],
    *,
    before: Callable[[], object] | None = None,
    in_parent: Callable[[], object] | None = None,
) -> None:
    """Call `func` in every forked child, where of all threads only the calling one goes on.

    Args:
        func: called in the child.
        before: called in the parent before it forks, such as taking a lock.
        in_parent: called in the parent after it forked, such as giving it back.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=before or _nothing, after_in_parent=in_parent or _nothing, after_in_child=func
        )


def _nothing() -> None:
    """Acquire without waiting."""


class ForkLock:
    """A reentrant lock for ``with``.

    A fork copies locks as they are, but not the threads that would open them. In the child a lock is open
    unless the thread that forked holds it.

    >>> lock = ForkLock()
    >>> with lock, lock:
    ...     lock.depth
    2
    """

    def __init__(self) -> None:
        self.depth = 0
        self._owner = 0
        self._lock = threading.RLock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()
        self.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.depth -= 1
        if not self.depth:
            self._owner = 0
        self._lock.release()

    def reset(self) -> None:
        """Release the lock in a child whose only thread does not hold it."""
        if self._owner != threading.get_ident():
            self._lock, self._owner, self.depth = threading.RLock(), 0, 0


_LOCKS: WeakSet[ForkLock] = WeakSet()


def _reset() -> None:
    for lock in list(_LOCKS):
        lock.reset()


after_fork(_reset)
