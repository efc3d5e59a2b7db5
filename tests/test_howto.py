"""The how-to pages: their commands and programs run as they stand, and print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.cases import slow_but
from tests.support.forks import forks, python

DOCS = Path(__file__).resolve().parent.parent / "docs"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
FILES = ("yaml", "toml", "ini")
"""Fences of what stands in files, which is neither run nor printed."""
PAGES = ["tutorial.md", "tolerances.md", *sorted(p.name for p in DOCS.glob("howto-*.md"))]
LONG = ("howto-bench.md", "howto-checks.md", "howto-diff.md", "tolerances.md")
NEEDS = {"howto-huggingface.md": "transformers", "howto-timm.md": "timm"}
pytestmark = pytest.mark.skipif(os.name == "nt", reason="the pages are written for a POSIX shell")


@pytest.mark.parametrize("page", slow_but([p for p in PAGES if p not in LONG], PAGES))
def test_page(page: str, tmp_path: Path) -> None:
    if page == "howto-engines.md":
        pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    if page in ("howto-torch.md", "howto-onnx-export.md"):
        pytest.importorskip("torch", reason="torch is not installed")
    if page in NEEDS:
        pytest.importorskip("torch", reason="torch is not installed")
        pytest.importorskip(NEEDS[page], reason=f"{NEEDS[page]} is not installed")
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    forks().programs(bin_)
    work = tmp_path / "work"
    work.mkdir()
    (work / "fixtures").symlink_to(DOCS.parent / "fixtures")
    path = os.pathsep.join([str(bin_), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(DOCS.parent)}
    printed = ""
    for kind, body in FENCE.findall((DOCS / page).read_text(encoding="utf-8")):
        if kind in ("sh", "python"):
            command = ["sh", "-e", "-c", body] if kind == "sh" else [*python(), "-c", body]
            ran = subprocess.run(
                command, cwd=work, env=environment, capture_output=True, text=True, timeout=120
            )
            assert ran.returncode == 0, f"{body}\n{ran.stdout}\n{ran.stderr}"
            printed = ran.stdout
        elif kind not in FILES:
            for line in body.splitlines():
                assert line in printed.splitlines(), f"{line!r} is not in\n{printed}"
