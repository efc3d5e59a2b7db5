"""A small thread pool for kernels: numpy copies, ufuncs and matmul release the GIL, so chunks run side by side.

`parallel(func, n)` runs ``func(0) ... func(n - 1)``; the caller works too, and takes what no worker
took. Inside `blas_serial` the BLAS library that numpy brings along uses one thread, because its own workers
spin for milliseconds after each product and would keep processors from the pool and from other programs;
its results also depend on how many threads it has, where those of the pool depend on how the work is cut alone.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.locks import after_fork
from ...graph.dtypes import Array

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_KEEP = 64 << 20
"""A thread keeps a scratch buffer of at most this many bytes."""

WORTH = 20_000_000
"""Multiply-adds from which several threads of the pool pay."""
_WAKING = 2_500_000
"""Multiply-adds that a thread does while another one wakes up."""

_NAMES = ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}")


class _Replaced(threading.local):
    kernels: Mapping[str, Callable[..., Any]] = {}


_replaced = _Replaced()


@contextmanager
def replacing(kernels: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Use kernels inside, in this thread.

    Args:
        kernels: float32 functions with the arguments that their callers say beside `replaced`, by name.
    """
    before, _replaced.kernels = _replaced.kernels, kernels
    try:
        yield
    finally:
        _replaced.kernels = before


def replaced(name: str, x: Array | None = None) -> Callable[..., Any] | None:
    """Return what a kernel is replaced by, for an input; None where numpy computes it.

    >>> with replacing({"add": int.__add__}):
    ...     replaced("add")(1, 2), replaced("mul")
    (3, None)
    """
    return _replaced.kernels.get(name) if x is None or x.dtype == np.float32 else None


class _Job:
    """One `parallel` call: chunk numbers are handed out one by one."""

    def __init__(self, func: Callable[[int], None], n: int) -> None:
        self.func = func
        self.n = n
        self.next = count()
        self.error: BaseException | None = None
        self.kernels = _replaced.kernels

    def work(self) -> None:
        while True:
            # next() of itertools.count is atomic under the GIL; without one, chunks would run twice.
            i = next(self.next)
            if i >= self.n or self.error is not None:
                return
            try:
                self.func(i)
            except BaseException as e:
                self.error = e
                return


class _Worker(threading.Thread):
    """A waiting thread; plain locks wake faster than queues and events."""

    def __init__(self) -> None:
        super().__init__(name="loadrun-worker", daemon=True)
        self.go = threading.Lock()
        self.done = threading.Lock()
        self.go.acquire()
        self.done.acquire()
        self.job: _Job | None = None
        self.start()

    def run(self) -> None:
        while True:
            self.go.acquire()
            if self.job is None:
                return
            with np.errstate(all="ignore"), replacing(self.job.kernels):
                self.job.work()
            self.done.release()


class _Pool:
    def __init__(self) -> None:
        self.busy = threading.Lock()
        self.workers: list[_Worker] = []
        self.size: int | None = None

    def run(self, job: _Job, helpers: int) -> bool:
        """Run a job with up to that many workers; False when the pool is taken by another thread."""
        if not self.busy.acquire(blocking=False):
            return False
        try:
            while len(self.workers) < helpers:
                self.workers.append(_Worker())
            called = self.workers[:helpers]
            for w in called:
                w.job = job
                w.go.release()
            job.work()
            for w in called:
                # A worker that has not woken up by now is not waited for: no work is left for it.
                if not w.go.acquire(blocking=False):
                    w.done.acquire()
                # Holding on to the last job would keep its arrays in memory.
                w.job = None
        finally:
            self.busy.release()
        return True

    def reset(self) -> None:
        """Begin again in a forked child: threads do not survive a fork, and one of them may have been busy here."""
        self.busy, self.workers = threading.Lock(), []


_pool = _Pool()
_local = threading.local()


