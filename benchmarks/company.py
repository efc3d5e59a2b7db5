"""Does an engine take longer beside others than alone? Ratios of the same engine's medians, which must stay below 1.1.

  python benchmarks/company.py MODEL.mge... [--engines reference,onnxruntime] [--seconds 3] [--threads 2] [--turns 5]

Each engine is measured alone and in the company of all others, by the rounds of `loadrun bench`, in turns, so that a
machine whose own speed changes changes both; the ratio is the median of the turns. On a busy machine all are noise: the
load is printed. The exit code is 1 when an engine is slower in company.
"""

from __future__ import annotations

import argparse
import os
import sys

import numpy as np
from tabulate import tabulate

from loadrun.verify.bench.running import Subject, run_subjects

LIMIT = 1.1


def main() -> int:
    """Measure and print a table."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+")
    p.add_argument("--engines", default="reference,onnxruntime")
    p.add_argument("--seconds", type=float, default=3.0)
    p.add_argument("--threads", type=int)
    p.add_argument("--turns", type=int, default=5)
    args = p.parse_args()
    rows, late = [], False
    for model in args.models:
        subjects = [Subject(model, engine, args.threads) for engine in args.engines.split(",")]
        alone, beside = np.empty((2, args.turns, len(subjects)))
        for turn in range(args.turns):
            for i, subject in enumerate(subjects):
                (one,) = run_subjects([subject], seconds=args.seconds)
                alone[turn, i] = one.timing.median
            together = run_subjects(subjects, seconds=args.seconds)
            beside[turn] = [m.timing.median for m in together]
        for i, ratio in enumerate(np.median(beside / alone, axis=0)):
            late |= bool(ratio > LIMIT)
            times = (f"{np.median(t[:, i]) * 1e3:.3f}" for t in (alone, beside))
            rows.append((os.path.basename(model), subjects[i].engine, *times, f"{ratio:.2f}"))
    if hasattr(os, "getloadavg"):
        print(f"load: {os.getloadavg()[0]:.1f}")
    print(tabulate(rows, ("model", "engine", "alone ms", "in company ms", "ratio"), disable_numparse=True))
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
