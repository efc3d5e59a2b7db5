"""Packing, loading, verifying and replaying files of many testcases: seconds and peak memory, each in a fresh process.

python benchmarks/many_testcases.py [COUNT...]     default 100 1000 10000
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

MODEL = Path(__file__).resolve().parent.parent / "fixtures" / "nets" / "mlp.mge"
STEPS = ("pack", "load", "verify", "replay")


def step(what: str, path: str, count: int) -> None:
    """One measurement, printed as JSON."""
    import loadrun
    from loadrun.packing import Packer
    from loadrun.unpacking import mismatches

    start = time.perf_counter()
    if what == "pack":
        inputs = ({"data": np.full((8, 20), i / count, np.float32)} for i in range(count))
        Packer(loadrun.load(MODEL), replace=True, warn=print).pack(inputs, path)
    else:
        bundle = loadrun.load(path)
        if what == "verify":
            assert not any(mismatches(bundle))
        if what == "replay":
            passed = sum(r.verdict is loadrun.Verdict.PASS for r in loadrun.Runner(bundle).replay())
            assert passed == count
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "mib": peak}))


def main() -> None:
    """Measure and print a table."""
    counts = [int(a) for a in sys.argv[1:]] or [100, 1000, 10_000]
    print("| testcases | file MiB | " + " | ".join(f"{s} s | {s} peak MiB" for s in STEPS) + " |")
    print("|" + " --: |" * (2 + 2 * len(STEPS)))
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            path = Path(folder) / f"{count}.mge"
            cells = []
            for what in STEPS:
                command = [sys.executable, __file__, "--step", what, str(path), str(count)]
                ran = subprocess.run(command, check=True, capture_output=True, text=True)
                found = json.loads(ran.stdout)
                cells.append(f"{found['seconds']:.2f} | {found['mib']:.0f}")
            print(f"| {count} | {path.stat().st_size / 2**20:.1f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        step(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
