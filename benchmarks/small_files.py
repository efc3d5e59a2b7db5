"""Replaying folders of small files: processor time of one command, and its shares, over copies of one dump.

python benchmarks/small_files.py [COPIES]     default 300, of three testcases with batch sizes of their own
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
import time
from pathlib import Path

MODEL = Path(__file__).resolve().parent.parent / "fixtures" / "nets" / "resnet_basic.mge"


def seconds(what: object, *args: object) -> float:
    """Processor time of a call."""
    start = time.process_time()
    what(*args)  # type: ignore[operator]
    return time.process_time() - start


def main() -> None:
    """Measure and print a table."""
    import loadrun
    from loadrun.cli import main as command

    copies = int(sys.argv[1]) if sys.argv[1:] else 300

    def read(folder: str) -> None:
        for file in Path(folder).iterdir():
            list(loadrun.load(file).testcases)

    def replay(folder: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            assert command([folder, "--quiet"]) == 0

    with tempfile.TemporaryDirectory() as folder:
        for i in range(copies):
            shutil.copy(MODEL, Path(folder) / f"{i:03}.mge")
        replay(str(MODEL))
        found = {"load": seconds(read, folder), "replay": seconds(replay, folder)}
    print("| step | seconds | milliseconds a file |\n| --- | --: | --: |")
    for step, taken in found.items():
        print(f"| {step} | {taken:.2f} | {taken / copies * 1000:.1f} |")


if __name__ == "__main__":
    main()
