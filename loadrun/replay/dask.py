"""Tasks shared by the workers of a Dask cluster: files by path or sent along, events in order, retries by Dask.

On every Dask worker a separate process does the work, as in `processes`: a model that kills it is a crash of its file
and harms no worker, and a time limit ends it. A part whose Dask worker dies is run again by another one.
"""

from __future__ import annotations

import atexit
import os
import queue
import shutil
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import __version__
from ..base.errors import UsageError
from ..base.extras import install
from ..base.files import is_remote, opened
from ..base.writing import replacing
from ..compare.results import Verdict
from ..ops.numeric.parallel import threads
from .merge import FileState, Run
from .processes import Worker
from .reporting import Closed, Event, Opened, Task, TaskPart
from .worker import READY

if TYPE_CHECKING:
    from distributed import Future
    from distributed import Worker as DaskWorker

_CONNECT = 20.0
"""Seconds to wait for a scheduler."""
_KEPT = 8
"""Maximum sent files that a worker keeps."""
_SAMPLE = 1 << 16
"""Bytes at both ends by which a file is identified."""
_TICK = 0.1


@dataclass(frozen=True)
class _Missing:
    """The worker does not see the file, or sees a different one."""


class Cluster:
    """Replays tasks on the workers of a Dask cluster.

    Workers open files by name where they see the same file under it; other files are sent along.

    Args:
        address: of the scheduler (``tcp://host:8786``), or a scheduler file (``.json``).
        timeout: seconds that all parts of a file may take together, None for no limit.

    Raises:
        UsageError: Dask is not installed, no scheduler answers, or its workers have no loadrun.
    """

    def __init__(self, address: str, timeout: float | None = None) -> None:
        try:
            from distributed import Client  # optional
            from distributed.comm import get_address_host_port, parse_address
        except ImportError:
            raise UsageError(f"--dask needs the package distributed: {install('dask')}") from None
        if address.endswith(".json") and not os.path.exists(address):
            # Dask would wait for the file without end.
            raise UsageError(
                f"there is no scheduler file {address}; `dask scheduler` writes it when it starts"
            )
        try:
            if address.endswith(".json"):
                self._client = Client(scheduler_file=address, timeout=_CONNECT, set_as_default=False)
            else:
                # A client that fails in the midst of its making waits 40 s and prints a traceback.
                if parse_address(address)[0] not in ("inproc", "ucx", "ws", "wss"):
                    get_address_host_port(address)
                self._client = Client(address, timeout=_CONNECT, set_as_default=False)
        except (OSError, ValueError) as e:
            raise UsageError(f"no Dask scheduler answers at {address}: {e}") from None
        self.timeout = timeout
        self._states: deque[FileState] = deque()
        self._runs: dict[Any, Run] = {}
        self._sent: dict[str, Any] = {}
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        try:
            self.threads = self._checked(address)
        except BaseException:
            self._client.close()
            raise

    def _checked(self, address: str) -> int:
        """Return how many tasks the cluster runs at once, by the threads of its workers."""
        self._client.wait_for_workers(1, timeout=_CONNECT)
        try:
            versions = set(self._client.run(_version).values())
        except Exception as e:
            raise UsageError(
                f"the workers at {address} cannot import loadrun ({type(e).__name__}: {e}); install it where they run"
            ) from None
        if versions != {__version__}:
            raise UsageError(
                f"the workers at {address} have loadrun {', '.join(sorted(versions))}, but this is {__version__}"
            )
        return sum(self._client.nthreads().values())

    @contextmanager
    def replaying(self, tasks: Iterable[Task]) -> Iterator[Iterator[tuple[Task, Event]]]:
        """Yield the events of tasks; at the end of the block nothing of them is left on the cluster."""
        try:
            yield self.replay(tasks)
        finally:
            try:
                self._client.cancel(list(self._runs))
            finally:
                self._client.close()

    def replay(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Event]]:
        """Yield the events of tasks, in order."""
        source = iter(tasks)
        window = 4 * self.threads + 16
        more = True
        while True:
            while more and len(self._states) < window:
                task = next(source, None)
                if task is None:
                    more = False
                    break
                self._states.append(FileState(task, 64, self.threads))
            if not self._states:
                return
            self._submit(window)
            first = self._states[0]
            yield from ((first.task, event) for event in first.ready())
            if first.done:
                self._states.popleft()
                self._sent.pop(first.task.path, None)
                continue
            self._take(self._ended.get())

    def _submit(self, window: int) -> None:
        """Submit the next parts to the scheduler."""
        for state in self._states:
            while state.next_part() is not None:
                if len(self._runs) >= window and state is not self._states[0]:
                    return
                self._begin(state.begin())

    def _begin(self, run: Run) -> None:
        task = run.part.task
        limit = run.part.task.timeout or self.timeout
        left = None if limit is None else max(0.1, limit - run.state.seconds())
        future = self._client.submit(
            _replayed, run.part, self._sent.get(task.path), _mark(task.path), left, pure=False
        )
        self._runs[future] = run
        future.add_done_callback(self._ended.put)

    def _send(self, run: Run) -> bool:
        """Make a file available to the workers; False if that fails."""
        task = run.part.task
        try:
            with opened(task.path, "a model") as f:
                data = f.read()
        except OSError as e:
            self._end(run, Closed(e.strerror or str(e)))
            return False
        if task.path.endswith(".onnx"):
            said = (
                "an ONNX model's testcases are in folders next to it; put the model where workers can see it"
            )
            self._end(run, Closed(said))
            return False
        # Dask keeps it on the first worker and copies it to others that need it.
        self._sent[task.path] = self._client.scatter(_Sent(os.path.basename(task.path), data), hash=False)
        return True

    def _take(self, future: Future) -> None:
        """Take the outcome of a part from its worker."""
        run = self._runs.pop(future)
        if future.status != "finished":
            self._end(run, self._failed(future))
            return
        events, seconds = future.result()
        if isinstance(events, _Missing):
            if self._send(run):
                self._begin(run)
            return
        for event in events:
            run.events.append((event, 0))
            if isinstance(event, Opened):
                run.state.opened(event)
        run.finish(seconds)
        limit = run.part.task.timeout or self.timeout
        late = limit is not None and run.state.seconds() > limit
        if any(isinstance(e, Closed) and e.ended for e in events) or late:
            run.state.stop()

    def _failed(self, future: Future) -> Closed:
        from distributed.scheduler import KilledWorker  # optional

        error = future.exception()
        if isinstance(error, KilledWorker):
            return Closed("all workers that ran it died", ended=Verdict.CRASH)
        return Closed(f"the cluster failed: {type(error).__name__}: {error}", ended=Verdict.CRASH)

    def _end(self, run: Run, closed: Closed) -> None:
        run.events.append((closed, 0))
        run.finish()
        run.state.stop()


