"""What starting takes: processor time (user and system) of `loadrun FILE` in a fresh process, beside importing numpy.

  PYTHON -P benchmarks/start.py [FILE] [--runs 20]

PYTHON is that of an environment in which loadrun is installed as users install it, not editable, with its bytecode
compiled: an editable installation looks for every module in more places. The commands are run in turn, medians are
printed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

NET = Path(__file__).resolve().parent.parent / "fixtures" / "nets" / "mlp.mge"


def used(command: list[str]) -> float:
    """Processor milliseconds of a process."""
    process = subprocess.Popen(command, cwd="/", stdout=subprocess.DEVNULL, env={**os.environ, **ONE})
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1e3


ONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def main() -> None:
    """Measure and print a line a command."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file", nargs="?", default=str(NET))
    p.add_argument("--runs", type=int, default=20)
    args = p.parse_args()
    script = str(Path(sys.executable).with_name("loadrun"))
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "import numpy": [sys.executable, "-c", "import numpy"],
        "import loadrun": [sys.executable, "-c", "import loadrun"],
        "loadrun --version": [script, "--version"],
        "loadrun FILE": [script, str(Path(args.file).resolve())],
    }
    found: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(args.runs):
        for name, command in commands.items():
            found[name].append(used(command))
    for name, times in found.items():
        print(f"{name:18} median {median(times):4.0f} ms, least {min(times):4.0f} ms")


if __name__ == "__main__":
    main()
