"""Worker processes: files are distributed, events stay in order, a dead worker harms only its file."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import Any

from ..base.pipes import receive, send, start
from ..compare.results import Verdict
from ..ops.numeric.parallel import thread_environment, threads
from .reporting import Closed, Event, Opened, Task
from .worker import READY

_HELD = 4 << 20
"""Maximum bytes of queued events per file; a worker with more waits."""
_TICK = 0.1
_MODULE = "loadrun.replay.worker"


class FileRun:
    """A file to be replayed by a worker, and its events that were not yet taken.

    Attributes:
        task: the file.
        worker: which process has it, None as long as none does.
        events: what came back, with sizes in bytes.
        finished: whether nothing more comes.
        begun: when the worker began, None as long as it is starting up.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.worker: Worker | None = None
        self.events: deque[tuple[Event, int]] = deque()
        self.finished = False
        self.begun: float | None = None
        self._open = False
        self._paused = 0.0
        self._since: float | None = None
        self._held = 0
        self._room = threading.Condition()

    def hold(self, size: int, most: int) -> None:
        """Count a queued event, after waiting until there is room for it."""
        with self._room:
            start = self._since = time.monotonic()
            while self._held > most:
                self._room.wait()
            self._since = None
            self._paused += time.monotonic() - start
            self._held += size

    def release(self, size: int | None) -> None:
        """Note that an event was taken; None lets everything through."""
        with self._room:
            self._held = self._held - size if size is not None else -(1 << 62)
            self._room.notify_all()

    def seconds(self) -> float:
        """Return how long the worker has been busy, without the time spent waiting."""
        if self.begun is None:
            return 0.0
        now = time.monotonic()
        since = self._since
        return now - self.begun - self._paused - (now - since if since is not None else 0.0)

    def ready(self) -> Iterator[Event]:
        """Yield the events that have come; a dump begins with `Opened`, whatever became of its worker."""
        while self.events:
            event, size = self.events.popleft()
            self.release(size)
            if isinstance(event, Closed) and not self._open:
                yield Opened(self.task.path)
            self._open = not isinstance(event, Closed)
            yield event


class Worker:
    """One process, and the thread that reads what it sends."""

    def __init__(self, inbox: queue.SimpleQueue[Any], threads_each: int) -> None:
        self.process = start(_MODULE, thread_environment(threads_each))
        self.run: FileRun | None = None
        self.ready = False
        self.dead = False
        self._inbox = inbox
        threading.Thread(target=self._read, daemon=True).start()

    def give(self, run: FileRun) -> None:
        """Assign a file."""
        assert self.process.stdin is not None
        self.run, run.worker = run, self
        if self.ready:
            run.begun = time.monotonic()
        try:
            send(self.process.stdin, run.task)
        except OSError:
            # It is dead already; its reader will report that.
            return

    def started(self) -> None:
        """Note that it is ready; from now on time counts."""
        self.ready = True
        if self.run is not None:
            self.run.begun = time.monotonic()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            while True:
                event, size = receive(self.process.stdout)
                if self.run is not None and event != READY:
                    self.run.hold(size, _HELD)
                self._inbox.put((self, event, size))
        except (EOFError, OSError, ValueError):
            self._inbox.put((self, EOFError, 0))

    def kill(self) -> None:
        """Kill the process."""
        self.dead = True
        if self.run is not None:
            self.run.release(None)
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    # Data that was not yet sent to a dead process.
                    continue

    def died_of(self) -> str:
        """Describe how the process ended."""
        code = self.process.wait()
        if code >= 0:
            return f"the process that ran it ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        why = ", as happens when memory runs out" if -code == getattr(signal, "SIGKILL", 9) else ""
        return f"the process that ran it was killed by {name}{why}"


class Pool:
    """Replays tasks in worker processes.

    Workers are started afresh, not forked, and the processor's threads are divided among them. They end with the
    `with` block, and with the process that started them, however that ends.

    Args:
        count: how many workers.
        timeout: seconds that a file may take, None for no limit.

    >>> from loadrun.replay.reporting import Replayed, Task
    >>> with Pool(2) as pool:
    ...     events = list(pool.replay([Task("fixtures/nets/mlp.mge")]))
    >>> [e.result.index for _, e in events if isinstance(e, Replayed)]
    [0, 1, 2]
    """

    def __init__(self, count: int, timeout: float | None = None) -> None:
        self.count = count
        self.timeout = timeout
        self._each = max(1, threads() // count)
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._workers: list[Worker] = []
        self._files: deque[FileRun] = deque()
        self._window = 4 * count + 8

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    @contextmanager
    def replaying(self, tasks: Iterable[Task]) -> Iterator[Iterator[tuple[Task, Event]]]:
        """Yield the events of tasks, and leave no worker at the end of the block."""
        with self:
            yield self.replay(tasks)

    def replay(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Event]]:
        """Yield the events of tasks, in order, as if they were replayed one after another."""
        source = iter(tasks)
        while True:
            self._files.extend(FileRun(t) for t in islice(source, self._window - len(self._files)))
            if not self._files:
                return
            self._assign()
            first = self._files[0]
            yield from ((first.task, event) for event in first.ready())
            if first.finished:
                self._files.popleft()
            else:
                self._take()

    def _assign(self) -> None:
        """Assign the next files to idle workers."""
        for run in self._files:
            if run.worker is None:
                worker = self._idle()
                if worker is None:
                    return
                worker.give(run)

    def _idle(self) -> Worker | None:
        """Return an idle worker, or a new one if allowed."""
        for worker in self._workers:
            if (worker.run is None or worker.run.finished) and worker.process.poll() is None:
                return worker
        if len(self._workers) < self.count:
            self._workers.append(Worker(self._inbox, self._each))
            return self._workers[-1]
        return None

    def _take(self) -> None:
        """Wait briefly for an event, and enforce the time limit."""
        try:
            worker, event, size = self._inbox.get(timeout=_TICK)
        except queue.Empty:
            self._late()
            return
        if worker.dead:
            return
        run = worker.run
        if event == READY:
            worker.started()
        elif event is EOFError:
            worker.dead = True
            self._workers.remove(worker)
            why = worker.died_of()
            worker.kill()
            if run is not None and not run.finished:
                self._end(run, Closed(why, ended=Verdict.CRASH))
        elif event is None:
            run.finished = True
        else:
            run.events.append((event, size))
        self._late()

    def _end(self, run: FileRun, closed: Closed) -> None:
        run.events.append((closed, 0))
        run.finished = True

    def _late(self) -> None:
        """Kill workers whose file takes too long."""
        for worker in list(self._workers):
            run = worker.run
            if run is None or run.finished:
                continue
            limit = run.task.timeout or self.timeout
            if limit is None or run.seconds() <= limit:
                continue
            self._workers.remove(worker)
            worker.kill()
            said = f"it took longer than {limit:g} s (--timeout)"
            self._end(run, Closed(said, ended=Verdict.TIMEOUT))
