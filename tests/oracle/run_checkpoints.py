"""Run by the Python of real MegEngine: load each checkpoint and print what it holds."""

from __future__ import annotations

import json
import sys

import megengine as mge
import megengine.module as M
import numpy as np
from megengine.core.tensor.dtype import bfloat16


def about(value: object) -> object:
    """A value as JSON: class, dtype, quantization mark, shape and numbers of arrays."""
    if isinstance(value, mge.Tensor):
        return [type(value).__name__, about(value.numpy())]
    if isinstance(value, (np.ndarray, np.generic)):
        mark = dict(value.dtype.metadata or {}).get("mgb_dtype")
        kind = "bfloat16" if value.dtype == bfloat16 else value.dtype.str
        return [
            kind,
            mark,
            list(value.shape),
            np.asarray(value).ravel().astype(value.dtype if kind != "bfloat16" else "f4").tolist(),
        ]
    if isinstance(value, dict):
        return {str(k): about(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [about(v) for v in value]
    return value


for path in sys.argv[1:]:
    row: dict[str, object] = {"file": path}
    try:
        state = mge.load(path)
        row["state"] = about(state)
        if "linear.weight" in state:
            net = M.Sequential()
            net.linear, net.bn = M.Linear(3, 2), M.BatchNorm2d(2)
            net.load_state_dict(state)
            row["loaded"] = about(net.state_dict())
    except Exception as e:  # the test wants to know whatever it was
        row["error"] = f"{type(e).__name__}: {e}"
    print(json.dumps(row))
