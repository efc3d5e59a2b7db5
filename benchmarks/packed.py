"""A .mge packed of an ONNX file beside the same net written in MegEngine: MegEngine's time, one thread, least of all.

    python benchmarks/make_models.py NATIVE                              # with a Python that has MegEngine
    python benchmarks/packed.py NET.onnx [...] --native NATIVE --megengine PYTHON [--rounds 3]

NET.onnx is a net as exporters write it, NATIVE/NET.mge its like. Both run in alternating rounds: as a user gets
MegEngine, and with ``MKL_DEBUG_CPU_TYPE=7``, which gives AMD processors the path of MKL that Intel's have.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import loadrun

WORKER = Path(__file__).with_name("run_megengine.py")
ONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
WAYS: dict[str, dict[str, str]] = {"default": {}, "MKL's fast path": {"MKL_DEBUG_CPU_TYPE": "7"}}


def pack(source: Path, target: Path) -> None:
    """Write the .mge with one testcase of random inputs; what is whole is an id."""
    inputs = loadrun.random_inputs(loadrun.load(source))
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "inputs.npz", **inputs)
        loadrun.pack_file(source, target, loadrun.PackOptions(input_data=(f"{folder}/inputs.npz",)))


def least(python: str, model: Path, calls: int, env: dict[str, str]) -> float:
    """Return the least time of a call in milliseconds."""
    done = subprocess.run(
        [python, str(WORKER), str(model), str(calls), "3", "1"],
        env={**os.environ, **ONE, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return min(json.loads(done.stdout.splitlines()[-1])["samples"]) * 1e3


def row(source: Path, native: Path, python: str, rounds: int, calls: int) -> str:
    """Return a line of the table."""
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "model.mge"
        pack(source, packed)
        for env in WAYS.values():
            turns = [[least(python, m, calls, env) for m in (packed, native)] for _ in range(rounds)]
            own, other = map(min, zip(*turns, strict=True))
            cells += [f"{own:.1f}", f"{other:.1f}", f"{own / other:.2f}"]
    return f"| {source.stem} | {' | '.join(cells)} |"


def main() -> None:
    """Print a table of times and ratios."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+", type=Path)
    p.add_argument("--native", type=Path, required=True)
    p.add_argument("--megengine", default=os.environ.get("LOADRUN_ORACLE"), help="Python with MegEngine")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--calls", type=int, default=20)
    args = p.parse_args()
    print("| model |" + "".join(f" packed ms, {way} | native ms | ratio |" for way in WAYS))
    print("| --- |" + " --: |" * (3 * len(WAYS)))
    for source in args.models:
        native = args.native / f"{source.stem}.mge"
        print(row(source, native, args.megengine, args.rounds, args.calls), flush=True)


if __name__ == "__main__":
    main()
