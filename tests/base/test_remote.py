"""Remote files: on fsspec's own file systems in memory and on the disk, and from a local HTTP server."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UsageError
from loadrun.base.files import fetched, files_of
from loadrun.cli import main

MLP = Path("fixtures/nets/mlp.mge")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOADRUN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def memory() -> Iterator[dict[str, bytes]]:
    """The files of fsspec's file system in memory; names begin with a slash."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    fs = fsspec.filesystem("memory")
    fs.pipe("/models/mlp.mge", MLP.read_bytes())
    fs.pipe("/models/.hidden.mge", b"")
    fs.pipe("/models/notes.txt", b"")
    yield fs
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


def copies(cache: Path) -> list[Path]:
    return [p for p in cache.rglob("*") if p.is_file()]


@pytest.mark.parametrize(
    "name", ["memory://models/mlp.mge", "memory://models", "memory://models/*.mge", "memory://mod*/ml?.mge"]
)
def test_models(name: str, memory: object, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(files_of([name])) in (["memory:///models/mlp.mge"], ["memory://models/mlp.mge"])
    assert main([name]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("memory://")
    assert "1 file, 3 testcases, 3 checks: 3 passed, 0 failed" in shown
    assert len(copies(cache)) == 1


def test_a_copy_is_fetched_once_and_again_when_the_file_changes(memory: object, cache: Path) -> None:
    first = fetched("memory://models/mlp.mge")
    Path(first).touch()
    stamp = Path(first).stat().st_mtime_ns
    assert fetched("memory://models/mlp.mge") == first
    assert Path(first).stat().st_mtime_ns == stamp
    memory.pipe("/models/mlp.mge", Path("fixtures/nets/resnet_basic.mge").read_bytes())  # type: ignore[attr-defined]
    assert len(loadrun.load("memory://models/mlp.mge").inputs[0].shape or ()) == 4
    assert len(copies(cache)) == 2


def test_a_file_that_nothing_tells_apart_is_fetched_each_time(memory: object, cache: Path) -> None:
    """The file system in memory tells no more than a length; both files have the same one."""
    memory.pipe("/models/other.npy", b"first")  # type: ignore[attr-defined]
    first = fetched("memory://models/other.npy")
    assert Path(first).read_bytes() == b"first"
    memory.pipe("/models/other.npy", b"other")  # type: ignore[attr-defined]
    assert Path(fetched("memory://models/other.npy")).read_bytes() == b"other"
    # The old one is left alone: another process may be reading it.
    assert Path(first).read_bytes() == b"first"


@pytest.mark.parametrize("length", [MLP.stat().st_size + 1, MLP.stat().st_size - 1])
def test_a_body_of_another_length_is_an_error(
    length: int,
    memory: object,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = memory.info("/models/mlp.mge")  # type: ignore[attr-defined]
    monkeypatch.setattr(type(memory), "info", lambda *_, **__: {**told, "size": length, "ETag": "1"})
    assert main(["memory://models/mlp.mge"]) == 2
    real = MLP.stat().st_size
    assert f"mlp.mge: the server tells a length of {length} bytes and gives {real}" in capsys.readouterr().out
    assert copies(cache) == []


def test_reports_and_lists(memory: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports = [f"--{kind}=memory://out/r.{kind}" for kind in ("json", "junit", "html")]
    assert main([str(MLP), "-q", *reports]) == 0
    cat = memory.cat  # type: ignore[attr-defined]
    assert json.loads(cat("/out/r.json"))["exit_code"] == 0
    assert cat("/out/r.junit").startswith(b"<?xml")
    assert b"</html>" in cat("/out/r.html")
    assert main(["report", "memory://out/r.json", "memory://out/r.json"]) == 0
    np.save(tmp_path / "x.npy", np.ones((2, 20), "f4"))
    memory.pipe("/data/x.npy", (tmp_path / "x.npy").read_bytes())  # type: ignore[attr-defined]
    memory.pipe("/data/list.txt", b"x.npy\ndata:memory://data/x.npy\n")  # type: ignore[attr-defined]
    capsys.readouterr()
    command = ["pack", str(MLP), "--replace", "-d", "@memory://data/list.txt", "-o", str(tmp_path / "o.mge")]
    assert main([*command, "--quiet"]) == 0
    assert len(loadrun.load(tmp_path / "o.mge").testcases) == 2


def test_onnx_models_come_with_their_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    assert main(["convert", str(MLP), str(tmp_path / "m.onnx"), "--quiet"]) == 0
    # In processes of their own each fetches for itself.
    assert main([f"file://{tmp_path}/m.onnx", "-j", "2", "--json", str(tmp_path / "r.json")]) == 0
    (entry,) = json.loads((tmp_path / "r.json").read_text())["files"]
    assert entry["file"] == f"file://{tmp_path}/m.onnx"
    assert "3 checks: 3 passed" in capsys.readouterr().out


class _Silent(http.server.SimpleHTTPRequestHandler):
    unsaid: str | None = None
    longer = 0

    def log_message(self, format: str, *args: object) -> None:
        pass

    def send_header(self, keyword: str, value: str) -> None:
        if keyword == "Content-Length" and self.command == "GET":
            value = str(int(value) + self.longer)
        if keyword != self.unsaid:
            super().send_header(keyword, value)


@contextmanager
def serving(folder: Path, handler: type[_Silent] = _Silent) -> Iterator[str]:
    """The address of a server of a folder's files."""
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder))
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_http(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(MLP, tmp_path / "mlp.mge")
    with serving(tmp_path) as address:
        assert main([f"{address}/mlp.mge"]) == 0
        assert "3 checks: 3 passed" in capsys.readouterr().out
        assert main([f"{address}/absent.mge"]) == 2
        assert "there is no such remote file" in capsys.readouterr().out
    assert main([f"{address}/other.mge"]) == 2
    assert "cannot be reached: ClientConnectorError" in capsys.readouterr().out


def test_a_web_server_that_tells_no_version(tmp_path: Path) -> None:
    class Unsaid(_Silent):
        unsaid = "Last-Modified"

    with serving(tmp_path, Unsaid) as address:
        for content in (b"first", b"other"):
            (tmp_path / "x.npy").write_bytes(content)
            assert Path(fetched(f"{address}/x.npy")).read_bytes() == content


def test_a_web_server_that_gives_less_than_it_tells(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Longer(_Silent):
        longer = 1

    shutil.copy(MLP, tmp_path / "mlp.mge")
    with serving(tmp_path, Longer) as address:
        assert main([f"{address}/mlp.mge"]) == 2
    assert "cannot be reached: ClientPayloadError" in capsys.readouterr().out
    assert copies(cache) == []


def test_what_cannot_be_reached(memory: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory://models/absent.mge"]) == 2
    assert "there is no such remote file" in capsys.readouterr().out
    assert main(["nothing://x/absent.mge"]) == 2
    printed = capsys.readouterr()
    assert "Protocol not known: nothing" in printed.out + printed.err


def test_without_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(UsageError, match=r"takes fsspec: pip install '/path/to/loadrun\[remote\]'"):
        fetched("s3://bucket/net.mge")
