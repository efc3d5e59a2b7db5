"""Which files a run replays, what is expected of them, and what is done where one does not pass."""

from __future__ import annotations

import json
import os
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import loadrun
from loadrun.base import configuration
from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.compare.results import Verdict
from loadrun.replay.options import matches_words
from tests.support.small_models import unary

NETS = Path("fixtures/nets")
needs_toml = pytest.mark.skipif(
    not any(configuration.find_spec(m) for m in ("tomllib", "tomli")), reason="no package reads TOML"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four files, of which one fails and one is none."""
    for name in ("a.mge", "cc.mge"):
        shutil.copy(NETS / "mlp.mge", tmp_path / name)
    shutil.copy(NETS / "xfail_quant_unet_minmax.mge", tmp_path / "b.mge")
    (tmp_path / "d.mge").write_bytes(b"nothing")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(report: str = "r.json") -> list[str]:
    return [f["file"] for f in json.loads(Path(report).read_text())["files"]]


def test_words(folder: Path) -> None:
    assert main([".", "-k", "a or cc and not b", "--json", "r.json"]) == 0
    assert ran() == ["./a.mge", "./cc.mge"]
    for bad in (["--testcase", "2-1"], ["-k", "x"], ["-k", "a and"]):
        assert main(["a.mge", *bad]) == 2


@pytest.mark.parametrize(
    "text", ["", "and", "a b", "(a", "a)", "not", "a or or b", "(" * 5000, "not " * 5000 + "a", "a(b)"]
)
def test_words_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="-k takes words"):
        matches_words(text, "name")


def test_single_testcases(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a.mge", "cc.mge", "--testcase", "0,2", "--json", "r.json"]) == 0
    files = json.loads(Path("r.json").read_text())["files"]
    assert [[c["testcase"] for c in f["testcases"]] for f in files] == [[0, 2], [0, 2]]
    assert main(["a.mge", "--testcase", "1-1", "-j", "2"]) == 0
    capsys.readouterr()
    assert main(["a.mge", "--testcase", "3"]) == 2
    assert "there is no testcase 3; the file has 3" in capsys.readouterr().out


def test_last_failed(folder: Path) -> None:
    assert main([".", "--json", "r.json"]) == 2
    assert main([".", "--last-failed", "r.json", "--json", "l.jsonl"]) == 2
    lines = [json.loads(line) for line in Path("l.jsonl").read_text().splitlines()]
    assert [line["file"] for line in lines if line["type"] == "file"] == ["./b.mge", "./d.mge"]
    shutil.copy("a.mge", "b.mge")
    shutil.copy("a.mge", "d.mge")
    assert main([".", "--last-failed", "l.jsonl"]) == 0


def test_a_run_that_was_cut_failed_what_it_did_not_reach(folder: Path) -> None:
    assert main(["a.mge", "cc.mge", "--json", "l.jsonl"]) == 0
    text = Path("l.jsonl").read_text().splitlines(keepends=True)
    end = next(i for i, line in enumerate(text) if '"cc.mge"' in line and '"file"' in line)
    for kept in (end, end + 2):
        Path("cut.jsonl").write_text("".join(text[:kept]))
        assert main([".", "--last-failed", "cut.jsonl", "-k", "a or cc", "--json", "r.json"]) in (0, 1, 2)
        files = json.loads(Path("r.json").read_text())["files"]
        assert [f["file"] for f in files] == ["./a.mge", "./cc.mge"]
        assert main(["a.mge", "cc.mge", "--last-failed", "cut.jsonl", "--json", "r.json"]) == 0
        assert [f["file"] for f in json.loads(Path("r.json").read_text())["files"]] == ["cc.mge"]


@needs_toml
def test_configuration(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "loadrun.toml").write_text(
        '[[files]]\nmatch = ["b.mge"]\nxfail = "min and max differ"\n'
        '[[files]]\nmatch = ["d.mge"]\nskip = "no model yet"\n'
    )
    reports = ["--json", "r.json", "--junit", "r.xml", "--html", "r.html"]
    assert main([".", *reports]) == 0
    out = capsys.readouterr().out
    assert "skipped: ./d.mge: no model yet" in out
    assert "expected to fail: min and max differ" in out
    assert "1 expected failure" in out
    report = json.loads(Path("r.json").read_text())
    assert report["skipped"] == {"./d.mge": "no model yet"}
    assert [f.get("expected_failure") for f in report["files"]] == [None, "min and max differ", None]
    suites = ET.parse("r.xml").getroot()
    assert suites.attrib["failures"] == "0"
    assert sum(int(suite.attrib["skipped"]) for suite in suites) == 5
    (left,) = (suite for suite in suites if suite.attrib["name"] == "./d.mge")
    assert [c.attrib["message"] for c in left.iter("skipped")] == ["no model yet"]
    rows = Path("r.html").read_text()
    assert '<tr class=xfail data-part="f1"><td>xfail</td>' in rows
    assert "<tr class=skipped><td>skipped</td><td>./d.mge<br>no model yet</td>" in rows
    assert main([".", "--config", "none"]) == 2
    (folder / "loadrun.toml").write_text('[[files]]\nmatch = ["b.mge"]\nchek = ["exact"]\n')
    assert main(["."]) == 2
    (folder / "other.toml").write_text(
        'engines = ["float64"]\n[[files]]\nmatch = ["a.mge"]\ncheck = ["exact"]\n'
    )
    assert main(["a.mge", "cc.mge", "--config", "other.toml", "--json", "r.json"]) == 1
    files = json.loads(Path("r.json").read_text())["files"]
    assert [f["engine"]["engine"] for f in files] == ["float64", "float64"]
    assert [f["verdict"] for f in files] == ["fail", "pass"]
    # What the command names takes the place of what is configured.
    main(["cc.mge", "--config", "other.toml", "--engine", "reference", "--json", "r.json"])
    assert json.loads(Path("r.json").read_text())["files"][0]["engine"]["engine"] == "reference"


def test_of_several_exit_codes_an_error_wins_over_a_failure_and_that_over_nothing_compared(
    folder: Path,
) -> None:
    loadrun.save(unary(), "plain.mge")
    assert main(["plain.mge", "-q"]) == 3
    # Values out of range are a failure, though nothing is compared.
    assert main(["plain.mge", "-q", "--range", "1e-6"]) == 1
    assert main(["plain.mge", "b.mge", "-q"]) == 1
    assert main(["plain.mge", "b.mge", "d.mge", "-q"]) == 2
    assert main(["a.mge", "plain.mge", "-q"]) == 3


@needs_toml
def test_a_pass_of_what_is_expected_to_fail_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = '[[files]]\nmatch = ["a.mge"]\nxfail = "rounds halves up"\n'
    (folder / "loadrun.toml").write_text(entry)
    assert main(["a.mge", "--json", "r.jsonl", "--junit", "r.xml", "--json", "r.json"]) == 1
    said = "it passes, but was expected to fail: rounds halves up; remove its entry"
    assert f"warning: {said}" in capsys.readouterr().out
    (file,) = json.loads(Path("r.json").read_text())["files"]
    assert (file["verdict"], file["warnings"]) == ("fail", [said])
    assert [f.attrib["message"] for f in ET.parse("r.xml").getroot().iter("failure")] == [said]
    (folder / "loadrun.toml").write_text(entry + "xfail_strict = false\n")
    assert main(["a.mge"]) == 0
    assert f"warning: {said}" in capsys.readouterr().out
    (folder / "loadrun.toml").write_text("xfail_strict = false\n" + entry + "xfail_strict = true\n")
    assert main(["a.mge"]) == 1


@needs_toml
def test_only_a_failed_check_can_be_expected(folder: Path) -> None:
    (folder / "loadrun.toml").write_text('[[files]]\nmatch = ["*.mge"]\nxfail = "min and max differ"\n')
    # Not what cannot be read, is not there, or holds no check.
    shutil.copy("b.mge", "absent.mge")
    loadrun.save(unary(), "plain.mge")
    assert [main([name, "-q"]) for name in ("b.mge", "d.mge", "plain.mge")] == [0, 2, 3]
    os.remove("absent.mge")
    assert main(["absent.mge", "-q", "--junit", "r.xml"]) == 2
    assert ET.parse("r.xml").getroot().attrib["errors"] == "1"


@needs_toml
@pytest.mark.parametrize("flags", [[], ["-q"], ["-j", "2"]])
def test_a_pattern_that_matches_no_file(
    flags: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "loadrun.toml").write_text(
        '[[files]]\nmatch = ["b.mge", "c/*.mge", "gone.mge"]\ncheck = ["exact"]\n'
    )
    (folder / "c").mkdir()
    shutil.copy("a.mge", "c")
    assert main(["a.mge", *flags, "--json", "r.json", "--junit", "r.xml"]) == 3
    assert "loadrun.toml: not compared: match 'gone.mge' matches no file" in capsys.readouterr().out
    report = json.loads(Path("r.json").read_text())
    assert [f["verdict"] for f in report["files"]] == ["pass", "not compared"]
    assert ET.parse("r.xml").getroot().attrib["failures"] == "1"
    # One that is there and merely not part of this run is nothing, wherever it is.
    (folder / "deep" / "er").mkdir(parents=True)
    shutil.copy("a.mge", folder / "deep" / "er" / "gone.mge")
    assert main(["a.mge", *flags]) == 0


@needs_toml
def test_a_configuration_that_skips_every_file_is_no_success(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "loadrun.toml").write_text('[[files]]\nmatch = ["*.mge"]\nskip = "later"\n')
    for flags in ([], ["-q"], ["-j", "2"], ["--json", "r.json", "--junit", "r.xml"]):
        assert main(["a.mge", "b.mge", *flags]) == 3
        assert "nothing was compared: the configuration skips every file" in capsys.readouterr().out
    assert main(["a.mge", "--allow-uncompared"]) == 0


@needs_toml
def test_time_limits_of_files(folder: Path) -> None:
    (folder / "loadrun.toml").write_text('[[files]]\nmatch = ["b.mge"]\ntimeout = 0.001\n')
    run = loadrun.replay_files(
        ["a.mge", "b.mge"], loadrun.RunOptions(configuration=configuration.find_configuration())
    )
    assert [f.verdict for f in run.files] == [Verdict.PASS, Verdict.TIMEOUT]
