"""A Dask cluster of the suite's own: the same events, files sent along, workers and models that die."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.compare.results import Verdict
from loadrun.replay.parts import serial
from loadrun.replay.reporting import Closed, Event, Opened, Replayed, Task

distributed = pytest.importorskip("distributed", reason="Dask's package distributed is absent")
pytestmark = pytest.mark.filterwarnings("ignore")

from loadrun.replay import dask  # noqa: E402 - only where there is Dask
from loadrun.replay.dask import Cluster  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
MLP = ROOT / "fixtures" / "nets" / "mlp.mge"
FAILING = ROOT / "fixtures" / "nets" / "xfail_quant_unet_minmax.mge"
START = (
    "import sys; from loadrun.replay import processes; processes._MODULE = "
    "'tests.replay.obedient' if sys.argv[1] == 'obedient' else processes._MODULE; "
    "from distributed.cli.dask_worker import main; sys.exit(main(sys.argv[2:]))"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler and two workers, processes of their own that run real models."""
    yield from started(tmp_path_factory.mktemp("dask"), "real", 2)


def started(folder: Path, kind: str, count: int) -> Iterator[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "3"}
    env["LOADRUN_CACHE"] = str(folder / "cache")
    file = folder / "scheduler.json"
    quiet = {"cwd": folder, "env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--scheduler-file", str(file)]
    made = [subprocess.Popen([*scheduler, "--port", "0", "--no-dashboard"], **quiet)]  # type: ignore[call-overload]
    worker = [
        sys.executable,
        "-c",
        START,
        kind,
        "--scheduler-file",
        str(file),
        "--nthreads",
        "1",
        "--no-dashboard",
    ]
    made += [
        subprocess.Popen([*worker, "--no-nanny", "--local-directory", str(folder)], **quiet)  # type: ignore[call-overload]
        for _ in range(count)
    ]
    for _ in range(300):
        if file.exists() and file.stat().st_size:
            break
        time.sleep(0.1)
    try:
        yield str(file)
    finally:
        for process in made:
            process.kill()
            process.wait()


def timeless(event: Event) -> str:
    if isinstance(event, Opened):
        event = replace(event, load_seconds=0.0, rest=None)
    if isinstance(event, Replayed):
        event = replace(event, result=replace(event.result, seconds=0.0))
    return repr(event)


def test_the_same_events_as_in_one_process(address: str, tmp_path: Path) -> None:
    two = tmp_path / "two.mge"
    two.write_bytes(MLP.read_bytes() * 2)
    (tmp_path / "bad.mge").write_bytes(b"nothing")
    tasks = [
        Task(str(p), facts=True) for p in (MLP, two, tmp_path / "bad.mge", tmp_path / "absent.mge", FAILING)
    ]
    alone = [(t.path, timeless(e)) for t, e in serial(tasks)]
    with Cluster(address).replaying(tasks) as events:
        shared = [(t.path, timeless(e)) for t, e in events]
    assert shared == alone


def test_a_command(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(MLP, tmp_path)
    assert (
        main([str(tmp_path), str(FAILING), "--dask", address, "-q", "--json", str(tmp_path / "r.json")]) == 1
    )
    assert "2 files, 5 testcases, 7 checks: 3 passed, 4 failed" in capsys.readouterr().out
    assert main([str(MLP), "--dask", address, "-j", "2"]) == 2


def test_workers_fetch_urls_and_keep_them(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("fsspec", "aiohttp"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.setenv("LOADRUN_CACHE", str(tmp_path / "own"))
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *args: object) -> None:
            pass

    make = functools.partial(Handler, directory=str(MLP.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), make) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/mlp.mge"
        for _ in range(2):
            assert main([url, "--dask", address]) == 0
            assert "1 file, 3 testcases, 3 checks: 3 passed, 0 failed" in capsys.readouterr().out
        server.shutdown()
    assert 1 <= asked.count("/mlp.mge") <= 2  # once for each worker that had a part of it
    kept = [p for p in (Path(address).parent / "cache").rglob("*.mge") if p.is_file()]
    assert [p.read_bytes() for p in kept] == [MLP.read_bytes()]
    assert not [*(tmp_path / "own").rglob("*.mge")]  # not by this process


def test_a_file_that_is_another_one_there_is_sent(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a relative name the workers, in another folder, would not find it."""
    shutil.copy(MLP, tmp_path / "here.mge")
    monkeypatch.chdir(tmp_path)
    with Cluster(address).replaying([Task("here.mge")]) as events:
        found = [e for _, e in events]
    assert isinstance(found[0], Opened)
    assert found[0].name == "here.mge"
    assert [e.result.verdict.value for e in found if isinstance(e, Replayed)] == ["pass"] * 3
    with Cluster(address, files="path").replaying([Task("here.mge")]) as events:
        closed = [e for _, e in events][-1]
    assert isinstance(closed, Closed)
    assert closed.message == "No such file or directory"


def test_scheduler_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^there is no scheduler file .*absent\.json"):
        Cluster(str(tmp_path / "absent.json"))


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "_CONNECT", 1.0)
    with pytest.raises(UsageError, match="no Dask scheduler answers at"):
        Cluster("tcp://127.0.0.1:9")


@pytest.mark.parametrize("address", ["local", "bogus://a:1", "tcp://[::1"])
def test_what_is_no_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distributed.Client", None)
    with pytest.raises(UsageError, match=r"no Dask scheduler answers at .*: .*address"):
        Cluster(address)


def obeyed(address: str, orders: list[str], timeout: float | None = None) -> list[tuple[str, Event]]:
    with Cluster(address, timeout, files="path").replaying([Task(o) for o in orders]) as events:
        return [(t.path, e) for t, e in events]


def test_death(tmp_path: Path) -> None:
    """Of a model's process, of a time limit's, and of a Dask worker in the midst of its work."""
    source = started(tmp_path, "obedient", 2)
    address = next(source)
    try:
        orders = ["one:", "die:9", "sleep:60", "two:"]
        closed = {p: e for p, e in obeyed(address, orders, timeout=2.0) if isinstance(e, Closed)}
        assert list(closed) == orders
        assert closed["die:9"].ended is Verdict.CRASH
        assert closed["sleep:60"].ended is Verdict.TIMEOUT
        assert (closed["one:"], closed["two:"]) == (Closed(), Closed())
        cluster = Cluster(address, files="path")
        with cluster.replaying([Task("parts:200"), Task("last:")]) as events:
            found = []
            for task, event in events:
                found.append((task.path, event))
                if len(found) == 3:
                    # The worker with the most to do dies on the way.
                    busy = cluster._client.run(os.getpid)
                    os.kill(next(iter(busy.values())), signal.SIGKILL)
        results = [e.result for p, e in found if p == "parts:200" and isinstance(e, Replayed)]
        assert [r.index for r in results] == list(range(200))
        assert all(e == Closed() for _, e in found if isinstance(e, Closed))
        assert found[-1][0] == "last:"
    finally:
        source.close()
