"""A .mge packed of an ONNX file beside the same net written in MegEngine: MegEngine's time, one thread, least of all.

    python benchmarks/make_models.py NATIVE                              # with a Python that has MegEngine
    python benchmarks/packed.py NET.onnx [...] --native NATIVE --megengine PYTHON [--calls 60]

NET.onnx is a net as exporters write it, NATIVE/NET.mge its like. Both run without checks, in turns, in one process: as
a user gets MegEngine, and with ``MKL_DEBUG_CPU_TYPE=7``, which gives AMD processors the path of MKL that Intel's have.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

WAYS: dict[str, dict[str, str]] = {"default": {}, "MKL's fast path": {"MKL_DEBUG_CPU_TYPE": "7"}}


def bare(source: Path, target: Path) -> None:
    """Write a model as a dump without checks, at the sizes of random inputs."""
    import loadrun
    from loadrun.passes.constants import bare

    bundle = loadrun.load(source)
    lasting = bundle.lasting([loadrun.random_inputs(bundle)])
    loadrun.save(bare(lasting), target)


def loaded(model: str) -> Any:
    """Return a network of MegEngine's Lite runtime, with numbers in all of its inputs."""
    from megenginelite import LiteNetwork

    net = LiteNetwork()
    net.load(model)
    for name in net.get_all_input_name():
        tensor = net.get_io_tensor(name)
        like = tensor.to_numpy()
        # Below 1, so that integers are 0: ids.
        tensor.set_data_by_copy(np.random.default_rng(0).uniform(0.5, 1, like.shape).astype(like.dtype))
    return net


def least(models: list[str], calls: int) -> list[float]:
    """Return the least time of a call of every model in milliseconds."""
    nets = [loaded(m) for m in models]
    times: list[list[float]] = [[] for _ in nets]
    for _ in range(calls):
        for net, found in zip(nets, times):  # noqa: B905 - MegEngine's Python may be an old one
            start = time.perf_counter()
            net.forward()
            net.wait()
            found.append(time.perf_counter() - start)
    return [min(found) * 1e3 for found in times]


def row(source: Path, native: Path, python: str, calls: int) -> str:
    """Return a line of the table."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        models = [str(Path(folder) / n) for n in ("packed.mge", "native.mge")]
        bare(source, Path(models[0]))
        bare(native, Path(models[1]))
        for env in WAYS.values():
            command = [python, __file__, "--worker", *models, "--calls", str(calls)]
            done = subprocess.run(
                command, env={**os.environ, **one, **env}, capture_output=True, text=True, check=True
            )
            own, other = json.loads(done.stdout.splitlines()[-1])
            cells += [f"{own:.1f}", f"{other:.1f}", f"{own / other:.2f}"]
    return f"| {source.stem} | {' | '.join(cells)} |"


def main() -> None:
    """Print a table of times and ratios."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+", type=Path)
    p.add_argument("--native", type=Path)
    p.add_argument("--megengine", default=os.environ.get("LOADRUN_ORACLE"), help="Python with MegEngine")
    p.add_argument("--calls", type=int, default=60)
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.worker:
        print(json.dumps(least([str(m) for m in args.models], args.calls)), flush=True)
        return
    if args.native is None or not args.megengine:
        sys.exit("--native and --megengine are needed")
    print("| model |" + "".join(f" packed ms, {way} | native ms | ratio |" for way in WAYS))
    print("| --- |" + " --: |" * (3 * len(WAYS)))
    for source in args.models:
        print(row(source, args.native / f"{source.stem}.mge", args.megengine, args.calls), flush=True)


if __name__ == "__main__":
    main()
