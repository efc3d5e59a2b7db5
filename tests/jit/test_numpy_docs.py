"""docs/numpy.md lists what is lowered, and its code runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_table_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, "scripts/numpy_functions.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run python scripts/numpy_functions.py"


def test_code_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "numpy.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "numpy.md", "exec"), {})
