"""How `-j` scales: wall and processor time of the same files by 0, 1, 2 and 4 workers.

    python benchmarks/scaling.py [--files 24] [--repeat 3] [--cases 20]

Zero workers is this process itself. Processor time is that of all processes, so that a busy machine can be seen:
where it stays the same and the wall time does not fall, others took the processors.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import loadrun
from loadrun.verify.pack.packing import Packer

ROOT = Path(__file__).resolve().parent.parent
NET = ROOT / "fixtures" / "nets" / "resnet_basic.mge"


def models(folder: Path, files: int, cases: int) -> None:
    """Files of one net, with testcases of their own."""
    bundle = loadrun.load(NET)
    shape = bundle.inputs[0].owner.tensors[0].shape or ()
    for i in range(files):
        rng = np.random.default_rng(i)
        name = bundle.inputs[0].name or ""
        data = ({name: rng.normal(size=(4, *shape[1:])).astype("f4")} for _ in range(cases))
        Packer(bundle, warn=lambda _: None).pack(data, folder / f"net{i:03}.mge")


def measured(argv: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of a run, those of its children included."""
    before = os.times()
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "loadrun", *argv, "-q"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    wall = time.perf_counter() - start
    after = os.times()
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, used


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--files", type=int, default=24)
    p.add_argument("--cases", type=int, default=20)
    p.add_argument("--repeat", type=int, default=3)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as made:
        models(Path(made), args.files, args.cases)
        os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
        for jobs in (0, 1, 2, 4):
            # One worker is a process of its own where there is a time limit.
            extra = [] if jobs == 0 else ["-j", str(jobs), "--timeout", "3600"]
            found = [measured([made, *extra]) for _ in range(args.repeat)]
            wall, used = min(w for w, _ in found), min(u for _, u in found)
            spread = max(w for w, _ in found)
            print(f"{jobs} workers: wall {wall:6.2f} .. {spread:6.2f} s, processor {used:6.2f} s", flush=True)


if __name__ == "__main__":
    main()
