"""The documentation says what is true: the operator table is up to date, the README's Python runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_operator_table_is_up_to_date() -> None:
    command = [sys.executable, "scripts/operators.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, check=False)
    assert done.returncode == 0, "run python scripts/operators.py"


def test_readme_python(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert "pass" in out
    assert "'out'" in out


def test_readme_names_existing_pages() -> None:
    for page in re.findall(r"\]\(([\w/.-]+\.md)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / page).exists(), page
