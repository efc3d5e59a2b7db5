"""The file that ONNX Runtime's profiler writes, read."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..engines.executed import Executed

_SUFFIX = "_kernel_time"
_SIZES = ("activation_size", "parameter_size", "output_size")


def profiled_nodes(data: bytes) -> list[Executed]:
    """Return the operators of the last run in a profile.

    Args:
        data: the file: a list of Chrome's trace events, of all runs of a session.

    >>> node = {"cat": "Node", "name": "/fc_kernel_time", "ts": 7, "dur": 2, "tid": 1,
    ...         "args": {"op_name": "Gemm", "output_type_shape": [{"float": [1, 10]}], "output_size": "40"}}
    >>> run = {"cat": "Session", "name": "model_run", "ts": 5, "dur": 9}
    >>> profiled_nodes(json.dumps([node | {"ts": 1}, node, run]).encode())[0][:4]
    ('/fc', 'Gemm', 2e-06, 2e-06)
    """
    events: Sequence[Mapping[str, Any]] = json.loads(data)
    runs = [e for e in events if e.get("name") == "model_run"]
    if not runs:
        return []
    began = runs[-1]["ts"]
    nodes = [e for e in events if e.get("cat") == "Node" and e["ts"] >= began and e["name"].endswith(_SUFFIX)]
    return [_executed(e, began) for e in sorted(nodes, key=lambda e: e["ts"])]


def _executed(event: Mapping[str, Any], began: float) -> Executed:
    args = event["args"]
    return Executed(
        event["name"].removesuffix(_SUFFIX),
        args.get("op_name", ""),
        (event["ts"] - began) * 1e-6,
        event["dur"] * 1e-6,
        f"thread {event.get('tid', 0)}",
        _shapes(args.get("input_type_shape", ())),
        _shapes(args.get("output_type_shape", ())),
        sum(int(args.get(k) or 0) for k in _SIZES),
    )


def _shapes(said: Sequence[Mapping[str, Sequence[int]]]) -> list[Sequence[int]]:
    return [shape for each in said for shape in each.values()]
