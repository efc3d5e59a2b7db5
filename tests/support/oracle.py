"""Running files through real MegEngine, in the Python that the variable LOADRUN_ORACLE names."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.fixture_files import FIXTURES, fixture_names

ORACLE = os.environ.get("LOADRUN_ORACLE")
ROOT = FIXTURES
TESTS = Path(__file__).resolve().parents[1]
FOLDERS = sorted({name.rpartition("/")[0] for name in fixture_names()} - {"optimized"})


def run(files: list[Path], *options: str) -> dict[str, dict[str, Any]]:
    """What MegEngine says of each file: its row of `run_dumps.py`."""
    script = TESTS / "oracle" / "run_dumps.py"
    command = [str(ORACLE), str(script), *options, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["file"]: row for row in rows}
