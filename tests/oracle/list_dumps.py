"""Asks MegEngine what its ``trace.dump`` calls the outputs of small functions, and what it counts.

Run by a Python that has MegEngine 1.13: ``python tests/oracle/list_dumps.py tests/data/dump_names.json``. It reads the
functions (``source`` of ``x`` with ``shape``) from the file and writes beside them what was found:

- ``outputs``: their names without `optimize_for_inference`, and whether they are the ``same`` with it, else which
  ``optimized`` ones those are;
- ``operators``, ``tensor_value_bytes``: DumpResult's counts without optimization.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import megengine.functional as F
import numpy as np
from megengine import Tensor
from megengine.core.tensor import dtype as D
from megengine.jit import trace


def ask(source: str, shape: list[int]) -> dict[str, object]:
    function = eval(f"lambda x: {source}", {"F": F, "D": D, "T": Tensor, "np": np})
    found = {}
    for optimize in (False, True):
        traced = trace(function, symbolic=True, capture_as_const=True)
        traced(Tensor(np.arange(np.prod(shape), dtype="float32").reshape(shape) % 7 + 1))
        found[optimize] = traced.dump(io.BytesIO(), optimize_for_inference=optimize)
    plain = found[False]
    return {
        "outputs": plain.outputs,
        "same": found[True].outputs == plain.outputs,
        **({} if found[True].outputs == plain.outputs else {"optimized": found[True].outputs}),
        "operators": plain.nr_opr,
        "tensor_value_bytes": plain.tensor_value_bytes,
    }


if __name__ == "__main__":
    path = Path(sys.argv[1])
    cases = json.loads(path.read_text())
    for case in cases:
        case.update(ask(case["source"], case["shape"]))
    path.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
