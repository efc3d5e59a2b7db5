"""What commands do grows with the number of operators and no faster, whatever the graph looks like.

Work is counted in lines that run, for each function, which is the same on every machine; benchmarks/growth.py has the
graphs, and measures time.
"""

from __future__ import annotations

import runpy
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

GROWTH = runpy.run_path(str(Path(__file__).resolve().parents[1] / "benchmarks" / "growth.py"))
SMALL, LARGE = 20, 80
STEPS = ("trace", "optimized dump", "info", "optimize", "run", "diff", "to onnx", "from onnx")
NEEDED = ("dump", "pack")
"""Commands whose files the others read."""


def lines(call: Callable[[], object]) -> Counter[CodeType]:
    """How many lines run in each function of loadrun's."""
    found: Counter[CodeType] = Counter()

    def local(frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            found[frame.f_code] += 1
        return local

    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: local if "loadrun" in frame.f_code.co_filename else None)
    try:
        call()
    finally:
        sys.settrace(before)
    return found


def work(net: str, operators: int, folder: Path) -> dict[str, Counter[CodeType]]:
    found = {}
    for step, call in GROWTH["Timer"](GROWTH["NETS"][net], operators, folder).steps():
        if step in STEPS:
            found[step] = lines(call)
        elif step in NEEDED:
            call()
    return found


@pytest.mark.parametrize("net", GROWTH["NETS"])
@pytest.mark.filterwarnings("ignore")
def test_no_function_runs_more_often_than_the_graph_is_larger(net: str, tmp_path: Path) -> None:
    # What happens once is done with the first.
    _, small, large = (work(net, n, tmp_path) for n in (8, SMALL, LARGE))
    assert set(large) == set(STEPS)
    faster = [
        f"{step}: {code.co_name} of {code.co_filename}, {small[step][code]} and {count} lines"
        for step, found in large.items()
        for code, count in found.items()
        # A square would be 16 times as much; what only large graphs have is a few lines.
        if count > 1.3 * LARGE / SMALL * small[step][code] + 4 * LARGE
    ]
    assert faster == []
