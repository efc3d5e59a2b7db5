"""Does an engine take longer beside others than alone? Ratios of the same engine's medians, which must stay below 1.1.

  python benchmarks/company.py MODEL.mge... [--engines reference,onnxruntime,torch] [--seconds 3] [--threads 2]

Each engine is measured alone, then in the company of all others by the rounds of `loadrun bench`. On a busy machine
both figures are noise: the load is printed, and the exit code is 1 when an engine is slower in company.
"""

from __future__ import annotations

import argparse
import os
import sys

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
    args = p.parse_args()
    rows, late = [], False
    for model in args.models:
        subjects = [Subject(model, engine, args.threads) for engine in args.engines.split(",")]
        together, _ = run_subjects(subjects, seconds=args.seconds)
        for subject, beside in zip(subjects, together, strict=True):
            (alone,), _ = run_subjects([subject], seconds=args.seconds)
            ratio = beside.timing.median / alone.timing.median
            late |= ratio > LIMIT
            times = (f"{m.timing.median * 1e3:.3f}" for m in (alone, beside))
            rows.append((os.path.basename(model), subject.engine, *times, f"{ratio:.2f}"))
    if hasattr(os, "getloadavg"):
        print(f"load: {os.getloadavg()[0]:.1f}")
    print(tabulate(rows, ("model", "engine", "alone ms", "in company ms", "ratio"), disable_numparse=True))
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
