"""Processes of this Python that loadrun starts for a part of its work, the messages to and from them, and commands.

No other process has the pipes of workers, so that messages may be unpickled.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from struct import pack, unpack
from typing import IO, Any, TypeVar

from .errors import LoadRunError
from .registry import late

with late(__name__):
    import multiprocessing
    from concurrent import futures
    from concurrent.futures import process as worker_pool

T = TypeVar("T")
R = TypeVar("R")
_HEAD = 8
_BOOT = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"


class Child:
    """A process that calls ``main()`` of a module, with the pipes to and from it.

    It is a new process: a fork would copy threads and locks, `multiprocessing` would import the caller's main module.

    Args:
        module: the module's name.
        environment: the environment of the process.
    """

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        boot = _BOOT.format(path=[os.path.abspath(p) for p in sys.path if p], module=module)
        self.process = subprocess.Popen(
            [sys.executable, "-c", boot], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(environment)
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._to, self._from = self.process.stdin, self.process.stdout

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            OSError: it is gone.
        """
        send(self._to, message)

    def receive(self) -> tuple[Any, int]:
        """Wait for a message; see `receive`."""
        return receive(self._from)

    def died_of(self) -> str:
        """Wait for its end, and say how it ended."""
        return f"the process that ran it {ending(self.process.wait())}"

    def end(self) -> None:
        """Kill it, and close the pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self._to, self._from):
            # What it did not read is flushed into a pipe that nobody reads.
            with suppress(OSError):
                pipe.close()


def ending(code: int) -> str:
    """Say how a process ended, by what `subprocess` gives as its exit code.

    >>> ending(3), ending(-11)
    ('ended with exit code 3', 'was killed by SIGSEGV')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}{', as happens when memory runs out' * (name == 'SIGKILL')}"


def run_whole(command: Sequence[str], timeout: float) -> tuple[int, bytes]:
    """Run a program to its end: its exit code, and what it printed.

    It leads a process group, which ends with all that it started when time is up, or when anything else is raised here.

    Raises:
        TimeoutError: it took longer.
        OSError: it cannot be started.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=timeout)
        except BaseException as e:
            if hasattr(os, "killpg"):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
            if isinstance(e, subprocess.TimeoutExpired):
                raise TimeoutError from None
            raise
    return process.returncode, said


def serve() -> tuple[IO[bytes], IO[bytes]]:
    """Return the pipes from and to the parent, in a process that is a `Child`.

    Output of libraries goes to standard error, so that it does not mix with the messages.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return sys.stdin.buffer, answers


def send(pipe: IO[bytes], message: object) -> None:
    """Write one message."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(pack("<Q", len(data)))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> tuple[Any, int]:
    """Wait for a message.

    Returns:
        it, and its size in bytes.

    Raises:
        EOFError: the other side is gone.
    """
    data = _exactly(pipe, unpack("<Q", _exactly(pipe, _HEAD))[0])
    return pickle.loads(data), len(data)


def _exactly(pipe: IO[bytes], n: int) -> bytes:
    data = pipe.read(n)
    if len(data) < n:
        raise EOFError
    return data


def mapped(function: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[R]:
    """Call a function of a module on items, in their order, in that many processes at once.

    Raises:
        LoadRunError: a process ended before it gave a result.

    >>> list(mapped(abs, [-1, 2], 1))
    [1, 2]
    """
    if jobs < 2 or len(items) < 2:
        yield from map(function, items)
        return

    with futures.ProcessPoolExecutor(
        min(jobs, len(items)), mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        try:
            yield from pool.map(function, items)
        except worker_pool.BrokenProcessPool as e:
            raise LoadRunError(
                "a worker process died, possibly for lack of memory; use -j 1 to see where"
            ) from e
