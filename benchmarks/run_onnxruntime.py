"""One round of ONNX Runtime: run_onnxruntime.py MODEL ITERATIONS WARMUP THREADS; prints a JSON line.

An .onnx model is run as it is; a .mge file is converted first.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from pathlib import Path

import onnxruntime
from timing import timed

import loadrun


def main() -> None:
    """Time the model, then compare its outputs with the first testcase."""
    path, iterations, warmup, threads = sys.argv[1], *map(int, sys.argv[2:5])
    bundle = loadrun.load(path)
    testcase = bundle.testcases[0] if len(bundle.testcases) else None
    feeds = loadrun.random_inputs(bundle) if testcase is None else testcase.inputs
    with tempfile.TemporaryDirectory() as folder:
        model = path if path.endswith(".onnx") else str(Path(folder) / "model.onnx")
        if model != path:
            loadrun.convert_file(path, model)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    found = timed(lambda: session.run(None, feeds), iterations, warmup)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    expects = {} if testcase is None else testcase.expects
    errors = [float(loadrun.compare.assert_equal_error(e, outputs[n])) for n, e in expects.items()]
    print(json.dumps({**found, "peak_mib": peak, **({"max_error": max(errors)} if errors else {})}))


if __name__ == "__main__":
    main()
