"""How the time of every command grows with the number of operators, for graphs of several shapes.

    OMP_NUM_THREADS=1 python benchmarks/growth.py [--sizes 1000,4000,16000] [--nets chain,fan] [--commands dump,diff]

Each command runs in this process, on tensors so small that only operators count. Times are seconds of processor time,
the least of all repetitions; the exponent says how the time grew from one size to the next: 1 is linear, 2 is
quadratic. With --most the exit code is 1 where that from the first size to the last is above it.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import io
import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import loadrun
import loadrun.megengine.functional as F
from loadrun.cli import main as command
from loadrun.tracing import trace

Net = Callable[[Any, Any, int], Any]
"""A function of a namespace (sin, concat, relu), its input of shape (4, 6) and the number of operators."""


def chain(f: Any, x: Any, n: int) -> Any:
    """Operators of one variable behind each other."""
    for i in range(0, n, 4):
        x = f.relu(f.sin(x) * (0.5 + i % 7) + 0.25)
    return x


def product(f: Any, x: Any, n: int) -> Any:
    """One long product."""
    root = f.sqrt(f.abs(x) + 1)
    for i in range(n):
        root = root * (f.sin(x) if i % 2 else f.cos(x))
    return root


def skip(f: Any, x: Any, n: int) -> Any:
    """Residual blocks, every other one with a step."""
    for i in range(0, n, 8):
        x = x + f.relu(x * (0.1 + i % 3) - 0.25)
        x = x - f.floor(x * 0.5) * 2
    return x


def shape(f: Any, x: Any, n: int) -> Any:
    """Arithmetic between changes of shape that follow the input's batch."""
    for i in range(0, n, 8):
        x = (x * (1 + i % 3) + 0.25).reshape(x.shape[0], 3, 2)
        x = (x * 0.5).reshape(x.shape[0], 6)
    return f.floor(x)


def fan(f: Any, x: Any, n: int) -> Any:
    """Many readers of one variable, summed."""
    total = x
    for i in range(0, n, 3):
        total = total + f.sin(x * (0.001 * i + 1))
    return total


def concat(f: Any, x: Any, n: int) -> Any:
    """Slices joined in another order, and all of them joined at the end."""
    parts = []
    for _ in range(0, n, 4):
        x = f.concat([x[:, 2:], x[:, :2]], 1) * 0.5
        parts.append(x)
    return f.concat(parts, 1)


def sizes(f: Any, x: Any, n: int) -> Any:
    """Arithmetic with sizes alone, which one change of shape reads in the end."""
    size = x.shape[0]
    for i in range(0, n, 2):
        size = size * 3 // 3 if i % 4 else size + 1 - 1
    return f.relu(x.reshape(size, 6))


def outputs(f: Any, x: Any, n: int) -> Any:
    """As many outputs as operators."""
    return tuple(f.relu(x * (0.5 + i)) for i in range(0, n, 2))


def wide(f: Any, x: Any, n: int) -> Any:
    """One operator with many inputs."""
    return f.concat([x] * n, 1)


def parts(f: Any, x: Any, n: int) -> Any:
    """Rows and columns taken out and put back."""
    for i in range(0, n, 4):
        x = f.concat([x[:1] * 0.5, x[1:]], 0) if i % 8 else f.stack([x[j] for j in range(4)], 0)
    return x


def reads(f: Any, x: Any, n: int) -> Any:
    """One variable that every second operator reads, at the end of a chain too."""
    first = f.sin(x)
    for _ in range(0, n, 2):
        x = f.cos(x) * first
    return x


NETS: dict[str, Net] = {
    n.__name__: n for n in (chain, product, skip, shape, fan, concat, sizes, outputs, wide, parts, reads)
}
_NEEDED = ("trace", "dump", "pack", "to onnx")
"""Commands that make what others need."""
_X = np.linspace(-0.75, 0.875, 24, dtype=np.float32).reshape(4, 6)


