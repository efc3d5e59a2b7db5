"""What names of files stand for: themselves, the home folder, patterns, folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadrun.base.files import files_of, one_file
from loadrun.cli import main

MLP = Path("fixtures/nets/mlp.mge")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.mge", "a.MGE", "notes.txt", "more/c.onnx", "more/.hidden.mge", ".git/d.mge", "[1].mge"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


def names(tree: Path, *given: str) -> list[str]:
    return [Path(p).relative_to(tree).as_posix() for p in files_of(str(tree / g) for g in given)]


def test_folders_stand_for_their_models(tree: Path) -> None:
    assert names(tree, "") == ["[1].mge", "a.MGE", "b.mge", "more/c.onnx"]
    assert names(tree, "more") == ["more/c.onnx"]
    # A folder without models is left to the reader, which says what it found.
    (tree / "empty").mkdir()
    assert names(tree, "empty") == ["empty"]


def test_patterns(tree: Path) -> None:
    assert names(tree, "*.mge") == ["[1].mge", "b.mge"]
    assert names(tree, "**/*.onnx") == ["more/c.onnx"]
    assert names(tree, "mor?") == ["more/c.onnx"]
    assert names(tree, "[1].mge") == ["[1].mge"], "what is there is no pattern"
    assert names(tree, "[ab].mge", "*.nothing", "absent.mge") == ["b.mge", "*.nothing", "absent.mge"]


def test_home(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tree))
    monkeypatch.setenv("USERPROFILE", str(tree))
    assert list(files_of(["~/b.mge"])) == [str(tree / "b.mge")]


def test_one_file(tree: Path) -> None:
    assert one_file(str(tree / "b*")) == str(tree / "b.mge")
    with pytest.raises(OSError, match="expected one file, found 2"):
        one_file(str(tree / "*.mge"))


def test_commands_take_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.mge", "b.mge"):
        (tmp_path / name).write_bytes(MLP.read_bytes())
    assert main([str(tmp_path), "-q"]) == 0
    assert "2 files, 6 testcases" in capsys.readouterr().out
    assert main(["info", str(tmp_path / "?.mge"), "--quiet"]) == 0
    assert capsys.readouterr().out.count("MegEngine 1.13.0") == 2
    assert main([str(tmp_path), "-q", "--allow-uncompared"]) == 0
    assert "2 files" in capsys.readouterr().out
