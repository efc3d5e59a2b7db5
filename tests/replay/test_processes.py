"""Worker processes: order, death, time limits, and that none outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from loadrun.base.errors import EXIT_CRASH, EXIT_TIMEOUT, Failure
from loadrun.ops.numeric.parallel import threads
from loadrun.replay import processes
from loadrun.replay.processes import Pool
from loadrun.replay.reporting import Closed, Event, Opened, Replayed, Task
from loadrun.replay.serial import serial
from loadrun.testcase import Bundle
from loadrun.verify.pack.options import PackOptions
from loadrun.verify.pack.packing import Packer
from tests.support.small_models import unary

ROOT = Path(__file__).resolve().parent.parent.parent
MLP = "fixtures/nets/mlp.mge"
posix = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")


def timeless(event: Event) -> Event:
    """An event without the times that it was measured with, and without numbers that NaN makes unequal."""
    if isinstance(event, Opened):
        return replace(event, load_seconds=0.0)
    if isinstance(event, Replayed):
        return replace(event, result=replace(event.result, seconds=0.0))
    return event


@pytest.fixture
def obedient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that do what the names of their files say."""
    monkeypatch.setattr(processes, "_MODULE", "tests.replay.obedient")


def ordered(paths: list[str], count: int = 2, timeout: float | None = None) -> list[tuple[str, Event]]:
    with Pool(count) as pool:
        return [(task.path, event) for task, event in pool.replay([Task(p, timeout=timeout) for p in paths])]


def test_the_same_events_as_in_one_process(tmp_path: Path) -> None:
    """Files that pass, fail, cannot be read, hold two dumps or many testcases of which any value passes."""
    two = tmp_path / "two.mge"
    two.write_bytes(Path(MLP).read_bytes() * 2)
    (tmp_path / "bad.mge").write_bytes(b"nothing")
    cases = ({"x": np.full((1, 3), i * 1e-7, np.float32)} for i in range(150))
    Packer(Bundle(unary()), PackOptions(maxerr=1e-4), warn=lambda _: None).pack(cases, tmp_path / "blind.mge")
    paths = [MLP, two, tmp_path / "bad.mge", tmp_path / "absent.mge", tmp_path / "blind.mge"]
    paths += ["fixtures/nets/xfail_quant_unet_minmax.mge", "fixtures/nets/mlp.mge"]
    tasks = [Task(str(p), facts=True, pictures=True) for p in paths]
    # What a picture or a comparison holds of NaN is equal to nothing, its text is.
    alone = [(t.path, repr(timeless(e))) for t, e in serial(tasks)]
    with Pool(3) as pool:
        shared = [(t.path, repr(timeless(e))) for t, e in pool.replay(tasks)]
    assert shared == alone
    assert sum("would pass as well" in e for _, e in alone) == 1


@posix
def test_a_dead_worker_is_an_error_of_its_file_alone(obedient: None) -> None:
    paths = ["one:", "die:9", "two:", "exit:3", "unreadable:", "half:7", "three:"]
    found = ordered(paths)
    closed = {path: event for path, event in found if isinstance(event, Closed)}
    failed = {path: event.failure for path, event in closed.items() if event.failure is not None}
    assert list(dict.fromkeys(path for path, _ in found)) == paths
    assert {p: f.code for p, f in failed.items()} == dict.fromkeys(
        ("die:9", "exit:3", "unreadable:", "half:7"), EXIT_CRASH
    )
    assert failed["die:9"].message == (
        "the process that ran it was killed by SIGKILL, as happens when memory runs out"
    )
    assert failed["exit:3"].message == "the process that ran it ended with exit code 3"
    assert failed["half:7"].message == "the process that ran it was killed by SIGSEGV"
    assert closed["three:"] == Closed()
    kinds = [type(e).__name__ for p, e in found if p == "unreadable:"]
    assert kinds == ["Opened", "Closed"], "a file of which nothing came has a beginning as well"
    shown = [e.result.index for p, e in found if p == "half:7" and isinstance(e, Replayed)]
    assert shown == list(range(7))


