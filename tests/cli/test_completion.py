"""Completion scripts and the manual page: what shells and man make of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from loadrun.cli import COMMANDS, JOBS, main


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    assert main(["completion", request.param]) == 0
    path = tmp_path / request.param
    path.write_text(capsys.readouterr().out)
    return path


def completed(script: Path, *words: str) -> list[str]:
    """What bash completes the last word to."""
    inside = " ".join(f"'{w}'" for w in words)
    code = f"source {script}; COMP_WORDS=({inside}); COMP_CWORD={len(words) - 1}; _loadrun; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, cwd=script.parent)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash(script: Path) -> None:
    (script.parent / "verified.mge").touch()
    assert completed(script, "loadrun", "ver") == ["verified.mge", "verify"]
    assert completed(script, "loadrun", "x.mge", "--ju") == ["--junit"]
    assert completed(script, "loadrun", "unpack", "--ju") == []
    assert completed(script, "loadrun", "x.mge", "--color", "a") == ["auto", "always"]
    assert completed(script, "loadrun", "completion", "ver") == ["verified.mge"]
    assert completed(script, "loadrun", "x.mge", "--engine", "o") == ["onnxruntime", "openvino"]
    assert completed(script, "loadrun", "load_and_run", "--io_dump_std") == [
        "--io_dump_stdout",
        "--io_dump_stderr",
    ]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_the_tool_by_its_own_name(script: Path) -> None:
    code = f"source {script}; COMP_WORDS=(load_and_run --warm); COMP_CWORD=1; _load_and_run; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, cwd=script.parent)
    assert done.stdout.split() == ["--warmup_iter"]
    (script.parent / "model.mge").touch()
    code = code.replace("--warm", "mod")
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, cwd=script.parent)
    assert done.stdout.split() == ["model.mge"]


@pytest.mark.parametrize("script", ["zsh", "fish"], indirect=True)
def test_other_shells(script: Path) -> None:
    """Every command and option is named; the shell itself reads it where there is one."""
    text = script.read_text()
    for name in COMMANDS:
        assert name in text
    assert "--junit[" in text if script.name == "zsh" else "-l junit" in text
    shell = shutil.which(script.name)
    if shell is not None:
        subprocess.run([shell, "-n", str(script)], check=True)


@pytest.mark.parametrize("script", ["man"], indirect=True)
def test_manual_page(script: Path) -> None:
    text = script.read_text()
    assert text.startswith(".TH LOADRUN 1")
    assert all(f'.SH "LOADRUN {name.upper()}"' in text for name in COMMANDS)
    assert "\\fB\\-\\-junit\\fR \\fIFILE\\fR" in text
    assert not [line for line in text.splitlines() if line.startswith("'")]
    groff = shutil.which("groff")
    if groff is not None:
        done = subprocess.run(
            [groff, "-man", "-Tutf8", "-ww", str(script)], capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        assert "write a JUnit report for CI servers" in " ".join(done.stdout.split())


def test_help_of_a_run_is_a_screen_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["run", "--help"]) == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) <= 40
    assert "--junit FILE" in short
    assert "--bin-io-dump" not in short
    for words in (["run", "--help-all"], ["--help-all"]):
        assert main(words) == 0
        whole = capsys.readouterr().out
        # Every option in one spelling, though both are read.
        assert "--bin-io-dump DIR" in whole
        assert "--bin_io_dump" not in whole
    left = int(short.split(" more options")[0].rsplit(maxsplit=1)[1])
    entries = [len(re.findall(r"^  (?:-|MODEL)", text, re.MULTILINE)) for text in (whole, short)]
    assert left == entries[0] - entries[1]


def test_help_lists_commands_by_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert [line[:-1] for line in out.splitlines() if line.endswith(":") and line[0] != " "] == [
        *JOBS,
        "More",
    ]
    assert all(f"\n  {name} " in out for name in COMMANDS)