def _version() -> str:
    return __version__


@dataclass(frozen=True)
class _Sent:
    """A file that is sent along."""

    name: str
    data: bytes


def _mark(path: str) -> tuple[int, str] | None:
    """Return what identifies a file on another machine: its size and both ends; a URL is the same everywhere."""
    if is_remote(path):
        return 0, path
    try:
        with opened(path, "a model") as f:
            size = os.fstat(f.fileno()).st_size
            digest = blake2b(f.read(_SAMPLE), digest_size=16)
            f.seek(max(0, size - _SAMPLE))
            digest.update(f.read(_SAMPLE))
    except OSError:
        return None
    return size, digest.hexdigest()


class _ThreadWorker:
    """The process that works for one thread of a Dask worker, and the files that were sent to it."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.worker: Worker | None = None
        self.folder = Path(_dask_worker().local_directory) / f"loadrun-{threading.get_ident()}"
        self.folder.mkdir(exist_ok=True)
        self.names: deque[Path] = deque()
        atexit.register(self.close)

    def close(self) -> None:
        """End the process and remove the files."""
        if self.worker is not None:
            self.worker.kill()
            self.worker = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def store(self, sent: _Sent) -> str:
        """Return the path of a file that was sent."""
        path = self.folder / f"{blake2b(sent.data, digest_size=16).hexdigest()}{Path(sent.name).suffix}"
        if path not in self.names:
            while len(self.names) >= _KEPT:
                self.names.popleft().unlink(missing_ok=True)
            with replacing(path) as f:
                f.write(sent.data)
            self.names.append(path)
        return str(path)

    def replay(self, part: TaskPart, timeout: float | None) -> tuple[list[Event], float]:
        """Return the events of a part and how long it took."""
        if self.worker is None or self.worker.process.poll() is not None:
            self.worker = Worker(self.inbox, max(1, threads() // _dask_worker().state.nthreads))
        run = Run(part, FileState(part.task, 1, 1))
        self.worker.give(run)
        events: list[Event] = []
        while not run.finished:
            try:
                worker, event, size = self.inbox.get(timeout=_TICK)
            except queue.Empty:
                worker, event, size = self.worker, READY, 0
            if timeout is not None and run.seconds() > timeout:
                event = EOFError
                events.append(Closed("it took longer than allowed (--timeout)", ended=Verdict.TIMEOUT))
            elif event is EOFError and worker is self.worker:
                events.append(Closed(self.worker.died_of(), ended=Verdict.CRASH))
            if event is EOFError:
                run.finish()
                self.worker.kill()
                self.worker = None
                self.inbox = queue.SimpleQueue()
                break
            if event is None:
                run.finish()
            elif event != READY:
                run.release(size)
                events.append(event)
            elif size:
                worker.started()
        return events, run.seconds()


def _dask_worker() -> DaskWorker:
    """Return the Dask worker that this runs in."""
    from distributed import get_worker  # optional

    return get_worker()


_local = threading.local()


def _replayed(
    part: TaskPart, sent: _Sent | None, mark: tuple[int, str] | None, timeout: float | None
) -> tuple[list[Event] | _Missing, float]:
    """Replay a part on a Dask worker, by a separate process.

    Args:
        part: what to replay.
        sent: the file, where it is sent along.
        mark: by what the file is recognized that lies here under its name; None to take it as it is.
        timeout: seconds that are left for the file.
    """
    task = part.task
    if sent is None and mark is not None and _mark(task.path) != mark:
        return _Missing(), 0.0
    bench: _ThreadWorker = _local.__dict__.setdefault("bench", None) or _ThreadWorker()
    _local.bench = bench
    if sent is None:
        return bench.replay(part, timeout)
    here = bench.store(sent)
    events, seconds = bench.replay(replace(part, task=replace(task, path=here)), timeout)
    return [_renamed(e, here, task.path) for e in events], seconds


def _renamed(event: Event, here: str, path: str) -> Event:
    """Return an event of a sent file under its original name."""
    if isinstance(event, Opened):
        return replace(event, name=event.name.replace(here, path))
    if isinstance(event, Closed) and event.message:
        return replace(event, message=event.message.replace(here, path))
    return event
