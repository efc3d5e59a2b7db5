"""Packing, loading, verifying and replaying files of many testcases: processor time and memory, in fresh processes.

Verifying and replaying are the commands, with a JSON report. Memory is the private memory of the process, the highest
of samples every few milliseconds. The pages of the mapped file, which the system takes back when it needs them, are not
in it.

python benchmarks/many_testcases.py [COUNT...]     default 100 1000 10000
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

MODEL = Path(__file__).resolve().parent.parent / "fixtures" / "nets" / "mlp.mge"
STEPS = ("pack", "load", "replay")


class Peak:
    """Samples the private memory of this process."""

    def __init__(self) -> None:
        self.mib = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.003):
            self._sample()

    def _sample(self) -> None:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                self.mib = max(self.mib, int(line.split()[1]) / 1024)

    def end(self) -> float:
        """The highest sample in MiB."""
        self._ended.set()
        self._thread.join()
        self._sample()
        return self.mib


def step(what: str, path: str, count: int) -> None:
    """One measurement, printed as JSON."""
    import loadrun
    from loadrun.cli import main as command
    from loadrun.verify.pack.options import PackOptions
    from loadrun.verify.pack.packing import Packer

    peak = Peak()
    start = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        if what == "pack":
            inputs = ({"data": np.full((8, 20), i / count, np.float32)} for i in range(count))
            Packer(loadrun.load(MODEL), PackOptions(replace=True), warn=print).pack(inputs, path)
        elif what == "load":
            assert len(loadrun.load(path).testcases) == count
        else:
            assert command([path, "--quiet", "--json", f"{path}.json"]) == 0
    print(json.dumps({"seconds": time.process_time() - start, "mib": peak.end()}))


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
