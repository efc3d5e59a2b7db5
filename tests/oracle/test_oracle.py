"""What loadrun writes is loaded and executed by real MegEngine with all checks holding."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import loadrun

ORACLE = os.environ.get("LOADRUN_ORACLE")
pytestmark = pytest.mark.skipif(not ORACLE, reason="real MegEngine is absent; scripts/oracle.sh sets it up")

ROOT = Path(__file__).resolve().parents[2] / "fixtures"
FOLDERS = sorted(
    {p.parent.relative_to(ROOT).as_posix() for top in ("nets", "ops") for p in (ROOT / top).rglob("*.mge")}
)


def run(files: list[Path], *options: str) -> dict[str, dict[str, Any]]:
    command = [str(ORACLE), str(Path(__file__).with_name("run_dumps.py")), *options, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["file"]: row for row in rows}


@pytest.mark.parametrize("format", ["FBS_V2", "FBS"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_rewritten_fixtures_hold_in_megengine(folder: str, format: str, tmp_path: Path) -> None:
    files = {}
    for path in sorted((ROOT / folder).glob("*.mge")):
        if path.name.startswith("xfail_"):
            continue
        bundle = loadrun.load(path)
        target = tmp_path / path.name
        loadrun.save(bundle, target, format=format)
        files[str(target)] = "pass" if bundle.is_container else "loaded"
    found = run([Path(f) for f in files])
    wrong = {
        Path(f).name: found.get(f) for f, want in files.items() if found.get(f, {}).get("result") != want
    }
    assert not wrong
