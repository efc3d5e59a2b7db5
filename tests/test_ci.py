"""The GitHub action, the pre-commit hook and the pipelines of the pages: their commands run in a project."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.support.forks import forks

ROOT = Path(__file__).resolve().parent.parent
PAGES = {p: (ROOT / "docs" / p).read_text(encoding="utf-8") for p in ("howto-ci.md", "tutorial.md")}
ACTION = (ROOT / "action.yml").read_text(encoding="utf-8")
HOOKS = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
PIP = """#!/bin/sh -e
for last; do :; done
test "$1" = install
test "$last" = onnxruntime || grep -q '^name = "loadrun"$' "$last/pyproject.toml"
"""
PYTHON = """#!/bin/sh
if test "$1 $2" = "-m pip"; then shift 2; exec pip "$@"; fi
exec python3 "$@"
"""
GIT = f"""#!/bin/sh
for last; do :; done
test "$1" = clone && ln -s {ROOT} "$last"
"""
pytestmark = pytest.mark.skipif(os.name == "nt", reason="the steps are written for a POSIX shell")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a model that passes; `pip` and `git` are played."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    forks().programs(bin_)
    for name, script in (("pip", PIP), ("python", PYTHON), ("git", GIT)):
        (bin_ / name).write_text(script)
        (bin_ / name).chmod(0o755)
    models = tmp_path / "project" / "models"
    models.mkdir(parents=True)
    (models / "mlp.mge").symlink_to(ROOT / "fixtures" / "nets" / "mlp.mge")
    return models.parent


def shell(project: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script as GitHub does: `bash -eo pipefail`."""
    path = os.pathsep.join([str(project.parent / "bin"), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **variables}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=120)


def act(project: Path, given: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the action's own steps, each `run` with the variables of its `env`."""
    defaults = dict(re.findall(r"^  (\w+):\n(?:    .*\n)*?    default: (.*)$", ACTION, re.M))
    values = {name: value.strip('"') for name, value in defaults.items()} | given
    assert set(given) <= set(re.findall(r"^  (\w+):\n    description", ACTION, re.M))
    variables = {
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(project / "summary.md"),
        "RUNNER_TEMP": str(project),
    }
    for name, source in re.findall(r"^ +([A-Z]+): \$\{\{ inputs\.(\w+) \}\}$", ACTION, re.M):
        variables[name] = values[source]
    one = re.findall(r"^ +run: ([^|\n].*)$", ACTION, re.M)
    several = re.findall(r"^ +run: \|\n((?: {8}.*\n)+)", ACTION, re.M)
    assert [len(one), len(several)] == [1, 1]
    assert "${{" not in one[0] + several[0], "an input would be read as part of the script"
    shell(project, one[0], **variables).check_returncode()
    return shell(project, textwrap.dedent(several[0]), **variables)


def test_the_action_reports_what_passes(project: Path) -> None:
    done = act(project, {"files": "models/", "options": "-j 2 --timeout 60"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 file, 3 testcases, 3 checks: 3 passed, 0 failed" in done.stdout
    assert done.stdout.strip() in (project / "summary.md").read_text()
    reports = project / "loadrun"
    assert sorted(p.name for p in reports.iterdir()) == [
        "junit.xml",
        "log.txt",
        "report.html",
        "report.jsonl",
    ]
    assert '<testsuites name="loadrun" tests="3" failures="0"' in (reports / "junit.xml").read_text()


def test_the_action_fails_with_the_exit_code_of_loadrun(project: Path) -> None:
    for name in ("xfail_quant_unet_minmax", "gpt"):
        path = ROOT / "fixtures" / "nets" / f"{name}.mge"
        (project / "models" / path.name).symlink_to(path)
    done = act(project, {"files": "models/x*.mge README.md", "engine": "reference", "options": "--fail-fast"})
    assert done.returncode == 1, done.stdout + done.stderr
    assert "::error file=models/xfail_quant_unet_minmax.mge::" in done.stdout
    summary = (project / "summary.md").read_text()
    assert "4 failed" in summary
    assert "::error" not in summary
    assert act(project, {"files": "models/none.mge"}).returncode == 2
    done = act(project, {"files": "models/gpt.mge", "engine": "nosuch"})
    assert (done.returncode, "nosuch" in done.stdout) == (2, True)


def test_the_hook_replays_the_files_that_it_matches(project: Path) -> None:
    """What pre-commit does: the entry with the matching names of a commit."""
    entry = re.findall(r"^  entry: (.*)$", HOOKS, re.M)[0]
    files = re.compile(re.findall(r"^  files: (.*)$", HOOKS, re.M)[0])
    names = ["README.md", "models/mlp.mge", "models/test_data_set_0/input_0.pb"]
    matching = [n for n in names if files.search(n)]
    assert matching == ["models/mlp.mge"]
    assert files.search("a.onnx")
    assert files.search("a.pt2")
    done = shell(project, f"{entry} {shlex.join(matching)}")
    assert (done.returncode, done.stdout.strip()) == (0, "1 file, 3 testcases, 3 checks: 3 passed, 0 failed")
    named = re.findall(r"hooks:\n +- id: (\w+)", PAGES["howto-ci.md"])
    assert named == re.findall(r"^- id: (\w+)", HOOKS, re.M)


@pytest.mark.parametrize("page", PAGES)
def test_pipelines(page: str, project: Path) -> None:
    """Every step of GitHub's and GitLab's files runs."""
    bodies = re.findall(r"^```yaml\n((?:jobs|models|steps):\n.*?)^```$", PAGES[page], re.M | re.S)
    assert len(bodies) == {"howto-ci.md": 2, "tutorial.md": 1}[page]
    for body in bodies:
        steps = re.findall(r"^ +- (?:run: )?((?:git|pip|loadrun) .*)$", body, re.M)
        done = shell(project, "\n".join(steps))
        assert done.returncode == 0, f"{body}\n{done.stdout}\n{done.stderr}"
        uses = re.findall(r"- uses: OWNER/loadrun@main\n +with:\n((?: +\w+: .*\n)+)", body)
        for given in uses:
            done = act(
                project, {k: v.replace(",onnxruntime", "") for k, v in re.findall(r"(\w+): (.*)", given)}
            )
            assert done.returncode == 0, f"{body}\n{done.stdout}\n{done.stderr}"
        assert "1 file, 3 testcases, 3 checks: 3 passed" in done.stdout


def test_the_address_is_everywhere_the_same() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    address = re.findall(r'^Repository = "https://github.com/([^"]+)"', project, re.M)[0]
    urls = re.findall(r'^\w+ = "https://github.com/([^/"]+/[^/"]+)', project, re.M)
    named = re.findall(r"uses: (\w+/loadrun)@|github\.com/(\S+/loadrun)\b", "".join(PAGES.values()))
    assert set(urls) == {a or b for a, b in named} == {address}
