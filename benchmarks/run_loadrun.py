"""One round of loadrun: run_loadrun.py MODEL ITERATIONS WARMUP THREADS [ENGINE]; prints a JSON line."""

from __future__ import annotations

import json
import resource
import sys

from timing import timed

import loadrun
from loadrun.ops.numeric.parallel import set_threads


def main() -> None:
    """Time the model without its checks, then replay its testcase if it has one."""
    path, iterations, warmup, threads = sys.argv[1], *map(int, sys.argv[2:5])
    engine = sys.argv[5] if len(sys.argv) > 5 else "reference"
    set_threads(threads)
    bundle = loadrun.load(path)
    runner = loadrun.Runner(bundle, engine)
    has_testcases = len(bundle.testcases) > 0
    inputs = bundle.testcases[0].inputs if has_testcases else loadrun.random_inputs(bundle)
    found = timed(lambda: runner.run(inputs), iterations, warmup)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    outputs = runner.replay_one(0).outputs if has_testcases else ()
    errors = [o.error for o in outputs if o.error is not None]
    print(json.dumps({**found, "peak_mib": peak, **({"max_error": max(errors)} if errors else {})}))


if __name__ == "__main__":
    main()
