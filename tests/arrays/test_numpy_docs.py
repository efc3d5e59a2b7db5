"""The code of docs/numpy.md runs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_code_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "numpy.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "numpy.md", "exec"), {})