def threads() -> int:
    """Return the number of threads that `parallel` uses: what `set_threads` said, else the processors this
    process may use.

    Those are what affinity, the quota of a container (Linux control groups) and OMP_NUM_THREADS leave.

    >>> threads() >= 1
    True
    """
    if _pool.size is None:
        try:
            _pool.size = len(os.sched_getaffinity(0))
        except AttributeError:
            _pool.size = os.cpu_count() or 1
        _pool.size = min(_pool.size, quota() or _pool.size)
        limit = os.environ.get("OMP_NUM_THREADS", "")
        if limit.isascii() and limit.isdigit() and int(limit) > 0:
            _pool.size = min(_pool.size, int(limit))
    return _pool.size


def thread_environment(n: int) -> dict[str, str]:
    """Return the environment of a program that is to use that many threads.

    >>> thread_environment(2)["OMP_NUM_THREADS"]
    '2'
    """
    names = ("OMP", "OPENBLAS", "MKL", "BLIS", "VECLIB_MAXIMUM")
    return {**os.environ, **{f"{name}_NUM_THREADS": str(n) for name in names}}


def quota(root: str | os.PathLike[str] = "/sys/fs/cgroup") -> int | None:
    """Return how many processors the control group may keep busy, rounded up; None without a limit.

    Args:
        root: where the control groups are mounted: version 2 says ``quota period`` in ``cpu.max``, version 1 in two
            files of ``cpu``, where -1 is no limit.
    """
    try:
        words = _text(root, "cpu.max").split()
    except OSError:
        try:
            words = [_text(root, "cpu", f"cpu.cfs_{w}_us").strip() for w in ("quota", "period")]
        except OSError:
            return None
    if len(words) != len(("quota", "period")) or not all(w.isdigit() for w in words) or int(words[1]) == 0:
        return None
    return max(1, -(-int(words[0]) // int(words[1])))


def _text(*parts: str | os.PathLike[str]) -> str:
    with open(os.path.join(*parts), encoding="ascii", errors="replace") as f:
        return f.read()


def set_threads(n: int) -> None:
    """Use `n` threads from now on, for kernels and (where numpy's BLAS allows it) for matrix products.

    Raises:
        ValueError: `n` is not a positive number.
    """
    if n < 1:
        raise ValueError(f"the number of threads must be at least 1, got {n}")
    _pool.size = int(n)
    if not _serial.owners:
        _set_blas(n)


def parallel(func: Callable[[int], None], n_chunks: int) -> None:
    """Call ``func(i)`` for every chunk number, on several threads; the first error is raised.

    Chunks must not depend on each other. A call from inside a chunk, or while another thread uses the pool,
    runs in the calling thread.

    >>> done = [0] * 4
    >>> def work(i):
    ...     done[i] = i * i
    >>> parallel(work, 4)
    >>> done
    [0, 1, 4, 9]
    """
    helpers = min(threads(), n_chunks) - 1
    job = _Job(func, n_chunks)
    if helpers < 1 or not _pool.run(job, helpers):
        job.work()
    if job.error is not None:
        raise job.error


def scratch(slot: str, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> Array:
    """Return an uninitialised array that the calling thread may use until it asks for the same slot again."""
    want = np.dtype(dtype)
    size = want.itemsize * prod(shape)
    if size > _KEEP:
        return np.empty(shape, want)
    buffers: dict[str, Array] = _local.__dict__.setdefault("held", {})
    raw = buffers.get(slot)
    if raw is None or raw.nbytes < size:
        whole = np.empty(size + 64, np.uint8)
        raw = buffers[slot] = whole[-whole.ctypes.data % 64 :][:size]
    return raw[:size].view(want).reshape(shape)


@cache
def _blas() -> tuple[Any, Any] | None:
    """Return the (set, get) functions for the thread number of numpy's OpenBLAS, None when there is no such library."""
    root = os.path.dirname(os.path.realpath(np.__file__))
    for place in (f"{root}.libs", os.path.join(root, ".libs"), os.path.join(root, ".dylibs")):
        names = os.listdir(place) if os.path.isdir(place) else []
        for name in sorted(n for n in names if "openblas" in n):
            try:
                lib = ctypes.CDLL(os.path.join(place, name))
            except OSError:
                continue
            for form in _NAMES:
                put = getattr(lib, form.format("set_num_threads"), None)
                get = getattr(lib, form.format("get_num_threads"), None)
                if put is not None and get is not None:
                    put.argtypes, put.restype = [ctypes.c_int], None
                    get.argtypes, get.restype = [], ctypes.c_int
                    return put, get
    return None


def blas_threads() -> int | None:
    """Return the number of threads that numpy's BLAS uses now, None if that cannot be known."""
    functions = _blas()
    return int(functions[1]()) if functions else None


def _set_blas(n: int) -> None:
    functions = _blas()
    if functions:
        functions[0](n)


class _Serial:
    """While any thread is inside, BLAS has one thread; may be entered again."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owners: dict[int, int] = {}
        self.before = 1
        self.left = False

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self.lock:
            if not self.owners:
                if not self.left:
                    self.before = blas_threads() or 1
                self.left = False
                _set_blas(1)
            self.owners[me] = self.owners.get(me, 0) + 1

    def __exit__(self, *_: object) -> None:
        me = threading.get_ident()
        with self.lock:
            self.owners[me] -= 1
            if not self.owners[me]:
                del self.owners[me]
            if not self.owners:
                _set_blas(self.before)

    def reset(self) -> None:
        """Forget the other threads in a forked child; what they would have restored is restored with its next use."""
        me = threading.get_ident()
        mine = {me: self.owners[me]} if me in self.owners else {}
        self.lock, self.left, self.owners = (
            threading.Lock(),
            self.left or (bool(self.owners) and not mine),
            mine,
        )


_serial = _Serial()
after_fork(_pool.reset)
# No other thread may be inside OpenBLAS's own locks for starting and stopping its threads when a child is forked.
after_fork(_serial.reset, before=lambda: _serial.lock.acquire(), in_parent=lambda: _serial.lock.release())
_as_it_is = nullcontext()


def blas_serial() -> AbstractContextManager[None]:
    """Keep BLAS at one thread inside, where the pool has several and the library can be told."""
    return _serial if threads() > 1 and _blas() else _as_it_is


def splits(work: int = WORTH) -> int:
    """Choose into how many parts work of that many multiply-adds is best cut for the pool.

    1 where BLAS itself has several threads, and for little work, which ends before another thread has begun.
    """
    return threads() if _serial.owners and work >= WORTH else 1


def shares(size: int, parts: int, work: int) -> list[slice]:
    """Cut a product's rows or columns into parts that end together, though the others begin later than the first.

    Args:
        size: how many rows or columns there are.
        work: multiply-adds of the whole product.

    >>> [(s.start, s.stop) for s in shares(1000, 2, 50_000_000)]
    [(0, 528), (528, 1000)]
    """
    each = (work - min(_WAKING, work // 2)) / parts
    places = (size * (1 - each * (parts - i) / work) for i in range(1, parts))
    ends = [min(round(at / 16) * 16, size // 16 * 16) for at in places]
    return [slice(a, b) for a, b in zip([0, *ends], [*ends, size], strict=True)]


def matmul(a: Array, b: Array, out: Array | None = None) -> Array:
    """Compute ``a @ b`` of matrices, cut into row or column blocks for the pool inside `blas_serial`, or of
    stacks of them.

    >>> matmul(np.eye(2, dtype="f4"), np.ones((2, 3), "f4")).sum()
    np.float32(6.0)
    """
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    parts = splits(m * k * n) if a.ndim == b.ndim == 2 else 1
    if parts == 1:
        return np.matmul(a, b, out=out)
    result = np.empty((m, n), np.result_type(a, b)) if out is None else out
    by_rows = m >= n
    cut = shares(max(m, n), parts, m * k * n)

    def part(i: int) -> None:
        if by_rows:
            np.matmul(a[cut[i]], b, out=result[cut[i]])
        else:
            np.matmul(a, b[:, cut[i]], out=result[:, cut[i]])

    parallel(part, parts)
    return result
