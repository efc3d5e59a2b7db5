"""The parts of a file, replayed anywhere in any order, merged as if one process had replayed them all."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator

from ..compare.impostors import ImpostorWatch
from .reporting import Closed, Event, Opened, Task, TaskPart, Warned

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
        for start in range(event.rest, event.total, size):
            self._waiting.append(TaskPart(self.task, start, min(size, event.total - start)))

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
