"""Running files through real MegEngine, in the Python that the variable LOADRUN_ORACLE names."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ORACLE = os.environ.get("LOADRUN_ORACLE")
ROOT = Path(__file__).resolve().parents[2] / "fixtures"
FOLDERS = sorted(
    {p.parent.relative_to(ROOT).as_posix() for top in ("nets", "ops") for p in (ROOT / top).rglob("*.mge")}
)


def run(files: list[Path], *options: str) -> dict[str, dict[str, Any]]:
    """What MegEngine says of each file: its row of `run_dumps.py`."""
    script = ROOT.parent / "tests" / "oracle" / "run_dumps.py"
    command = [str(ORACLE), str(script), *options, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["file"]: row for row in rows}
