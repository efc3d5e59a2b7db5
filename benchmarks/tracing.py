"""Traced calls against eager ones: the ratio of medians in one run.

OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/tracing.py [--repeat N]
"""

from __future__ import annotations

import argparse
import runpy
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import loadrun
import loadrun.megengine.functional as F
import loadrun.megengine.module as M
from loadrun import tracing as jit

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def resnet50() -> tuple[Callable[..., object], list[object]]:
    """ResNet-50 of the examples, one picture."""
    net = runpy.run_path(str(EXAMPLES / "resnet50.py"))["ResNet50"]()
    net.eval()
    return net, [loadrun.tensor(np.random.default_rng(0).random((1, 3, 224, 224), np.float32))]


def mobile() -> tuple[Callable[..., object], list[object]]:
    """Depthwise separable convolutions, as MobileNet has them."""
    net = M.Sequential(
        *(
            M.Sequential(
                M.Conv2d(32, 32, 3, padding=1, groups=32, bias=False),
                M.BatchNorm2d(32),
                M.ReLU(),
                M.Conv2d(32, 32, 1, bias=False),
                M.BatchNorm2d(32),
                M.ReLU(),
            )
            for _ in range(8)
        )
    )
    net.eval()
    return net, [loadrun.tensor(np.random.default_rng(0).random((1, 32, 56, 56), np.float32))]


def attention() -> tuple[Callable[..., object], list[object]]:
    """A transformer layer in functions."""
    rng = np.random.default_rng(0)
    w = {n: loadrun.tensor(rng.normal(size=s).astype("f4") / 16) for n, s in _SHAPES.items()}

    def layer(x: loadrun.Tensor) -> loadrun.Tensor:
        n, length, width = x.shape
        q, k, v = (
            F.transpose(F.matmul(x, w[p]).reshape(n, length, 4, 64), (0, 2, 1, 3)) for p in ("q", "k", "v")
        )
        scores = F.softmax(F.matmul(q, k, transpose_b=True) / 8.0, axis=-1)
        y = F.transpose(F.matmul(scores, v), (0, 2, 1, 3)).reshape(n, length, width)
        x = F.layer_norm(x + F.matmul(y, w["o"]), (256,), False)
        return F.layer_norm(x + F.matmul(F.gelu(F.matmul(x, w["a"])), w["b"]), (256,), False)

    return layer, [loadrun.tensor(rng.random((1, 128, 256), np.float32))]


_SHAPES = {**dict.fromkeys("qkvo", (256, 256)), "a": (256, 1024), "b": (1024, 256)}


def pipeline() -> tuple[Callable[..., object], list[object]]:
    """The numpy example; eager is numpy itself."""
    classify = runpy.run_path(str(EXAMPLES / "numpy_pipeline.py"))["classify"]
    return classify, [np.random.default_rng(0).integers(0, 256, (4, 64, 64, 3), np.uint8)]


def many_small() -> tuple[Callable[..., object], list[object]]:
    """Two hundred operators on four numbers each: what a call costs besides computing."""

    def f(x: loadrun.Tensor) -> loadrun.Tensor:
        for _ in range(100):
            x = F.relu(x) + 1
        return x

    return f, [loadrun.tensor([1.0, -1.0, 2.0, -2.0])]


def median(call: Callable[[], object], repeat: int) -> float:
    """Milliseconds of processor time."""
    call()
    times = []
    for _ in range(repeat):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return statistics.median(times) * 1e3


def main() -> None:
    """Print the table."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--repeat", type=int, default=20)
    repeat = p.parse_args().repeat
    print("| function | eager ms | traced ms | traced/eager | without_host/eager |")
    print("| --- | --- | --- | --- | --- |")
    for make in (resnet50, mobile, attention, pipeline, many_small):
        function, args = make()
        traced = jit.trace(function, symbolic=True, capture_as_const=True)
        alone = jit.trace(function, symbolic=True, capture_as_const=True, without_host=True)
        eager = median(lambda f=function, a=args: f(*a), repeat)
        later = median(lambda f=traced, a=args: f(*a), repeat)
        bare = median(lambda f=alone, a=args: f(*a), repeat)
        print(f"| {make.__name__} | {eager:.2f} | {later:.2f} | {later / eager:.2f} | {bare / eager:.2f} |")


if __name__ == "__main__":
    main()
