"""The core on a system without the modules and functions of POSIX that Windows, and in part macOS, lack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROBE = """
import os, signal, subprocess, sys, tempfile, threading
for name in ("fcntl", "resource", "pwd", "grp", "termios", "syslog"):
    sys.modules[name] = None
for module, names in (
    (os, "fork register_at_fork sched_getaffinity getloadavg O_NONBLOCK getuid geteuid mkfifo setsid killpg"),
    (signal, "SIGALRM SIGHUP SIGPIPE SIGUSR1 SIGQUIT setitimer ITIMER_REAL alarm pthread_sigmask"),
):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
import loadrun.base.limits
loadrun.base.limits.sys = type(sys)("sys")
loadrun.base.limits.sys.platform = "win32"
from loadrun.cli import main
for words, code in {commands!r}:
    found = main(words)
    assert found == code, (words, found)
"""


@pytest.mark.skipif(os.name == "nt", reason="this is such a system")
def test_the_core_without_posix(tmp_path: Path) -> None:
    mlp = "fixtures/nets/mlp.mge"
    out = str(tmp_path / "out.mge")
    (tmp_path / "list.txt").write_text("#ones\n")
    commands = [
        ([mlp, "--json", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html")], 0),
        ([mlp, "--max-memory", "4G", "-q"], 0),
        ([mlp, "fixtures/nets/mlp.v1.mge", "-j", "2", "--timeout", "100", "-q"], 0),
        ([mlp, "--input", f"@{tmp_path / 'list.txt'}", "-q"], 3),
        (["info", mlp], 0),
        (["pack", mlp, "-d", "#ones", "-o", out, "--quiet"], 0),
        ([out, "-q"], 0),
        (["audit", out], 0),
        (["diff", mlp, "--against", "float64"], 0),
        (["bench", mlp, "--min-time", "0", "--min-passes", "1"], 0),
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(commands=commands)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
