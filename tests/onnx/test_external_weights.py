"""Weights in files of their own are watched and copied as dumps are, and no name of a file leads out of the folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import FormatError
from tests.onnx.wire_models import field, graph, node

WEIGHTS = np.arange(1 << 16, dtype=np.float32)


def model(folder: Path, weights: str = "w.bin") -> Path:
    """A model that adds a weight, which lies in a file beside it, to its input."""
    outside = field(13, field(1, "location") + field(2, weights))
    weight = field(1, WEIGHTS.size) + field(2, 1) + field(8, "w") + field(14, 1) + outside
    path = folder / "m.onnx"
    path.write_bytes(graph(node("Add", ["x", "w"], ["y"]), field(5, weight), shape=(1,)))
    return path


def cut(path: Path) -> None:
    """Leave a few bytes of a file."""
    os.truncate(path, 16)


def rewritten(path: Path) -> None:
    """Write other numbers into the same file."""
    with path.open("r+b") as f:
        f.write(b"\xff" * path.stat().st_size)
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("change", [cut, rewritten])
def test_a_change_between_runs_is_an_error(change: Callable[[Path], None], tmp_path: Path) -> None:
    path, weights = model(tmp_path), tmp_path / "w.bin"
    weights.write_bytes(WEIGHTS.tobytes())
    x = {"x": np.zeros(1, np.float32)}
    runner, kept = loadrun.Runner(path), loadrun.Runner(loadrun.load(path, copy=True))
    unused = loadrun.Runner(path)
    assert np.array_equal(runner.run(x)["y"], WEIGHTS)
    change(weights)
    for each in (runner, unused):
        with pytest.raises(FormatError, match="written to while it was in use") as caught:
            each.run(x)
        assert str(caught.value).startswith(str(weights))
    assert np.array_equal(kept.run(x)["y"], WEIGHTS)


def test_weights_that_are_replaced_do_no_harm(tmp_path: Path) -> None:
    path, weights = model(tmp_path), tmp_path / "w.bin"
    weights.write_bytes(WEIGHTS.tobytes())
    runner = loadrun.Runner(path)
    (tmp_path / "new").write_bytes(b"")
    os.replace(tmp_path / "new", weights)
    assert np.array_equal(runner.run({"x": np.zeros(1, np.float32)})["y"], WEIGHTS)


def test_the_command_ends_with_a_sentence_where_weights_are_cut(tmp_path: Path) -> None:
    path, weights = model(tmp_path), tmp_path / "w.bin"
    weights.write_bytes(WEIGHTS.tobytes())
    code = (
        "import os, loadrun, sys; from loadrun.cli import main; from loadrun import runner; "
        "usual = runner.random_inputs; "
        f"runner.random_inputs = lambda *a: (os.truncate({str(weights)!r}, 16), usual(*a))[1]; "
        "from loadrun.replay import serial; serial.random_inputs = runner.random_inputs; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done
    assert "written to while it was in use" in done.stdout + done.stderr


def test_hard_links_are_files(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "blob").write_bytes(WEIGHTS.tobytes())
    path = model(tmp_path)
    os.link(tmp_path / "store" / "blob", tmp_path / "w.bin")
    assert np.array_equal(loadrun.Runner(path).run({"x": np.zeros(1, np.float32)})["y"], WEIGHTS)


def test_links_on_the_way_are_refused(tmp_path: Path) -> None:
    inside = tmp_path / "model"
    (inside / "real").mkdir(parents=True)
    (inside / "real" / "w.bin").write_bytes(WEIGHTS.tobytes())
    (inside / "linked").symlink_to("real", target_is_directory=True)
    with pytest.raises(FormatError, match=r"names 'linked/w\.bin', which leads to .*real/w\.bin: expected"):
        loadrun.load(model(inside, "linked/w.bin"))
    assert loadrun.load(model(inside, "real/w.bin")).outputs.keys() == {"y"}
    # The folder itself may be reached by a link: whoever names the model chose it.
    (tmp_path / "shortcut").symlink_to(inside, target_is_directory=True)
    assert loadrun.load(tmp_path / "shortcut" / "m.onnx").outputs.keys() == {"y"}


def test_a_link_that_takes_the_place_of_a_checked_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loadrun.onnx import tensors

    path, weights = model(tmp_path), tmp_path / "w.bin"
    weights.write_bytes(WEIGHTS.tobytes())
    (tmp_path / "secret").write_bytes(WEIGHTS.tobytes())
    usual = tensors.mapped_file

    def swapped(*args: object, **options: object) -> object:
        weights.unlink()
        weights.symlink_to(tmp_path / "secret")
        return usual(*args, **options)

    monkeypatch.setattr(tensors, "mapped_file", swapped)
    with pytest.raises(FormatError, match="must be a file, found a link"):
        loadrun.load(path)