@pytest.mark.parametrize("count", [1, 2])
def test_time_limit(obedient: None, count: int) -> None:
    """One worker has the files behind the one that takes too long, two divide them."""
    start = time.monotonic()
    found = ordered(["sleep:600", "quick:", "sleep:0"], count, timeout=1.5)
    assert time.monotonic() - start < 300
    closed = {path: event for path, event in found if isinstance(event, Closed)}
    assert closed["sleep:600"] == Closed(Failure("it took longer than 1.5 s (--timeout)", EXIT_TIMEOUT))
    assert (closed["quick:"], closed["sleep:0"]) == (Closed(), Closed())


@pytest.mark.slow
def test_what_waits_for_its_turn_is_bounded(obedient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second file floods while the first one sleeps; the third passes it by."""
    monkeypatch.setattr(processes, "_HELD", 100_000)
    most = 0
    with Pool(2) as pool:
        for _, event in pool.replay([Task("sleep:1.5"), Task("flood:20000"), Task("last:")]):
            most = max(most, *(len(run.events) for run in pool._files), 0)
            assert isinstance(event, (Opened, Replayed, Closed))
    assert 0 < most < 300


def test_a_process_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **how: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refused)
    with pytest.raises(BlockingIOError, match="no more processes"):
        ordered(["a:", "b:", "c:"])


@pytest.mark.parametrize("files", [1, 2])
def test_threads_are_divided_among_as_many_processes_as_there_are_files(obedient: None, files: int) -> None:
    found = ordered(["a:", "b:"][:files], count=2)
    each = str(max(1, threads() // files))
    said = [(e.result.message or "").split() for _, e in found if isinstance(e, Replayed)]
    assert [words[1:] for words in said] == [[each, each]] * files


def test_what_a_worker_prints_is_no_message(obedient: None, capfd: pytest.CaptureFixture[str]) -> None:
    found = ordered(["print:hello"])
    assert isinstance(found[-1][1], Closed)
    assert capfd.readouterr().err.split() == ["hello", "hello"]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run of two workers in another process, which sleep."""
    code = (
        # A script that runs the tests in its background has them ignore SIGINT, and so what they start.
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from loadrun.replay import processes; from loadrun.cli import main; "
        "processes._MODULE = 'tests.replay.obedient'; sys.exit(main(sys.argv[1:]))"
    )
    reports = ["--json", "r.jsonl", "--html", "r.html", "--junit", "r.xml", "--json", "r.json"]
    argv = [sys.executable, "-c", code, "first:", "sleep:60", "sleep:61", "-j", "2", "-q", *reports]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(argv, cwd=tmp_path, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")  # each thread has its own
    return [int(p) for found in lists for p in found.read_text().split()]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="children are looked up in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_its_parent(
    command: subprocess.Popen[bytes], number: signal.Signals, tmp_path: Path
) -> None:
    lines = tmp_path / "r.jsonl"
    workers: list[int] = []
    for _ in range(600):
        workers = children(command.pid)
        if len(workers) == 2 and lines.exists() and b"sleep:60" in lines.read_bytes():
            break
        time.sleep(0.1)
    assert len(workers) == 2
    command.send_signal(number)
    _, err = command.communicate(timeout=60)
    for _ in range(100):
        if all(map(gone, workers)):
            break
        time.sleep(0.1)
    assert all(map(gone, workers))
    if number == signal.SIGKILL:
        return
    assert command.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130}[signal.Signals(number)], err
    assert b'"type": "interrupted"' in lines.read_bytes().splitlines()[-1]
    assert sorted(os.listdir(tmp_path)) == ["r.jsonl"], "no temporary and no report that is not complete"


def test_the_package_is_the_same_in_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of that name in the present folder is not imported."""
    mlp = Path(MLP).resolve()
    (tmp_path / "numpy.py").write_text("raise SystemExit(99)")
    monkeypatch.chdir(tmp_path)
    with Pool(1) as pool:
        found = [e for _, e in pool.replay([Task(str(mlp))])]
    assert isinstance(found[-1], Closed)
    assert found[-1].failure is None
