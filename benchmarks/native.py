"""What a run of an ONNX file costs on `--engine onnxruntime` beyond ONNX Runtime itself, in alternating rounds.

    python benchmarks/native.py model.onnx [...] [--rounds 200]

Without models two of one and of six inputs show the fixed cost. Both have the same threads and options.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime

import loadrun
from loadrun.graph import StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy
from loadrun.ops.numeric.parallel import threads


def tiny(folder: Path, inputs: int) -> Path:
    """Write a file of one operator an input."""
    graph = loadrun.graph.Graph()
    for i in range(inputs):
        tensor = StoredTensor(DType("Float32"), (1, 4), f"x{i}")
        x = graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[tensor], names=[f"x{i}"])
        y = graph.outputs[-1:]
        mode = ElemwiseMode.ADD if y else ElemwiseMode.RELU
        graph.outputs = graph.add("Elemwise", Elemwise(mode=mode), inputs=[*x, *y], names=[f"y{i}"])
    path = folder / f"tiny-{inputs}.onnx"
    loadrun.onnx.export(graph, f=path)
    return path


def plain(path: Path, feeds: Mapping[str, Any]) -> Callable[[], object]:
    """Return a run of the file on ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(feeds))


def ratio(path: Path, rounds: int) -> str:
    """Time both, in turns."""
    runner = loadrun.Runner(path, "onnxruntime")
    feeds = dict(loadrun.random_inputs(runner.bundle))
    dtypes = {i.name: i.type for i in onnxruntime.InferenceSession(str(path)).get_inputs()}
    feeds = {n: a.astype(np.int64) if dtypes[n] == "tensor(int64)" else a for n, a in feeds.items()}
    calls = {"plain": plain(path, feeds), "loadrun": lambda: runner.run(feeds)}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds + 5):
        order = list(calls) if i % 2 else list(calls)[::-1]
        for name in order:
            start = time.perf_counter()
            calls[name]()
            if i >= 5:
                seconds[name].append(time.perf_counter() - start)
    own, theirs = median(seconds["loadrun"]), median(seconds["plain"])
    least = min(seconds["loadrun"]) - min(seconds["plain"])
    return (
        f"{path.name}: {own * 1e3:.3f} ms, ONNX Runtime {theirs * 1e3:.3f} ms, ratio {own / theirs:.3f}, "
        f"fixed {(own - theirs) * 1e3:.4f} ms (least times {least * 1e3:.4f} ms)"
    )


def main() -> None:
    """Print a line for each model."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("models", nargs="*", type=Path)
    p.add_argument("--rounds", type=int, default=200)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for path in args.models or [tiny(Path(folder), 1), tiny(Path(folder), 6)]:
            print(ratio(path, args.rounds))


if __name__ == "__main__":
    main()
