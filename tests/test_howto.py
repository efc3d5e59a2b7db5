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


PIP = """#!/bin/sh
test "$1" = install && grep -q '^name = "loadrun"$' "$2/pyproject.toml"
"""
GIT = """#!/bin/sh
for last; do :; done
test "$1" = clone && ln -s %s "$last"
"""


@pytest.mark.parametrize("page", ["howto-ci.md", "tutorial.md"])
def test_pipelines(page: str, tmp_path: Path) -> None:
    """Every step of GitHub's and GitLab's files runs in a project; ``pip`` and ``git`` are played."""
    text = (DOCS / page).read_text(encoding="utf-8")
    snippets = [body for kind, body in FENCE.findall(text) if kind == "yaml"]
    assert len(snippets) == {"howto-ci.md": 2, "tutorial.md": 1}[page]
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    forks().programs(bin_)
    for name, script in (("pip", PIP), ("git", GIT % DOCS.parent)):
        (bin_ / name).write_text(script)
        (bin_ / name).chmod(0o755)
    for number, body in enumerate(snippets):
        project = tmp_path / f"project{number}"
        (project / "models").mkdir(parents=True)
        (project / "models" / "mlp.mge").symlink_to(DOCS.parent / "fixtures" / "nets" / "mlp.mge")
        for path in re.findall(r"repository: OWNER/loadrun\n +path: (\S+)\n", body):
            (project / path).symlink_to(DOCS.parent)
        steps = re.findall(r"^ +- (?:run: )?((?:git|pip|loadrun) .*)$", body, re.M)
        assert [s.split()[0] for s in steps][-2:] == ["pip", "loadrun"]
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(bin_), os.environ["PATH"]]),
            "PYTHONPATH": str(DOCS.parent),
        }
        done = subprocess.run(
            ["sh", "-e", "-c", "\n".join(steps)],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{body}\n{done.stdout}\n{done.stderr}"
        assert "1 file, 3 testcases, 3 checks: 3 passed" in done.stdout
        assert "class='total pass'" in (project / "report.html").read_text()


def test_the_address_is_everywhere_the_same() -> None:
    project = (DOCS.parent / "pyproject.toml").read_text(encoding="utf-8")
    address = re.findall(r'^Repository = "https://github.com/([^"]+)"', project, re.M)[0]
    urls = re.findall(r'^\w+ = "https://github.com/([^/"]+/[^/"]+)', project, re.M)
    pages = "".join((DOCS / p).read_text(encoding="utf-8") for p in ("howto-ci.md", "tutorial.md"))
    steps = re.findall(r"repository: (\S+)|github\.com/(\S+) \.loadrun", pages)
    assert set(urls) == {a or b for a, b in steps} == {address}
