"""Digests and `audit` of many files: a line for each, processes, reports."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

import loadrun
from loadrun.base.errors import LoadRunError
from loadrun.base.pipes import mapped
from loadrun.cli import main

MLP, VGG = "fixtures/nets/mlp.mge", "fixtures/nets/vgg.mge"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """A packed file, one whose weights were changed afterwards, and one without digests."""
    folder = tmp_path_factory.mktemp("fleet")
    good, bad, plain = (str(folder / n) for n in ("good.mge", "bad.mge", "plain.mge"))
    assert main(["pack", MLP, "-o", good, "-d", "#rand(0,1)", "-q"]) == 0
    data = bytearray(Path(good).read_bytes())
    # The last bit of a weight, which no check sees.
    weight = loadrun.load(good).graph.oprs[1].tensors[0].value().tobytes()
    data[data.index(weight[:16])] ^= 1
    Path(bad).write_bytes(data)
    shutil.copy(MLP, plain)
    return good, bad, plain


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_verify(
    files: tuple[str, str, str], jobs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, plain = files
    report, junit = tmp_path / "r.json", tmp_path / "r.xml"
    argv = [good, bad, plain, "-j", jobs, "--json", str(report), "--junit", str(junit)]
    assert main(argv) == 1
    shown = capsys.readouterr().out
    assert f"  {bad}: fail: the model is not the one that was packed" in shown.splitlines()
    about = json.loads(report.read_text())
    assert about["exit_code"] == 1
    assert [(f["file"], f["verdict"], len(f["testcases"])) for f in about["files"]] == [
        (good, "pass", 4),
        (bad, "fail", 4),
        (plain, "pass", 3),
    ]
    suites = ElementTree.parse(junit).getroot().findall("testsuite")
    states = {s.get("name"): [c.tag for c in s.findall("testcase[@name='digests']/*")] for s in suites}
    assert states == {good: [], bad: ["failure"], plain: []}


def test_a_change_is_no_failure_that_is_expected(files: tuple[str, str, str], tmp_path: Path) -> None:
    config = tmp_path / "loadrun.toml"
    config.write_text('[[files]]\nmatch = ["bad.mge"]\nxfail = "rounds differently"\ncheck = ["exact"]\n')
    assert main([files[1], "--config", str(config), "-q"]) == 1


def test_quiet_names_what_is_changed(files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, _ = files
    assert main([good, bad, "-q"]) == 1
    out = capsys.readouterr().out
    assert bad in out
    assert good not in out


def test_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, junit = tmp_path / "r.json", tmp_path / "r.xml"
    one = ["audit", MLP, VGG, "--mutants", "6", "--json", "-", "--junit", str(junit)]
    assert main(one) == 0
    ran = capsys.readouterr()
    lines = ran.err.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == [MLP, VGG]
    assert main([*one[:5], "-j", "2", "--json", str(report)]) == 0
    assert json.loads(report.read_text()) == json.loads(ran.out)
    found = {f["file"]: f["outputs"][0] for f in json.loads(ran.out)["files"]}
    assert found[MLP]["caught"]["weight elements"] == 6
    suites = ElementTree.parse(junit).getroot().findall("testsuite")
    assert [(s.get("name"), s.get("tests"), s.get("failures")) for s in suites] == [
        (MLP, "1", "0"),
        (VGG, "1", "0"),
    ]


def test_unreadable_files_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken, junit = tmp_path / "broken.mge", tmp_path / "r.xml"
    broken.write_bytes(b"mgbtest0")
    for command in ([], ["audit"]):
        assert main([*command, MLP, str(broken), "--junit", str(junit)]) == 2
        assert ElementTree.parse(junit).getroot().get("errors") == "1"
    capsys.readouterr()


def test_a_worker_that_ends() -> None:
    with pytest.raises(LoadRunError, match="a worker process died"):
        list(mapped(_end, [1, 2], 2))


def _end(code: int) -> None:
    import os

    os._exit(code)
