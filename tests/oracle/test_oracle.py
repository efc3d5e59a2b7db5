"""What loadrun writes is loaded and executed by real MegEngine with all checks holding."""

from __future__ import annotations

from pathlib import Path

import pytest

import loadrun
from tests.support.oracle import FOLDERS, ROOT, run

pytestmark = pytest.mark.oracle


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
        files[str(target)] = "pass" if bundle.facts.is_container else "loaded"
    found = run([Path(f) for f in files])
    wrong = {
        Path(f).name: found.get(f) for f, want in files.items() if found.get(f, {}).get("result") != want
    }
    assert not wrong
