"""Worker processes: files and their parts are distributed, a dead worker harms only its file.

Events are merged as if one process had replayed all parts in order.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from ..base.pipes import receive, send, start
from ..compare.impostors import ImpostorWatch
from ..compare.results import Verdict
from ..ops.numeric.parallel import thread_environment, threads
from .reporting import Closed, Event, Opened, Task, TaskPart, Warned
from .worker import READY

_LARGEST = 64
"""Maximum testcases in a part."""


class Run:
    """One part on a worker, and its events that were not yet taken.

    Attributes:
        part: what was asked.
        state: the file that it belongs to.
        events: what came back, with sizes in bytes.
        finished: whether nothing more comes.
        begun: when a worker began, None as long as it is starting up.
    """

    def __init__(self, part: TaskPart, state: FileState) -> None:
        self.part = part
        self.state = state
        self.events: deque[tuple[Event, int]] = deque()
        self.finished = False
        self.begun: float | None = None
        self._took = 0.0
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

    def finish(self) -> None:
        """Note that it is finished."""
        self._took = self.seconds()
        self.finished = True

    def seconds(self) -> float:
        """Return how long the worker has been busy, without the time spent waiting."""
        if self.finished or self.begun is None:
            return self._took
        now = time.monotonic()
        since = self._since
        return now - self.begun - self._paused - (now - since if since is not None else 0.0)


class FileState:
    """A file, divided into parts once its contents are known.

    Args:
        task: the file.
        first: testcases in the first part.
        workers: how many there are to share the rest.

    Attributes:
        runs: the parts that were begun and not yet taken completely, in order.
        done: whether the last event was taken.
    """

    def __init__(self, task: Task, first: int, workers: int) -> None:
        self.task = task
        self.runs: deque[Run] = deque()
        self.done = False
        self._workers = workers
        # Timing and input data are handled in one process.
        whole = task.input_data is not None or bool(task.iter)
        self._waiting: deque[TaskPart] = deque([TaskPart(task, 0, None if whole else first)])
        self._shown = False
        self._stopped = False
        self._watch: ImpostorWatch | None = None
        self._spent = 0.0
        self._divided = False

    def next_part(self) -> TaskPart | None:
        """Return the next part without a worker."""
        return self._waiting[0] if self._waiting else None

    def begin(self) -> Run:
        """Take the next part."""
        run = Run(self._waiting.popleft(), self)
        self.runs.append(run)
        return run

    def opened(self, event: Opened) -> None:
        """Divide the testcases after the first part."""
        if self._divided or event.rest is None:
            return
        self._divided = True
        rest = event.total - event.rest
        size = max(1, min(_LARGEST, -(-rest // (4 * self._workers))))
        for first in range(event.rest, event.total, size):
            self._waiting.append(TaskPart(self.task, first, min(size, event.total - first)))

    def stop(self) -> None:
        """Start no more parts."""
        self._waiting.clear()

    def seconds(self) -> float:
        """Return how long workers have been busy with all parts together."""
        return self._spent + sum(r.seconds() for r in self.runs)

    def ready(self) -> Iterator[Event]:
        """Yield the events whose turn it is."""
        while self.runs:
            run = self.runs[0]
            while run.events:
                event, size = run.events.popleft()
                run.release(size)
                yield from self._passed(event, run)
            if not run.finished:
                return
            self._spent += run.seconds()
            self.runs.popleft()
        self.done = not self._waiting

    def _passed(self, event: Event, run: Run) -> Iterator[Event]:
        """Yield the event of the whole file for an event of one of its parts."""
        if self._stopped:
            return
        if isinstance(event, Opened):
            if run.part.start == 0:
                self._shown = True
                yield event
            return
        if isinstance(event, Closed) and not self._divided:
            # Another dump of the file may follow.
            self._shown, shown = False, self._shown
            if not shown:
                yield Opened(self.task.path)
            self._stopped = event.ended is not None
            yield event
            return
        if not isinstance(event, Closed):
            yield event
            return
        if event.message is not None:
            self._stopped = True
            self.stop()
            yield event
            return
        if event.watch is not None:
            if self._watch is None:
                self._watch = event.watch
            else:
                self._watch.merge(event.watch)
        if len(self.runs) == 1 and not self._waiting:
            for text in self._watch.warnings() if self._watch is not None else ():
                yield Warned(text, weak=True)
            yield Closed()


_HELD = 4 << 20
"""Maximum bytes of queued events per part; a worker with more waits."""
_TICK = 0.1
_MODULE = "loadrun.replay.worker"


class Worker:
    """One process, and the thread that reads what it sends."""

    def __init__(self, inbox: queue.SimpleQueue[Any], threads_each: int) -> None:
        self.process = start(_MODULE, thread_environment(threads_each))
        self.run: Run | None = None
        self.ready = False
        self.dead = False
        self._inbox = inbox
        threading.Thread(target=self._read, daemon=True).start()

    def give(self, run: Run) -> None:
        """Assign a part."""
        assert self.process.stdin is not None
        self.run = run
        if self.ready:
            run.begun = time.monotonic()
        try:
            send(self.process.stdin, run.part)
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
        timeout: seconds that all parts of a file may take together, None for no limit.
        files: how many tasks there will be, if that is known; with many, the first part of each is larger.

    >>> from loadrun.replay.reporting import Replayed, Task
    >>> with Pool(2, files=1) as pool:
    ...     events = list(pool.replay([Task("fixtures/nets/mlp.mge")]))
    >>> [e.result.index for _, e in events if isinstance(e, Replayed)]
    [0, 1, 2]
    """

    def __init__(self, count: int, timeout: float | None = None, files: int | None = None) -> None:
        self.count = count
        self.timeout = timeout
        self._each = max(1, threads() // count)
        self._most = 1 if files is not None and files < 2 * count else 64
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._workers: list[Worker] = []
        self._files: deque[FileState] = deque()
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
        more = True
        while True:
            while more and len(self._files) < self._window:
                task = next(source, None)
                if task is None:
                    more = False
                    break
                self._files.append(FileState(task, self._most, self.count))
            if not self._files:
                return
            self._assign()
            first = self._files[0]
            yield from ((first.task, event) for event in first.ready())
            if first.done:
                self._files.popleft()
                continue
            self._take()

    def _assign(self) -> None:
        """Assign the next parts to idle workers."""
        open_runs = sum(len(f.runs) for f in self._files)
        for state in self._files:
            while (part := state.next_part()) is not None:
                if open_runs >= self._window and state is not self._files[0]:
                    return
                worker = self._idle(part.task)
                if worker is None:
                    return
                run = state.begin()
                open_runs += 1
                worker.give(run)

    def _idle(self, task: Task) -> Worker | None:
        """Return an idle worker, preferably one that has the file open, or a new one if allowed."""
        free = [w for w in self._workers if (w.run is None or w.run.finished) and w.process.poll() is None]
        for worker in free:
            if worker.run is not None and worker.run.part.task is task:
                return worker
        if free:
            return free[0]
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
            run.finish()
        else:
            run.events.append((event, size))
            if isinstance(event, Opened):
                run.state.opened(event)
        self._late()

    def _end(self, run: Run, closed: Closed) -> None:
        run.events.append((closed, 0))
        run.finish()
        run.state.stop()

    def _late(self) -> None:
        """Kill workers whose file takes too long."""
        for worker in list(self._workers):
            run = worker.run
            if run is None or run.finished:
                continue
            limit = run.part.task.timeout or self.timeout
            if limit is None or run.state.seconds() <= limit:
                continue
            self._workers.remove(worker)
            worker.kill()
            said = f"it took longer than {limit:g} s (--timeout)"
            self._end(run, Closed(said, ended=Verdict.TIMEOUT))
