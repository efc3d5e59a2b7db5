"""Worker processes: files are distributed, events stay in order, a dead worker harms only its file."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from ..base.errors import EXIT_CRASH, EXIT_TIMEOUT, Failure
from ..base.pipes import Child
from ..ops.numeric.parallel import thread_environment, threads
from .reporting import Closed, Event, Opened, Task

_HELD = 4 << 20
"""Maximum bytes of queued events per file; a worker with more waits."""
_TICK = 0.1
_MODULE = "loadrun.replay.worker"


@dataclass(eq=False)
class FileRun:
    """A file to be replayed, and its events that were not yet taken.

    Attributes:
        task: the file.
        events: what came of it, with sizes in bytes; None at its end.
        held: the sizes of all of them.
    """

    task: Task
    events: deque[tuple[Event | None, int]] = field(default_factory=deque)
    held: int = 0


class Worker(Child):
    """A process that replays one file after another."""

    def __init__(self, threads_each: int) -> None:
        super().__init__(_MODULE, thread_environment(threads_each))
        self._limit: float | None = None
        self._spent = 0.0
        self._since = 0.0
        self._late = False
        self._lock = threading.Lock()

    def replay(self, task: Task) -> Iterator[tuple[Event, int]]:
        """Yield the events of a file, with sizes in bytes; the last one tells of the process if that died.

        The seconds in which it waits for the caller do not count for its time limit.
        """
        try:
            self.send(task)
            self._next(None)  # all is imported, from here on time counts
            self._spent = 0.0
            while True:
                event, size = self._next(task.timeout)
                if event is None:
                    return
                yield event, size
        except (EOFError, OSError, ValueError):
            failure = Failure(self.died_of(), EXIT_CRASH)
            if self._late:
                failure = Failure(f"it took longer than {task.timeout:g} s (--timeout)", EXIT_TIMEOUT)
            yield Closed(failure), 0

    def _next(self, limit: float | None) -> tuple[Event | None, int]:
        """Wait for a message, and count the seconds that it takes.

        Raises:
            EOFError: the process is dead.
        """
        with self._lock:
            self._limit, self._since = limit, time.monotonic()
        message = self.receive()
        with self._lock:
            self._spent += time.monotonic() - self._since
            self._limit = None
        if self._late:
            raise EOFError
        return message

    def check_time(self) -> None:
        """Kill the process if its file takes too long."""
        with self._lock:
            if self._limit is not None and self._spent + time.monotonic() - self._since > self._limit:
                self._late = True
                self.process.kill()


class Pool:
    """Replays tasks in worker processes.

    Workers are started afresh, not forked, and the processor's threads are divided among them. They end with the
    `with` block, and with the process that started them, however that ends. A thread for each worker gives it files
    and queues its events.

    Args:
        count: how many workers, at most one for each file.

    >>> from loadrun.replay.reporting import Replayed, Task
    >>> with Pool(2) as pool:
    ...     events = list(pool.replay([Task("fixtures/nets/mlp.mge")]))
    >>> [e.result.index for _, e in events if isinstance(e, Replayed)]
    [0, 1, 2]
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._files: list[FileRun] = []
        self._begun = 0
        self._taken = 0
        self._window = 4 * count + 8
        self._workers: list[Worker] = []
        self._threads: list[threading.Thread] = []
        self._ended = False
        self._error: Exception | None = None
        self._changed = threading.Condition()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._ended = True
            for worker in self._workers:
                worker.process.kill()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def replay(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Event]]:
        """Yield the events of tasks, in order, as if they were replayed one after another."""
        self._files = [FileRun(task) for task in tasks]
        count = min(self.count, len(tasks))
        for _ in range(count):
            thread = threading.Thread(target=self._work, args=(max(1, threads() // count),), daemon=True)
            self._threads.append(thread)
            thread.start()
        for run in self._files:
            is_open = False
            while (event := self._take(run)) is not None:
                if isinstance(event, Closed) and not is_open:
                    # Its worker died before anything came of it.
                    yield run.task, Opened(run.task.path)
                is_open = not isinstance(event, Closed)
                yield run.task, event

    def _take(self, run: FileRun) -> Event | None:
        """Wait for the next event of a file, and enforce the time limits; None at its end."""
        with self._changed:
            while True:
                if self._error is not None:
                    raise self._error
                for worker in self._workers:
                    worker.check_time()
                if run.events:
                    break
                self._changed.wait(_TICK)
            event, size = run.events.popleft()
            run.held -= size
            self._taken += event is None
            self._changed.notify_all()
        return event

    def _work(self, threads_each: int) -> None:
        """Give files to a worker, and to another one where that dies, until none is left."""
        worker: Worker | None = None
        try:
            while (run := self._next()) is not None:
                if worker is None or worker.process.poll() is not None:
                    worker = self._replaced(worker, threads_each)
                for event, size in worker.replay(run.task):
                    self._put(run, event, size)
                self._put(run, None, 0)
        except Exception as e:
            # No process can be started, or a task cannot be sent: the caller is told.
            self._error = e
        finally:
            if worker is not None:
                worker.end()

    def _replaced(self, dead: Worker | None, threads_each: int) -> Worker:
        """Start a worker in place of a dead one."""
        if dead is not None:
            dead.end()
        with self._changed:
            if dead is not None:
                self._workers.remove(dead)
            worker = Worker(threads_each)
            self._workers.append(worker)
            if self._ended:
                worker.process.kill()
        return worker

    def _next(self) -> FileRun | None:
        """Wait until the next file may be begun, which is not far before its turn; None if there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._begun - self._taken < self._window)
            if self._ended or self._begun == len(self._files):
                return None
            self._begun += 1
            return self._files[self._begun - 1]

    def _put(self, run: FileRun, event: Event | None, size: int) -> None:
        """Queue an event of a file, once there is room for it."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or run.held <= _HELD)
            run.events.append((event, size))
            run.held += size
            self._changed.notify_all()