class Timer:
    """Times the commands on one net of one size; files that one makes are what the next reads."""

    def __init__(self, net: Net, operators: int, folder: Path) -> None:
        self.net, self.operators = net, operators
        self.bare, self.packed = str(folder / "bare.mge"), str(folder / "packed.mge")
        self.page, self.report = str(folder / "page.html"), str(folder / "report.json")
        self.onnx, self.other = str(folder / "net.onnx"), str(folder / "other.mge")

    def steps(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """The commands by name, in an order in which each finds the files that it needs."""
        x = loadrun.tensor(_X)
        traced = trace(self._function, symbolic=True, capture_as_const=True)
        data = ["-d", "#rand(0,1)"]
        yield "trace", lambda: traced(x) if traced.recording is None else self._traced(x)
        yield "dump", lambda: traced.dump(self.bare, input_data=["#rand(0,1)"], optimize_for_inference=False)
        yield "optimized dump", lambda: traced.dump(self.bare, input_data=["#rand(0,1)"])
        yield "plain dump", lambda: traced.dump(self.bare, optimize_for_inference=False)
        yield "load", lambda: loadrun.load(self.bare)
        yield "info", lambda: ran("info", self.bare)
        yield "pack", lambda: ran("pack", self.bare, "-o", self.packed, *data)
        yield "optimize", lambda: ran("pack", self.bare, "-o", self.other, "--optimize-for-inference", *data)
        yield "run", lambda: ran("run", self.packed)
        yield "diff", lambda: ran("diff", self.packed, "--against", self.packed)
        yield "audit", lambda: ran("audit", self.packed, "--mutants", "2")
        yield "graph", lambda: ran("info", self.packed, "--graph", self.page)
        yield (
            "reduce",
            lambda: ran("reduce", self.packed, "-o", self.other, "--fails", "false", "--runs", "2"),
        )
        yield "report", lambda: ran("run", self.packed, "--html", self.page, "--json", self.report)
        # With a fixed batch no arithmetic with sizes would be left, and torch folds it in any case.
        batch = ["--dynamic", "arg_0:0=batch"] if self.net is sizes else []
        yield "to onnx", lambda: ran("convert", self.packed, self.onnx, *batch)
        yield "diff onnx", lambda: ran("diff", self.packed, self.onnx)
        yield "from onnx", lambda: ran("convert", self.onnx, self.other)
        if importlib.util.find_spec("torch") and self.net is not sizes:
            yield "torch.trace", self._torch

    def _function(self, x: loadrun.Tensor) -> Any:
        return self.net(F, x * loadrun.tensor(_X[0]), self.operators)

    def _traced(self, x: loadrun.Tensor) -> object:
        return trace(self._function, symbolic=True, capture_as_const=True)(x)

    def _torch(self) -> object:
        import torch  # optional

        class Module(torch.nn.Module):
            def forward(module, x: torch.Tensor) -> torch.Tensor:
                return self.net(torch, x, self.operators)

        return loadrun.torch.trace(Module(), (torch.from_numpy(_X),))


def ran(*argv: str) -> None:
    """Run a command of loadrun's in this process, its output dropped."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        code = command(list(argv))
    if code not in (0, 1):
        raise SystemExit(f"{' '.join(argv)}: {told.getvalue()}")


def seconds(call: Callable[[], object], repeat: int) -> float:
    """The least processor time of some calls."""
    found = []
    for _ in range(repeat):
        gc.collect()
        gc.freeze()
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sizes", default="1000,4000")
    p.add_argument("--nets", default=",".join(NETS))
    p.add_argument("--commands", default="", help="those whose names hold one of these texts")
    p.add_argument("--repeat", type=int, default=1)
    p.add_argument("--most", type=float, default=math.inf)
    args = p.parse_args()
    sizes = [int(n) for n in args.sizes.split(",")]
    worst = 0.0
    for name in args.nets.split(","):
        times: dict[str, list[float]] = {}
        for size in (100, *sizes):
            with tempfile.TemporaryDirectory() as folder:
                for step, call in Timer(NETS[name], size, Path(folder)).steps():
                    wanted = any(part in step for part in args.commands.split(","))
                    took = seconds(call, args.repeat) if wanted or step in _NEEDED else 0.0
                    # The first, small one imports what is imported once.
                    if size != 100 and wanted:
                        times.setdefault(step, []).append(took)
        for step, found in times.items():
            exponents = [
                math.log(b / a) / math.log(m / n)
                for (a, b), (n, m) in zip(pairwise(found), pairwise(sizes), strict=True)
            ]
            worst = max(worst, math.log(found[-1] / found[0]) / math.log(sizes[-1] / sizes[0]))
            print(
                f"{name:8} {step:15}",
                *(f"{t:8.3f} s" for t in found),
                " exponent",
                *(f"{e:5.2f}" for e in exponents),
                flush=True,
            )
    return int(worst > args.most)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    # As the program itself does.
    gc.set_threshold(10_000)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10_000))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
