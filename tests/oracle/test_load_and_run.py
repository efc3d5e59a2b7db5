"""MegEngine's own tools read what the drop-in for load_and_run writes; its numbers and names are MegEngine's."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

import loadrun
from loadrun.cli import main
from loadrun.load_and_run import plan
from loadrun.ops.infer import infer_dtypes, infer_shapes
from tests.support.oracle import ORACLE, ROOT, TESTS

pytestmark = pytest.mark.oracle
NETS = ROOT / "nets"
CONTROL = ("written_", "cond_")
"""Beginnings of names of fixtures with conditional execution, whose loading makes operators of its own."""


def tool(name: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [str(ORACLE), "-m", f"megengine.tools.{name}", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("net", ["resnet_basic", "quant_resnet_minmax", "bert", "gru_unrolled"])
def test_binary_dumps_are_read(net: str, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        flags = ["--iter", "0", "--bin_io_dump", str(tmp_path / folder)]
        assert main(["load_and_run", str(NETS / f"{net}.mge"), *flags]) == 0
    done = tool("compare_binary_iodump", str(tmp_path / "one"), str(tmp_path / "two"))
    assert done.returncode == 0, done.stderr
    assert "not equal" not in done.stdout
    changed = max((tmp_path / "two").iterdir())
    data = changed.read_bytes()
    changed.write_bytes(data[:-4] + b"\x00\x00\xc0\x45")
    told = tool("compare_binary_iodump", str(tmp_path / "one"), str(tmp_path / "two"))
    assert "not equal" in told.stdout or "not finite" in told.stdout, told.stdout + told.stderr


def test_the_tools_own_dump_agrees(tmp_path: Path) -> None:
    with zipfile.ZipFile(TESTS / "data" / "load_and_run" / "samples.zip") as z:
        z.extractall(tmp_path)
    (tmp_path / "ours").mkdir()
    flags = ["--iter", "0", "--bin_io_dump", str(tmp_path / "ours")]
    assert main(["load_and_run", str(NETS / "resnet_basic.mge"), *flags]) == 0
    done = tool("compare_binary_iodump", "--stop-on-error", str(tmp_path / "bio"), str(tmp_path / "ours"))
    assert (done.returncode, "not equal" in done.stdout) == (0, False), done.stderr


def test_profiles_are_read(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    flags = ["--iter", "2", "--profile", str(path)]
    assert main(["load_and_run", str(NETS / "resnet_basic.mge"), *flags]) == 0
    done = tool("profile_analyze", str(path), "--top", "2", "--type", "ConvolutionForward")
    assert done.returncode == 0, done.stderr
    assert "ConvolutionForward" in done.stdout
    assert "total device time" in done.stdout


def test_numbers_and_names() -> None:
    files = [p for p in sorted(NETS.glob("*.mge")) if not p.name.startswith(CONTROL)]
    script = TESTS / "oracle" / "list_names.py"
    done = subprocess.run(
        [str(ORACLE), str(script), *map(str, files)], capture_output=True, text=True, timeout=900, check=False
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(rows) == len(files)
    compared = 0
    for row in rows:
        graph = loadrun.load(row["file"]).graph
        infer_dtypes(graph.oprs)
        found = plan.loaded(graph)
        ours = {str(n.id): n.name for n in found.oprs.values()}
        named = dict(found.vars.values())
        for number, (name, _, outputs) in row["oprs"].items():
            assert ours[number] == name, row["file"]
            for var, label in outputs:
                # Outputs that a file leaves out have no name here.
                assert named.get(var, label) == label, row["file"]
        known = infer_shapes(graph, graph.oprs)
        run = plan.executed(graph, known)
        if {found.oprs[o.id].id for o in run} == set(row["order"]):
            # MegEngine's compiler rewrites some graphs; of the others the order must agree.
            ran = plan.sequence(run, found, known, inputs_first=False)
            assert [found.oprs[o.id].id for o in ran] == row["order"], row["file"]
            compared += 1
    assert compared > 100
