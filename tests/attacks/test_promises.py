"""What a file promises of its outputs cannot fall off it: no bit that flips and no cut makes it pass."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import FormatError, InputError
from loadrun.cli import main
from loadrun.compare.record import PROMISE
from loadrun.verify.pack.unpacking import read_unpacked
from tests.support.cases import check_all, some_of
from tests.support.small_models import unary

PROMISED = ["--maxerr", "0.5", "--check", "y: max_abs<=1e-6"]
"""MegEngine's check lets through what the policy does not."""


def failing(folder: Path, *options: str) -> Path:
    """A file that fails by its policy alone."""
    loadrun.save(unary(), folder / "plain.mge")
    np.save(folder / "golden.npy", np.full((2, 3), -1.25, "f4"))
    path = folder / "m.mge"
    argv = [str(folder / "plain.mge"), "-d", "#ones", "--expect", str(folder / "golden.npy"), "-q"]
    assert main(["pack", *argv, *PROMISED, *options, "-o", str(path)]) == 0
    assert main([str(path), "-q"]) == 1
    return path


def changes(whole: bytes, begin: int, end: int) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Yield every flip of a bit and every cut between two places, with the kind and the number of it."""
    for at in range(begin, end):
        yield ("cut", at), whole[:at]
        for bit in range(8):
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            yield ("flip", at * 8 + bit), bytes(changed)


def is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        loadrun.loads(data)


def surfaces(path: Path) -> list[int]:
    return [main([*argv, str(path)]) for argv in (["run", "-q"], ["run", "--strict", "damage", "-q"])]


@pytest.mark.parametrize("format", ["FBS_V2", "FBS"])
def test_a_record_that_is_damaged(format: str, tmp_path: Path) -> None:
    path = failing(tmp_path, "--format", format)
    whole = path.read_bytes()
    bundle = loadrun.load(path, copy=True)
    assert isinstance(bundle.record, memoryview)
    assert bundle.facts.model is not None
    promise = 12 + len(bundle.facts.model)
    places = [(promise - PROMISE, promise), (len(whole) - len(bundle.record), len(whole))]
    found = [
        change for begin, end in places for change in changes(whole, begin, end) if change[1] != whole[:begin]
    ]
    assert len(found) > 3500
    check_all(some_of(found, 10), lambda change: is_refused(change[1]), name=lambda change: str(change[0]))
    for name, data in found[::400]:
        path.write_bytes(data)
        assert surfaces(path) == [2, 2], name


def test_a_record_that_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = failing(tmp_path)
    size = loadrun.load(path).facts.size
    path.write_bytes(path.read_bytes()[:size])
    capsys.readouterr()
    assert surfaces(path) == [2, 2]
    assert "the record after the testcases, which the model promises, is missing" in capsys.readouterr().out
    plugins = ["-p", "no:loadrun", "-p", "loadrun.testing.plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, path.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd(), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout
    assert "is missing" in done.stdout


def converted(folder: Path) -> Path:
    path = failing(folder)
    model = folder / "c.onnx"
    assert main(["convert", str(path), str(model), "-q"]) == 0
    assert main([str(model), "-q"]) == 1
    return model


def test_checks_beside_data(tmp_path: Path) -> None:
    """Both where the model's metadata say the same and where they are lost."""
    model = converted(tmp_path)
    file = tmp_path / "c.test_data_set_0" / "checks.json"
    whole, lost = file.read_bytes(), model.read_bytes()
    for key in (b"loadrun:checks", b"loadrun:promise"):
        lost = lost.replace(key, key.swapcase())
    found = [*changes(whole, 0, len(whole))]

    def check(change: tuple[tuple[str, int], bytes]) -> None:
        file.write_bytes(change[1])
        with pytest.raises(FormatError):
            loadrun.load(model)

    check_all(some_of(found, 10), check, name=lambda change: str(change[0]))
    assert surfaces(model) == [2, 2]
    model.write_bytes(lost)
    check_all(some_of(found, 10), check, name=lambda change: str(change[0]))
    file.write_bytes(whole)
    assert main([str(model), "-q"]) == 1


def test_checks_in_metadata(tmp_path: Path) -> None:
    """Where no data beside the model say the same, either."""
    model = converted(tmp_path)
    (tmp_path / "c.test_data_set_0" / "checks.json").unlink()
    assert main([str(model), "-q"]) == 1
    whole = model.read_bytes()
    begin = whole.index(b"loadrun:checks") - 4
    end = whole.index(b"loadrun:promise") + len("loadrun:promise") + 2 + 32
    flips = [c for c in changes(whole, begin, end) if c[0][0] == "flip"]
    assert whole[end - 32 : end].isalnum()

    def check(change: tuple[tuple[str, int], bytes]) -> None:
        model.write_bytes(change[1])
        assert main([str(model), "-q"]) == 2

    check_all(some_of(flips, 20), check, name=lambda change: str(change[0]))


def test_an_unpacked_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "u"
    assert main(["convert", str(failing(tmp_path)), "-o", str(folder) + "/"]) == 0
    file, again = folder / "testcases.json", str(tmp_path / "again.mge")
    whole = file.read_bytes()
    assert main(["pack", str(folder), "-o", again, "-q"]) == 0
    assert main([again, "-q"]) == 1

    def check(change: tuple[tuple[str, int], bytes]) -> None:
        file.write_bytes(change[1])
        with pytest.raises(InputError):
            read_unpacked(folder)

    check_all(some_of(changes(whole, 0, len(whole)), 20), check, name=lambda change: str(change[0]))
    expect = ["--expect", str(file), "-d", f"@{folder / 'inputs.txt'}", "-o", again, "-q"]
    for argv in ([str(folder), "-o", again], [str(folder / "model.mge"), *expect]):
        assert main(["pack", *argv]) == 2
    file.unlink()
    capsys.readouterr()
    assert main(["pack", str(folder), "-o", again, "-q"]) == 2
    assert (
        "testcases.json, which holds the checks and policies of an unpacked file, is missing"
        in capsys.readouterr().err
    )
