"""One Runner used by several threads, and forks while it is used."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun import Verdict
from loadrun.base.locks import ForkLock
from loadrun.ops.numeric.parallel import blas_serial, parallel, set_threads, threads
from tests.support.cases import kind_of_file, some_of

# What stands there in both format versions is the same graph.
NETS = some_of(
    sorted(p.name for p in Path("fixtures/nets").glob("*.mge") if not p.name.endswith(".v1.mge")),
    8,
    kind_of_file,
)
THREADS = 4


def values(result: loadrun.Result) -> list[tuple[str, bytes | None, float | None]]:
    return [(o.name, None if o.value is None else o.value.tobytes(), o.error) for o in result.outputs]


@pytest.mark.parametrize("part", range(4))
def test_four_threads_get_what_one_gets(part: int) -> None:
    """Bit for bit, with MegEngine's recorded outputs passing, on every net: shapes and testcases interleave."""
    with ThreadPoolExecutor(THREADS) as pool:
        for name in NETS[part::4]:
            bundle = loadrun.load(f"fixtures/nets/{name}")
            alone = [values(r) for r in loadrun.Runner(bundle).replay()]
            runner, start = loadrun.Runner(bundle), threading.Barrier(THREADS)

            def replay(
                at: int,
                runner: loadrun.Runner = runner,
                start: threading.Barrier = start,
                n: int = len(alone),
            ) -> list[loadrun.Result]:
                start.wait()
                return [runner.replay_one((at + i) % n) for i in range(n)]

            for at, results in enumerate(pool.map(replay, range(THREADS))):
                for i, result in enumerate(results):
                    assert values(result) == alone[(at + i) % len(alone)], (name, at, i)
                    assert result.verdict is Verdict.PASS or name.startswith("xfail"), name


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.slow
def test_children_forked_while_other_threads_run() -> None:
    """Every child replays with its parent's runner and ends; none waits for a lock of a thread that is not there."""
    runner = loadrun.Runner("fixtures/nets/resnet_basic.mge")
    expected = values(runner.replay_one(0))
    before = threads()
    set_threads(2)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            runner.replay_one(0)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for w in workers:
        w.start()
    try:
        codes = [_child(runner, expected) for _ in range(12)]
    finally:
        stop.set()
        for w in workers:
            w.join()
        set_threads(before)
    assert codes == [0] * len(codes)


def _child(runner: loadrun.Runner, expected: object) -> int:
    """Fork a child that replays; its exit code, or -9 where it did not end."""
    pid = os.fork()
    if not pid:
        os._exit(0 if values(runner.replay_one(0)) == expected else 1)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_finds_every_lock_open() -> None:
    """Pool, BLAS and compile locks are held by another thread at the moment of the fork."""
    lock, held, leave = ForkLock(), threading.Event(), threading.Event()
    before = threads()
    set_threads(2)

    def chunk(i: int) -> None:
        held.set()
        leave.wait(20)

    def hold() -> None:
        with lock, blas_serial():
            parallel(chunk, 2)

    other = threading.Thread(target=hold)
    other.start()
    held.wait(20)
    pid = os.fork()
    if not pid:
        signal.alarm(10)
        done = np.zeros(2)
        with lock, blas_serial():
            parallel(lambda i: done.__setitem__(i, 1), 2)
        os._exit(0 if done.all() and not lock.depth else 1)
    status = os.waitpid(pid, 0)[1]
    leave.set()
    other.join()
    set_threads(before)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_lock_stays_with_the_thread_that_forks() -> None:
    lock = ForkLock()
    with lock:
        lock.reset()
        assert lock.depth == 1
    assert lock.depth == 0
