"""What commands do grows with the number of operators and no faster, whatever the graph looks like.

Work is counted in lines that run, for each function, which is the same on every machine; benchmarks/growth.py has the
graphs, and measures time.
"""

from __future__ import annotations

import dis
import runpy
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.support.cases import slow_but

GROWTH = runpy.run_path(str(Path(__file__).resolve().parents[1] / "benchmarks" / "growth.py"))
SMALL, LARGE = 8, 24
STEPS = ("trace", "optimized dump", "info", "optimize", "run", "diff", "to onnx", "diff onnx", "from onnx")
LOOPS = {"FOR_ITER", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "POP_JUMP_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE"}
"""What bytecode of a loop has, in one version of Python or another."""
NEEDED = ("dump", "pack")
"""Commands whose files the others read."""


class Count:
    """How often a function's lines run, or it is called if it has no loops.

    Attributes:
        local: what Python calls for every line of such a function: one that has loops.
    """

    def __init__(self, code: CodeType) -> None:
        self.code, self.number, self.local = code, 0, None
        self.ours = "loadrun" in code.co_filename
        if self.ours and any(i.opname in LOOPS for i in dis.get_instructions(code)):
            self.local = self.line

    def line(self, frame: FrameType, event: str, arg: object) -> None:
        self.number += 1


COUNTS: dict[int, Count] = {}
"""Functions by identity, since hashes of them are slow."""


def lines(call: Callable[[], object]) -> Counter[CodeType]:
    """How many lines run in each function of loadrun's that has loops, and how often each other is called."""

    def called(frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        count = COUNTS.get(id(code)) or COUNTS.setdefault(id(code), Count(code))
        count.number += 1
        return count.local

    for count in COUNTS.values():
        count.number = 0
    before = sys.gettrace()
    sys.settrace(called)
    try:
        call()
    finally:
        sys.settrace(before)
    return Counter({c.code: c.number for c in COUNTS.values() if c.ours and c.number})


def work(
    net: str, operators: int, folder: Path, count: Callable[[Callable[[], object]], Any] = lines
) -> dict[str, Counter[CodeType]]:
    found = {}
    for step, call in GROWTH["Timer"](GROWTH["NETS"][net], operators, folder).steps():
        if step in STEPS:
            found[step] = count(call)
        elif step in NEEDED:
            call()
    return found


@pytest.mark.parametrize("net", slow_but(["chain"], GROWTH["NETS"]))
@pytest.mark.filterwarnings("ignore")
def test_no_function_runs_more_often_than_the_graph_is_larger(net: str, tmp_path: Path) -> None:
    # What happens once is done with the first.
    work(net, 4, tmp_path, lambda call: call())
    small, large = (work(net, n, tmp_path) for n in (SMALL, LARGE))
    assert set(large) == set(STEPS)
    faster = [
        f"{step}: {code.co_name} of {code.co_filename}, {small[step][code]} and {count} lines"
        for step, found in large.items()
        for code, count in found.items()
        # A square would be 9 times as much; what only large graphs have is a few lines.
        if count > 1.3 * LARGE / SMALL * small[step][code] + 4 * LARGE
    ]
    assert faster == []
