"""A disk that is full: the message names the file that was asked for, and nothing half written is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from loadrun.base import writing
from loadrun.cli import main

MLP = "fixtures/nets/mlp.mge"
ROOM = 600


@contextmanager
def full() -> Iterator[None]:
    """Every file that is written takes that many bytes: a limit of the system, which says so in other words.

    It ends before the test does, since pytest's own output may go to a file.
    """
    resource = pytest.importorskip("resource", reason="this system has no limit for files")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["convert", MLP, "{}/o.mge"], "{}/o.mge"),
        (["convert", MLP, "-o", "{}/u/"], "{}/u/model.mge"),
        ([MLP, "--json", "{}/r.jsonl", "-q"], "{}/r.jsonl"),
        ([MLP, "--json", "{}/r.json", "-q"], "{}/r.json"),
        ([MLP, "--output", "{}/r.npz", "-q"], "{}/r.npz"),
    ],
)
def test_the_file_is_named(
    args: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with full():
        assert main([a.format(tmp_path) for a in args]) == 2
    said = capsys.readouterr().err
    assert f"loadrun: {named.format(tmp_path)}: File too large" in said
    assert {p.name for p in tmp_path.iterdir()} <= {"r.jsonl"}


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (["convert", MLP, "{}"], "old.mge"),
        ([MLP, "--json", "{}", "-q"], "old.json"),
        ([MLP, "--output", "{}", "-q"], "old.zip"),
    ],
)
def test_an_older_file_stays(args: list[str], name: str, tmp_path: Path) -> None:
    target = tmp_path / name
    target.write_bytes(b"old")
    with full():
        assert main([a.format(target) for a in args]) == 2
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


def test_the_folder_of_temporaries_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    f = writing.scratch()
    f.write(b"a" * ROOM)
    f.seek(0)
    assert f.read() == b"a" * ROOM
    f.write(b"b" * ROOM)
    with full(), pytest.raises(OSError, match="File too large") as caught:
        f.flush()
    assert caught.value.filename == str(tmp_path)
    with suppress(OSError):
        f.close()
    assert list(tmp_path.iterdir()) == []
