"""loadrun beside all engines that are installed: the same models, the same inputs, interleaved rounds.

  python benchmarks/run.py MODEL.mge... [--threads 2] [--iter 10] [--rounds 3] [--megengine PYTHON] [--json FILE]

Models come from `benchmarks/make_models.py FOLDER`, run with the Python of a MegEngine installation (scripts/oracle.sh
makes one). Every engine runs in a process of its own; rounds alternate between the engines, because a machine's
clock drifts. What counts is the ratio of medians within one run, not the milliseconds. Times by the clock are those of
`--threads` threads; processor time is that of one thread, from rounds of its own, and bears a busy machine better.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tabulate import tabulate

from loadrun.verify.bench.environment import environment

HERE = Path(__file__).resolve().parent


def worker(command: list[str], environment: dict[str, str], threads: int) -> dict[str, Any]:
    """One round of one engine; {"error": ...} when it cannot run."""
    pinned = {
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
    }
    done = subprocess.run(
        command, env={**os.environ, **pinned, **environment}, capture_output=True, text=True, check=False
    )
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            return dict(json.loads(line))
    return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}


def engines(
    model: str, args: argparse.Namespace, threads: int
) -> dict[str, tuple[list[str], dict[str, str]]]:
    """The command and environment of every engine that is installed."""
    numbers = [str(args.iter), str(args.warmup), str(threads)]
    found = {"loadrun": ([sys.executable, str(HERE / "run_loadrun.py"), model, *numbers], {})}
    if find_spec("numba") is not None:
        found["loadrun, numba"] = ([*found["loadrun"][0], "numba"], {})
    if args.megengine and not model.endswith(".onnx"):
        command = [args.megengine, str(HERE / "run_megengine.py"), model, *numbers]
        found["MegEngine"] = (command, {})
        # On AMD processors MKL takes its slow path unless told otherwise; both bars are shown.
        if args.tuned:
            found["MegEngine, tuned"] = ([*command, "tuned"], {})
        found["MegEngine, MKL fast path"] = (command, {"MKL_DEBUG_CPU_TYPE": "7"})
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        pass
    else:
        found["ONNX Runtime"] = ([sys.executable, str(HERE / "run_onnxruntime.py"), model, *numbers], {})
    if find_spec("openvino") is not None:
        found["OpenVINO, float32"] = ([*found["loadrun"][0], "openvino"], {})
    return found


def measure(model: str, args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """All engines on one model, alternating."""
    total: dict[str, dict[str, Any]] = {}
    for _ in range(args.rounds):
        for threads, kind in ((1, "processor"), (args.threads, "samples")):
            for name, (command, extra) in engines(model, args, threads).items():
                row = worker(command, extra, threads)
                entry = total.setdefault(name, {"samples": [], "processor": []})
                entry[kind] += row.pop(kind, [])
                entry.update({k: v for k, v in row.items() if k not in ("samples", "processor")})
    return total


def machine(threads: int) -> dict[str, Any]:
    """What figures depend on: those of different processors and BLAS cores are not to be compared."""
    about = environment()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "processor": about["processor"],
        "numpy": about["numpy"],
        "blas": f"{about['blas']['name']} {about['blas']['version']}, core {blas_core() or 'unknown'}",
        "OPENBLAS_CORETYPE": os.environ.get("OPENBLAS_CORETYPE", "not set"),
        "threads": threads,
        "load": load,
    }


def blas_core() -> str | None:
    """The kind of processor whose kernels numpy's OpenBLAS has chosen, None where it does not tell."""
    root = Path(np.__file__).resolve().parent
    for place in (root.parent / "numpy.libs", root / ".libs", root / ".dylibs"):
        for path in sorted(place.glob("*openblas*")):
            library = ctypes.CDLL(str(path))
            for name in (
                "scipy_openblas_get_corename64_",
                "scipy_openblas_get_corename",
                "openblas_get_corename",
            ):
                found = getattr(library, name, None)
                if found is not None:
                    found.restype = ctypes.c_char_p
                    return str(found().decode())
    return None


def main() -> int:
    """Measure and print a table per model."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--iter", type=int, default=10)
    p.add_argument("--warmup", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument(
        "--megengine", default=os.environ.get("LOADRUN_ORACLE"), help="Python with MegEngine installed"
    )
    p.add_argument(
        "--tuned", action="store_true", help="MegEngine at its best too: minutes of profiling a round"
    )
    p.add_argument("--json")
    args = p.parse_args()
    about = machine(args.threads)
    print("\n".join(f"{k}: {v}" for k, v in about.items()))
    everything: dict[str, Any] = {**about, "models": {}}
    for model in args.models:
        found = measure(model, args)
        everything["models"][Path(model).stem] = found
        print(f"\n{Path(model).stem}, {args.threads} threads")
        print(table(found))
    if args.json:
        Path(args.json).write_text(json.dumps(everything, indent=1))
    return 0


def table(found: dict[str, dict[str, Any]]) -> str:
    """Medians, their ratios to loadrun's, and peak memory."""
    ours = {k: median(found["loadrun"][k] or [float("nan")]) for k in ("samples", "processor")}
    rows = []
    for name, row in found.items():
        if not row["samples"] or not row["processor"]:
            rows.append([name, row.get("error", "failed"), *[""] * 6])
            continue
        mid, alone = median(row["samples"]), median(row["processor"])
        rows.append(
            [
                name,
                f"{mid * 1e3:.1f}",
                f"{min(row['samples']) * 1e3:.1f}",
                f"{ours['samples'] / mid:.2f}",
                f"{alone * 1e3:.1f}",
                f"{ours['processor'] / alone:.2f}",
                f"{row['peak_mib']:.0f}",
                f"{row['max_error']:.2g}" if "max_error" in row else "",
            ]
        )
    return tabulate(
        rows,
        [
            "engine",
            "median ms",
            "min ms",
            "loadrun takes x of it",
            "one thread, processor ms",
            "x of it",
            "peak MiB",
            "max error",
        ],
        disable_numparse=True,
    )


if __name__ == "__main__":
    sys.exit(main())
