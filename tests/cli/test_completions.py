"""Completions that are made when packages are built: what bash makes of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("shtab")
    made = tmp_path_factory.mktemp("completions")
    subprocess.run([sys.executable, "scripts/completions.py", str(made)], cwd=ROOT, check=True)
    return made


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("loadrun red", ["reduce"]),
        ("loadrun info --graph", ["--graph"]),
        ("loadrun --fail-f", ["--fail-fast"]),
        ("loadrun run --engine openv", ["openvino"]),
        ("load_and_run --io_d", ["--io_dump", "--io_dump_stdout", "--io_dump_stderr"]),
    ],
)
def test_what_bash_completes(folder: Path, words: str, found: list[str]) -> None:
    program = words.split()[0]
    code = f"source {folder}/{program}.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))"
    code += f"; _shtab_{program}; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    assert done.stdout.split() == found
