"""ONNX files that ask for too much are read and described within memory and time in proportion to their size."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from loadrun.cli import main
from tests.attacks.onnx_attacks import ATTACKS
from tests.attacks.run import Server
from tests.onnx.wire_models import tensor
from tests.support.cases import slow_but
from tests.support.forks import python

REFUSED = {
    "empty_nodes": "more messages than its size allows",
    "empty_entries": "more messages than its size allows",
    "one_hot_of_a_trillion": "its depth is 1000000000000",
    "one_hot_of_an_input": "its depth is 1000000000000",
    "sparse_zeros": "the sparse tensor 'w'",
    "functions_of_functions": "more than 100000 nodes",
}
"""Attacks that no graph can stand for, and what the error says; the others are read, and compute when they run."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server("tests.attacks.run_onnx")
    yield started
    started.close()


@pytest.mark.parametrize("name", slow_but({*ATTACKS} - {"functions_of_functions"}, ATTACKS))
def test_attack(name: str, server: Server) -> None:
    row = server.ask(name)
    assert row["end"] == ("refused" if name in REFUSED else "loaded"), row
    assert REFUSED.get(name, "") in row["text"]
    assert row["seconds"] <= 30
    assert row["peak"] <= (160 << 20) + 64 * row["size"]


def loadrun(*args: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process whose address space is limited."""
    code = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_AS, ({6_000_000 * 1024},) * 2); "
        "from loadrun.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.run(
        [*python(), "-c", code, *args], capture_output=True, text=True, timeout=120, cwd=folder
    )


def written(name: str, folder: Path) -> str:
    """The file of an attack."""
    path = folder / f"{name}.onnx"
    path.write_bytes(ATTACKS[name]())
    return str(path)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone keeps the limit")
@pytest.mark.parametrize(
    "name",
    [
        "billion_points",
        "doubling",
        "empty_and_large",
        "eye",
        "far_padding",
        "huge_spectrum",
        "neighbouring_channels",
        "region_of_a_billion_points",
        "shape_of_shapes",
        "text_of_a_billion_letters",
        "tiled",
        "window_of_ten_billion",
    ],
)
def test_what_no_memory_holds_is_told_by_its_node_when_it_runs(name: str, tmp_path: Path) -> None:
    done = loadrun(written(name, tmp_path), "--max-memory", "500M", "--timeout", "60")
    assert done.returncode == 2
    assert re.search(r"\w+ '\w+' \(operator \d+\) .*memory", done.stdout + done.stderr)


def test_info_describes_a_loop_that_would_take_hours(tmp_path: Path) -> None:
    done = loadrun("info", "--quiet", written("loop_of_products", tmp_path))
    assert done.returncode == 0, done.stderr
    assert "output  y       ?        float32" in done.stdout
    assert done.stderr == ""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone keeps the limit")
@pytest.mark.slow
def test_max_memory_holds_while_a_model_runs(tmp_path: Path) -> None:
    path = written("one_constant_computed_with", tmp_path)
    done = loadrun(path, "--max-memory", "300M")
    assert done.returncode == 2
    assert "ConstantOfShape 'c' (operator 2) ran out of memory" in done.stdout + done.stderr
    # With more memory the same file runs: nothing is compared.
    assert loadrun(path, "--max-memory", "4G").returncode == 3


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone keeps the limit")
def test_max_memory_holds_in_workers(tmp_path: Path) -> None:
    done = loadrun(written("one_constant_computed_with", tmp_path), "--max-memory", "300M", "--timeout", "60")
    assert done.returncode == 2
    assert "ran out of memory" in done.stdout + done.stderr


def test_timeout_holds_while_a_model_runs(tmp_path: Path) -> None:
    done = loadrun(written("loop_of_products", tmp_path), "--timeout", "3")
    assert done.returncode == 4
    assert "--timeout" in done.stdout + done.stderr


def test_timeout_of_info(tmp_path: Path) -> None:
    path = written("short_nodes", tmp_path)
    done = loadrun("info", path, "--timeout", "0.01")
    assert done.returncode == 4
    assert done.stderr == f"loadrun: {path}: it took longer than 0.01 s (--timeout)\n"


@pytest.mark.slow
def test_timeout_of_pack(tmp_path: Path) -> None:
    out = tmp_path / "out.mge"
    out.write_bytes(b"as it was")
    path = written("loop_of_products", tmp_path)
    done = loadrun("pack", path, "-d", "#rand(0,1)", "-o", str(out), "--timeout", "3")
    assert done.returncode == 4
    assert "it took longer than 3 s (--timeout)" in done.stderr
    assert out.read_bytes() == b"as it was"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["loop_of_products.onnx", "out.mge"]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone keeps the limit")
@pytest.mark.parametrize(
    "command",
    [
        ("diff",),
        ("bench",),
        ("accept", "--reason", "a test"),
        ("reduce", "-o", "small.mge", "--against", "float64"),
    ],
    ids=lambda c: c[0],
)
def test_max_memory_holds_in_every_command_that_runs_a_model(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    """A gigabyte of zeros, of which each is changed, with an expected value."""
    path = tmp_path / "m.onnx"
    path.write_bytes(ATTACKS["one_constant_computed_with"]())
    sets = tmp_path / "m.test_data_set_0"
    sets.mkdir()
    for name in ("input", "output"):
        (sets / f"{name}_0.pb").write_bytes(
            tensor(np.ones(2, np.float32), {"input": "x", "output": "y"}[name])
        )
    done = loadrun(command[0], str(path), *command[1:], "--max-memory", "300M", folder=tmp_path)
    assert done.returncode == 2
    assert "out of memory" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    [("diff",), ("bench",), ("info", "--graph", "g.html")],
    ids=lambda c: c[0],
)
def test_timeout_of_commands_that_run_a_model(command: tuple[str, ...], tmp_path: Path) -> None:
    name, seconds = ("short_nodes", "0.01") if command[0] == "info" else ("loop_of_products", "0.5")
    done = loadrun(command[0], written(name, tmp_path), *command[1:], "--timeout", seconds, folder=tmp_path)
    assert done.returncode == 4
    assert f"it took longer than {seconds} s (--timeout)" in done.stderr
    assert not (tmp_path / "g.html").exists()


@pytest.mark.parametrize("text", ["0", "-1", "4X", "1.5G", "9" * 20, ""])
def test_sizes_that_are_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "x.onnx", f"--max-memory={text}"]) == 2
    assert "expected a number of bytes, such as 500M or 4G" in capsys.readouterr().err
