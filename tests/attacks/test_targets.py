"""Reports take the place of no file that is read, and of no other report; nothing runs before that is known."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import loadrun
from loadrun.base.errors import failure
from loadrun.cli import main

MLP = "fixtures/nets/mlp.mge"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(MLP, tmp_path / "v.mge")
    (tmp_path / "r.npz").write_bytes(b"results")
    (tmp_path / "list.txt").write_text("data:#rand(0,1,2,20)\n")
    (tmp_path / "sub").mkdir()
    os.symlink("v.mge", tmp_path / "link.json")
    os.link(tmp_path / "v.mge", tmp_path / "hard.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["v.mge", "--json", "v.mge"],
            "--json would overwrite v.mge, an input of this command; choose another file",
        ),
        (["v.mge", "--json", "./sub/../v.mge"], "--json would overwrite v.mge"),
        (["v.mge", "--html", "link.json"], "--html would overwrite v.mge"),
        (["v.mge", "--json", "hard.json"], "--json would overwrite v.mge"),
        ([".", "--junit", "v.mge"], "--junit would overwrite "),
        (["v.mge", "--input", "@list.txt", "--json", "list.txt"], "--json would overwrite list.txt"),
        (["v.mge", "--json", "a", "--html", "a"], "--json and --html both write a; choose different files"),
        (["v.mge", "--junit", "a.zip", "--output", "sub/../a.zip"], "--junit and --output both write "),
        (
            ["v.mge", "--json", "a", "--html", "b", "--junit", "a"],
            "--json and --junit both write a",
        ),
        (["bench", "v.mge", "--profile", "a", "--perfetto", "a"], "--profile and --perfetto both write a"),
        (["r.npz", "--json", "r.npz"], "--json would overwrite r.npz"),
        (["bench", "v.mge", "--json", "v.mge"], "--json would overwrite v.mge"),
        (
            ["bench", "v.mge", "--json", "a", "--html", "a"],
            "--json and --html both write a",
        ),
        (["diff", "v.mge", "--against", "v.mge", "--json", "v.mge"], "--json would overwrite v.mge"),
    ],
)
def test_refused(args: list[str], said: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {p.name: p.read_bytes() for p in here.iterdir() if p.is_file()}
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""
    assert {p.name: p.read_bytes() for p in here.iterdir() if p.is_file()} == before


def test_reports_of_their_own_and_devices(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["v.mge", "--json", "a", "--html", "b", "--junit", "c", "--json", "a.jsonl", "-q"]) == 0
    assert main(["v.mge", "--json", "/dev/null", "--html", "/dev/null", "-q"]) == 0
    # A report may take the place of an older one.
    assert main(["v.mge", "--json", "a", "-q"]) == 0
    assert (here / "a").read_bytes().startswith(b"{")


HALF = "\ud800"


@pytest.mark.parametrize(
    "args",
    [
        [f"{HALF}.mge"],
        ["info", HALF],
        ["v.mge", "--input", f"data:{HALF}.npy"],
        ["v.mge", "--input", f"@{HALF}"],
        ["v.mge", "--json", HALF],
        ["v.mge", "--json", f"{HALF}.jsonl"],
        ["v.mge", "--output", HALF],
        ["pack", "v.mge", "-d", "#rand(0,1,1,20)", "-o", f"{HALF}.mge"],
        ["convert", "v.mge", f"{HALF}.onnx"],
        ["convert", "v.mge", "x.onnx", "--dynamic", f"data:0={HALF}"],
        ["convert", "v.mge", "-o", HALF + "/"],
        ["report", HALF, HALF],
        [HALF],
    ],
)
def test_half_characters(args: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert "lone surrogate" in out + err or "there is no file" in err or "cannot be read" in out + err
    assert "\\ud800" in out + err
    assert HALF not in out + err


def test_half_characters_in_python(here: Path) -> None:
    for call in (
        lambda: loadrun.load(HALF),
        lambda: loadrun.Runner(HALF),
        lambda: loadrun.save(loadrun.load("v.mge"), HALF),
    ):
        with pytest.raises(OSError, match="lone surrogate"):
            call()


@pytest.mark.parametrize(
    "args",
    [
        ["a\0.mge"],
        ["info", "\0"],
        ["report", "\0"],
        ["diff", "v.mge", "\0"],
        ["v.mge", "--output", "\0"],
        ["reduce", "v.mge", "-o", "r.mge", "--fails", "\0"],
    ],
)
def test_null_characters(args: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Callers in Python and lists of files can pass them."""
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert "can hold a null character" in out + err
    assert "\0" not in out + err


@pytest.mark.parametrize(
    "error",
    [
        ImportError("_random.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
    ],
)
def test_what_python_says_without_memory(error: Exception) -> None:
    assert failure(error).message.startswith("out of memory: ")
    assert failure(error).code == 2
