"""The script of HTML reports, run by Node on a stand-in for a page."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from loadrun.report.page import FOOT

PAGE = Path(__file__).resolve().parents[1] / "data" / "page.js"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_search_filter_and_sort(tmp_path: Path) -> None:
    script = tmp_path / "script.js"
    script.write_text(FOOT.split("<script>")[1].split("</script>")[0])
    done = subprocess.run(["node", PAGE, script], capture_output=True, text=True, check=True)
    slowest_first, fastest_first, found, without_the_passing = done.stdout.split()
    assert slowest_first == "b.mge,a.mge,c.mge"
    assert fastest_first == "c.mge,a.mge,b.mge"
    assert found == "c.mge"
    assert without_the_passing == "b.mge"
