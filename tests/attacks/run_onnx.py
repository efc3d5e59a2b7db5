"""ONNX attacks, each read and described in a child of its own, whose memory is limited."""

from __future__ import annotations

import resource
import time
import warnings
from typing import Any

from tests.attacks.onnx_attacks import ATTACKS
from tests.attacks.run import serve, status

SPACE = 6_000_000 * 1024
"""Bytes of address space."""


def attacked(name: str) -> dict[str, Any]:
    """Describe one file as `loadrun info` does."""
    from loadrun.base.errors import LoadRunError
    from loadrun.dump import loads
    from loadrun.verify.describe import describe

    data = ATTACKS[name]()
    resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
    warnings.simplefilter("error")
    before, start = status("VmRSS"), time.process_time()
    try:
        found = describe(loads(data))
        end, text = "loaded", "; ".join([*found.warnings, *found.problems])
    except LoadRunError as e:
        end, text = "refused", str(e)
    seconds, peak = time.process_time() - start, max(status("VmHWM") - before, 0)
    return {"end": end, "text": text[:2000], "seconds": seconds, "peak": peak, "size": len(data)}


if __name__ == "__main__":
    from loadrun.dump import loads
    from loadrun.verify.describe import describe
    from tests.onnx.wire_models import graph, node

    # What the first model imports is not counted.
    describe(loads(graph(node("Neg", ["x"], ["y"]))))
    serve(attacked)
