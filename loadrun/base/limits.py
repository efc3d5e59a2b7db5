"""Limits of time and memory for processing a file."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .errors import EXIT_TIMEOUT, TimeLimitError, UsageError
from .registry import late

with late(__name__):
    import resource

_GRACE = 5.0
"""Seconds after which a process that is stuck in a library call is killed."""


class EndedBySignal(SystemExit):
    """A signal asks the process to end; no other code may catch this exception."""


class _TimeIsUp(BaseException):
    """Time is up; error handlers of the running code must not catch this."""


@contextmanager
def time_limited(seconds: float | None) -> Iterator[None]:
    """End what runs inside when it takes longer, in the main thread of systems that have timers.

    What is in a single call of a library for five seconds more ends with the process, whose exit code is then 4.

    Args:
        seconds: how long it may take, None for as long as it likes.

    Raises:
        TimeLimitError: it took longer.
        UsageError: it may take no time.

    >>> with time_limited(60):
    ...     sum(range(10))
    45
    """
    if seconds is not None and not seconds > 0:
        raise UsageError(f"a time limit must be a number of seconds above 0, found {seconds}")
    timers = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if seconds is None or not timers:
        yield
        return

    over = False

    def up(number: int, frame: FrameType | None) -> None:
        if over:
            return
        if frame is not None and frame.f_globals.get("__name__") in ("contextlib", __name__):
            # On the way to what is limited, or back from it, nothing would catch the exception.
            signal.setitimer(signal.ITIMER_REAL, 1e-3, 1.0)
            return
        raise _TimeIsUp

    said = f"it took longer than {seconds:g} s (--timeout)"
    seconds = min(seconds, threading.TIMEOUT_MAX - _GRACE)
    last = threading.Timer(seconds + _GRACE, _end_process, [f"loadrun: {said}\n"])
    last.daemon = True
    before = signal.signal(signal.SIGALRM, up)
    last.start()
    try:
        # Repeated every second: Python drops an exception raised in a finalizer.
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
        yield
    except _TimeIsUp:
        raise TimeLimitError(said) from None
    finally:
        over = True
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        last.cancel()
        signal.signal(signal.SIGALRM, before)


def _end_process(text: str) -> None:
    os.write(2, text.encode())
    os._exit(EXIT_TIMEOUT)


def memory_limit() -> int:
    """Return the bytes of physical memory, or 2**62 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**62


def memory_of_machine() -> int | None:
    """Return the bytes available on this machine or in this container; None if unknown."""
    limits = [n for n in (_free(), _free_in_container()) if n is not None]
    return min(limits) if limits else None


def _free() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as f:
            rows = dict(line.split(":", 1) for line in f)
        return sum(int(rows[k].split()[0]) * 1024 for k in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError):
        return None


def _free_in_container() -> int | None:
    for most, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            with open(most, encoding="ascii") as f, open(used, encoding="ascii") as g:
                return max(int(f.read()) - int(g.read()), 0)
        except (OSError, ValueError):
            continue
    return None


@contextmanager
def memory_limited(nbytes: int | None) -> Iterator[None]:
    """Limit the memory of this process, and of each that it starts, to this much more than it has now.

    Asking for more raises MemoryError. Files that are mapped to be read do not count. Linux alone keeps such a limit.

    Args:
        nbytes: how much more, None for what the machine can give.

    Raises:
        UsageError: that is nothing.
    """
    if nbytes is not None and nbytes <= 0:
        raise UsageError(f"a memory limit must be a number of bytes above 0, found {nbytes}")
    allowed = memory_of_machine() if nbytes is None else nbytes
    if allowed is None or not sys.platform.startswith("linux"):
        yield
        return

    with open("/proc/self/status", encoding="ascii") as f:
        used = next((int(line.split()[1]) * 1024 for line in f if line.startswith("VmData:")), 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + allowed
    bounds = [n for n in (soft, hard) if n != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *bounds]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
