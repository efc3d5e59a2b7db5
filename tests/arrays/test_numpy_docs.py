"""docs/numpy.md lists what is lowered, and its code runs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_table_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "numpy_functions.py"))["page"]()
    assert (ROOT / "docs" / "numpy.md").read_text() == page, "run python scripts/numpy_functions.py"


def test_code_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "numpy.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "numpy.md", "exec"), {})
