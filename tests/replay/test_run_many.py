"""Many files in one command: lines, tables for failures alone, the list at the end, colours, annotations, stopping."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from loadrun.cli import main

NETS = Path("fixtures/nets")
FAILING = "b.mge"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five files, of which the second fails and the fourth is none."""
    for name in ("a.mge", "c.mge", "e.mge"):
        shutil.copy(NETS / "mlp.mge", tmp_path / name)
    shutil.copy(NETS / "xfail_quant_unet_minmax.mge", tmp_path / FAILING)
    (tmp_path / "d.mge").write_bytes(b"nothing")
    (tmp_path / "notes.txt").write_text("no model")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_one_line_a_file_and_tables_for_failures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["."]) == 2
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if re.match(r"(pass|FAIL|ERROR) ", line)]
    assert [line.split()[:2] for line in lines] == [
        ["pass", "./a.mge"],
        ["FAIL", "./b.mge"],
        ["pass", "./c.mge"],
        ["ERROR", "./d.mge"],
        ["pass", "./e.mge"],
    ]
    assert "4 of 4 checks failed" in lines[1]
    assert out.count("testcase  output") == 1, "one table, that of the file that fails"
    assert "189 of 1024 values exceed the tolerance" in out
    tail = out[out.index("not passed:") :].splitlines()
    assert tail[1].startswith("  ./b.mge: fail: testcase 0 output mask error 0.0614, tolerance 0.0001; ")
    assert tail[2].startswith("  ./d.mge: error: expected a MegEngine dump")
    assert tail[3] == "5 files, 11 testcases, 13 checks: 9 passed, 4 failed, 1 error"


def test_quiet_tells_who_failed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["*.mge", "-q"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].strip() for line in lines[:3]] == ["not passed", "b.mge", "d.mge"]
    assert len(lines) == 4


def test_verbose(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([".", "-v"])
    assert capsys.readouterr().out.count("testcase  output") == 4
    main(["a.mge", "-vv"])
    out = capsys.readouterr().out
    assert out.count("cosine 1") == 3, "metrics of outputs that pass"


def test_fail_fast(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([".", "--fail-fast", "-q"]) == 1, "the file that is none was not reached"
    out = capsys.readouterr().out.splitlines()
    assert out[-2:] == [
        "3 more files were not run (--fail-fast)",
        "2 files, 5 testcases, 7 checks: 3 passed, 4 failed",
    ]


def test_the_same_with_processes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([".", "-q"])
    alone = capsys.readouterr().out
    assert main([".", "-q", "-j", "2"]) == 2
    assert capsys.readouterr().out == alone


def test_colours(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(["a.mge", FAILING])
    out = capsys.readouterr().out
    assert "\x1b[32mpass" in out
    assert "\x1b[1;31mFAIL" in out
    plain = re.sub(r"\x1b\[[\d;]*m", "", out)
    monkeypatch.setenv("NO_COLOR", "1")
    main(["a.mge", FAILING])
    other = capsys.readouterr().out
    assert "\x1b" not in other
    # Milliseconds, whose column is as wide as the slowest run asks for.
    times = re.compile(r"\s+([\d.]+|ms|-+)$", re.M)
    assert times.sub("", plain) == times.sub("", other), "columns stand where they stand without colours"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.delenv("FORCE_COLOR")
    main(["a.mge"])
    assert "\x1b" not in capsys.readouterr().out, "this is not a terminal"


def test_annotations(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy("d.mge", "odd,name:50%.mge")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    main(["a.mge", "odd,name:50%.mge", "-q"])
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    assert len(found) == 1
    assert found[0].startswith("::error file=odd%2Cname%3A50%25.mge::error: expected a MegEngine dump")


@pytest.mark.parametrize(
    "argv", [["-j", "0"], ["-j", "x"], ["--timeout", "0"], ["--timeout", "nan"], ["-j", "2", "--iter", "3"]]
)
def test_refused(folder: Path, argv: list[str]) -> None:
    assert main(["a.mge", *argv]) == 2


def test_what_stands_for_nothing_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "empty").mkdir()
    assert main(["empty", "no*.mge", "a.mge"]) == 2
    out = capsys.readouterr().out
    assert "empty: error: the folder has no models (.mge, .onnx, .pt2)" in out
    assert "no*.mge: error: no file matches the pattern" in out


def test_quiet_explanations_name_their_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a.mge", FAILING, "--explain", "-q"]) == 1
    assert capsys.readouterr().out.startswith(f"{FAILING}\n  testcase 0 beside")


def test_colours_by_the_environment(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for value, coloured in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("FORCE_COLOR", value)
        main(["a.mge"])
        assert ("\x1b[" in capsys.readouterr().out) is coloured
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    main(["a.mge"])
    assert "\x1b[" not in capsys.readouterr().out
