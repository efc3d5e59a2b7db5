"""The examples in docstrings give what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docstring_examples import main

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(
    ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for p in (ROOT / "loadrun").rglob("*.py")
    if ">>>" in p.read_text(encoding="utf-8")
)
PARTS = 2


@pytest.mark.parametrize("part", range(PARTS))
def test_examples_of_docstrings(part: int) -> None:
    command = [sys.executable, "-m", "tests.support.docstring_examples", *MODULES[part::PARTS]]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_example_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "planted_example.py").write_text('"""Two.\n\n>>> 1 + 1\n3\n>>> 2\n2\n"""\n')
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["planted_example"]) == 1
    assert "2 examples, 1 of them failed" in capsys.readouterr().out
