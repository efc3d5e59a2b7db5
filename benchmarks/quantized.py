"""Quantized nets beside MegEngine's int8 kernels and ONNX Runtime's: the model without its checks, one thread.

  python benchmarks/quantized.py [MODEL.mge...] [--rounds 5] [--megengine PYTHON] [--onnxruntime PYTHON]

Every engine runs in a process of its own, in alternating rounds, on the first testcase's inputs. MegEngine gets the
model as a dump without checks, ONNX Runtime as loadrun exports it: QuantizeLinear and DequantizeLinear around
operators, which it fuses into its own integer operators (QLinearConv and others; the script says how many). What
counts is the least time of all calls by the clock: MegEngine hands its calls to a thread of its own, for which it
waits milliseconds where the machine is busy, and its processor time counts that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
NETS = ("quant_resnet_minmax", "quant_mobilenet_minmax", "quant_resnet_quint8")
CALLS = 200


def least(call: Callable[[], object]) -> float:
    """Least time of a call in milliseconds."""
    times = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e3


def loadrun_time(folder: Path) -> dict[str, float]:
    """The reference engine."""
    import loadrun

    runner = loadrun.Runner(loadrun.load(folder / "model.mge"))
    inputs = dict(np.load(folder / "inputs.npz"))
    return {"ms": least(lambda: runner.run(inputs))}


def onnxruntime_time(folder: Path) -> dict[str, float]:
    """ONNX Runtime, and how many of its operators compute with integers after its own optimization."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    inputs = dict(np.load(folder / "inputs.npz"))
    kinds = [n.op_type for n in onnx.load(folder / "optimized.onnx").graph.node]
    whole = sum("QLinear" in k or k.startswith(("QGemm", "MatMulInteger")) for k in kinds)
    return {"ms": least(lambda: session.run(None, inputs)), "integer": whole, "operators": len(kinds)}


def megengine_time(folder: Path) -> dict[str, float]:
    """MegEngine's Lite runtime."""
    from megenginelite import LiteNetwork

    net = LiteNetwork()
    net.load(str(folder / "model.mge"))
    for name, value in np.load(folder / "inputs.npz").items():
        net.get_io_tensor(name).set_data_by_copy(value)

    def forward() -> None:
        net.forward()
        net.wait()

    return {"ms": least(forward)}


WORKERS = {"loadrun": loadrun_time, "MegEngine": megengine_time, "ONNX Runtime": onnxruntime_time}


def prepare(model: str, folder: Path) -> None:
    """Write the model without checks, as a dump and as an ONNX model, and its inputs."""
    import loadrun
    from loadrun.onnx import export
    from loadrun.passes.constants import bare

    bundle = loadrun.load(model)
    graph = bare(bundle)
    inputs = {v.name or "": bundle.testcases[0].inputs[v.name or ""] for v in graph.inputs}
    for v in graph.inputs:
        v.owner.tensors[0].shape = inputs[v.name or ""].shape
    loadrun.save(graph, folder / "model.mge")
    export(graph, tuple(inputs.values()), folder / "model.onnx")
    np.savez(folder / "inputs.npz", **inputs)


def run(python: str, name: str, folder: Path) -> dict[str, float]:
    """One round of one engine."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [python, __file__, "--worker", name, str(folder)]
    done = subprocess.run(
        command,
        env={**os.environ, **one},
        capture_output=True,
        text=True,
        check=False,
    )
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            return dict(json.loads(line))
    raise SystemExit(f"{name}: {done.stderr.strip()[-500:] or 'no output'}")


def main() -> None:
    """Print a table of times and what they are of loadrun's."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = [str(ROOT / "fixtures" / "nets" / f"{n}.mge") for n in NETS]
    p.add_argument("models", nargs="*", default=default)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--megengine", default=os.environ.get("LOADRUN_ORACLE"), help="Python with MegEngine")
    p.add_argument("--onnxruntime", default=sys.executable, help="Python with onnx and ONNX Runtime")
    args = p.parse_args()
    pythons = {"loadrun": sys.executable, "ONNX Runtime": args.onnxruntime}
    if args.megengine:
        pythons["MegEngine"] = args.megengine
    print(
        f"| model | {' | '.join(f'{n} ms' for n in pythons)} | {' | '.join(f'of {n}' for n in list(pythons)[1:])} |"
    )
    print("| --- |" + " --: |" * (2 * len(pythons) - 1))
    notes = []
    for model in args.models:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            prepare(model, folder)
            found: dict[str, dict[str, float]] = {}
            for _ in range(args.rounds):
                for name, python in pythons.items():
                    one = run(python, name, folder)
                    if name not in found or one["ms"] < found[name]["ms"]:
                        found[name] = one
        ms = [found[n]["ms"] for n in pythons]
        ratios = " | ".join(f"{ms[0] / m:.2f}" for m in ms[1:])
        print(f"| {Path(model).stem} | {' | '.join(f'{m:.3f}' for m in ms)} | {ratios} |")
        own = found["ONNX Runtime"]
        notes.append(
            f"{Path(model).stem}: {own['integer']} of {own['operators']} are integer operators there"
        )
    print("ONNX Runtime: " + "; ".join(notes))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        # MegEngine prints to standard output as well.
        print(json.dumps(WORKERS[sys.argv[2]](Path(sys.argv[3]))), flush=True)
    else:
        main()
