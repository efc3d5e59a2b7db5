"""Peak memory and time of memory-saving execution: DTR at several thresholds, sublinear plans.

    python benchmarks/memory.py [MODEL ...]

Peaks are bytes of live intermediate values (`loadrun.engines.program.MemoryMeter`), weights and inputs left out.
Times are medians of alternating runs, as ratios to ordinary execution. Every result is compared bit by bit.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tabulate import tabulate

from loadrun.engines.program import MemoryMeter
from loadrun.engines.recompute import DTRConfig, SublinearMemoryConfig
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, StoredTensor, Var, params as P
from loadrun.graph.dtypes import DType

F32 = DType("Float32")
ROUNDS = 5
SHARES = (0.9, 0.75, 0.6, 0.45, 0.3)


class Net:
    """A network in the making, with random weights."""

    def __init__(self, channels: int, size: int) -> None:
        self.graph = Graph()
        self.rng = np.random.default_rng(1)
        self.channels: dict[int, int] = {}
        self.sizes: dict[int, int] = {}
        shape = (1, channels, size, size)
        (x,) = self.graph.add(
            "Host2DeviceCopy", P.Host2DeviceCopy(), names=["x"], tensors=[StoredTensor(F32, shape, "x")]
        )
        self.x = self.note(x, channels, size)
        self.feeds = {"x": self.rng.normal(size=shape).astype("f4")}

    def note(self, v: Var, channels: int, size: int) -> Var:
        self.channels[v.id], self.sizes[v.id] = channels, size
        return v

    def constant(self, value: np.ndarray[Any, Any], dtype: DType = F32) -> Var:
        data = np.ascontiguousarray(value, dtype.np)
        tensor = StoredTensor(dtype, data.shape, None, data.reshape(-1).view(np.uint8))
        return self.graph.add("ImmutableTensor", tensors=[tensor])[0]

    def conv(self, x: Var, out: int, kernel: int = 3) -> Var:
        """Convolution, bias and ReLU."""
        inp = self.channels[x.id]
        weight = self.rng.normal(size=(out, inp, kernel, kernel)) * np.sqrt(2 / (inp * kernel**2))
        p = P.Convolution(pad_h=kernel // 2, pad_w=kernel // 2)
        (y,) = self.graph.add("ConvolutionV2", p, inputs=[x, self.constant(weight)])
        bias = self.constant(self.rng.normal(size=(1, out, 1, 1)) * 0.1)
        return self.note(self.elemwise("FUSE_ADD_RELU", y, bias), out, self.sizes[x.id])

    def elemwise(self, mode: str, *inputs: Var) -> Var:
        (y,) = self.graph.add("Elemwise", P.Elemwise(mode=P.ElemwiseMode[mode]), inputs=inputs)
        return y

    def add(self, x: Var, y: Var) -> Var:
        return self.note(self.elemwise("ADD", x, y), self.channels[x.id], self.sizes[x.id])

    def concat(self, *xs: Var) -> Var:
        (y,) = self.graph.add("Concat", P.Axis(axis=1), inputs=xs)
        return self.note(y, sum(self.channels[v.id] for v in xs), self.sizes[xs[0].id])

    def pool(self, x: Var) -> Var:
        p = P.Pooling(window_h=2, window_w=2, stride_h=2, stride_w=2)
        (y,) = self.graph.add("PoolingV1", p, inputs=[x])
        return self.note(y, self.channels[x.id], self.sizes[x.id] // 2)

    def double(self, x: Var) -> Var:
        """Every pixel four times."""
        c, n = self.channels[x.id], self.sizes[x.id]
        for op, shape in (
            ("ReshapeV1", (1, c, n, 1, n, 1)),
            ("Broadcast", (1, c, n, 2, n, 2)),
            ("ReshapeV1", (1, c, 2 * n, 2 * n)),
        ):
            param = [P.OptionalAxisV1()] if op == "ReshapeV1" else [P.Empty()]
            target = self.constant(np.array(shape), DType("Int32"))
            (x,) = self.graph.add(op, *param, inputs=[x, target])
        return self.note(x, c, 2 * n)


def unet() -> Net:
    """Four levels, skip connections by concatenation."""
    net = Net(3, 128)
    x, skips = net.x, []
    for width in (16, 32, 64):
        x = net.conv(net.conv(x, width), width)
        skips.append(x)
        x = net.pool(x)
    x = net.conv(net.conv(x, 128), 64)
    for width, skip in zip((64, 32, 16), reversed(skips), strict=True):
        x = net.concat(net.double(x), skip)
        x = net.conv(net.conv(x, width), max(width // 2, 16))
    net.graph.outputs = [net.conv(x, 2, 1)]
    return net


def rednet() -> Net:
    """Ten convolutions and ten that take the outputs of the first ones in reverse order, all at full size."""
    net = Net(3, 128)
    x, skips = net.x, []
    for _ in range(10):
        x = net.conv(x, 32)
        skips.append(x)
    for skip in reversed(skips):
        x = net.add(net.conv(x, 32), skip)
    net.graph.outputs = [net.conv(x, 3)]
    return net


def densenet() -> Net:
    """Three dense blocks of six layers; the classifier of every block reads its features in the end."""
    net = Net(3, 128)
    x = net.conv(net.x, 24)
    ends = []
    for _ in range(3):
        features = [x]
        for _ in range(6):
            joined = net.concat(*features) if len(features) > 1 else x
            features.append(net.conv(net.conv(joined, 48, 1), 12))
        x = net.concat(*features)
        ends.append(x)
        x = net.pool(net.conv(x, 48, 1))
    heads = []
    for n, end in enumerate(ends):
        for _ in range(2 - n):
            end = net.pool(end)
        heads.append(net.conv(end, 16, 1))
    net.graph.outputs = [net.concat(*heads)]
    return net


def upscaler() -> Net:
    """A super-resolution net: residual blocks of wide convolutions beside two long skip connections."""
    net = Net(3, 96)
    image = net.conv(net.x, 24)
    x = first = net.conv(image, 24)
    for _ in range(6):
        x = net.add(net.conv(net.conv(x, 96, 1), 24), x)
    x = net.add(net.conv(x, 24), first)
    x = net.add(net.conv(x, 24), image)
    net.graph.outputs = [net.conv(net.double(x), 3)]
    return net


MODELS: dict[str, Callable[[], Net]] = {
    "U-Net": unet,
    "RED-Net": rednet,
    "DenseNet": densenet,
    "upscaler": upscaler,
}


def measure(net: Net, engine: ReferenceEngine, plain: ReferenceEngine) -> tuple[int, int, float, bool]:
    """Peak, executions beyond those of `plain`, time as a ratio to it, and whether results are equal."""
    meter, base = MemoryMeter(), MemoryMeter()
    (got,) = engine.run(net.feeds, memory=meter)
    (want,) = plain.run(net.feeds, memory=base)
    ratios = []
    for _ in range(ROUNDS):
        times = []
        for e in (plain, engine):
            start = time.perf_counter()
            e.run(net.feeds)
            times.append(time.perf_counter() - start)
        ratios.append(times[1] / times[0])
    again = meter.executions - base.executions
    return meter.peak, again, statistics.median(ratios), got.tobytes() == want.tobytes()


def rows_of(name: str) -> list[list[object]]:
    """The table's rows for a model."""
    net = MODELS[name]()
    plain = ReferenceEngine(net.graph)
    meter = MemoryMeter()
    plain.run(net.feeds, memory=meter)
    ways: list[tuple[str, ReferenceEngine]] = [("ordinary", ReferenceEngine(net.graph))]
    for share in SHARES:
        config = DTRConfig(int(share * meter.peak), 1 << 16)
        ways.append((f"DTR, threshold {share:.0%}", ReferenceEngine(net.graph, dtr=config)))
    for rounds in (0, 30):
        found = SublinearMemoryConfig(genetic_nr_iter=rounds)
        engine = ReferenceEngine(net.graph, sublinear=found)
        ways.append((f"sublinear, {rounds} genetic rounds" if rounds else "sublinear", engine))
    rows: list[list[object]] = []
    for way, engine in ways:
        peak, again, ratio, equal = measure(net, engine, plain)
        mib, share_text = f"{peak / 2**20:.2f}", f"{peak / meter.peak:.0%}"
        rows.append([name, way, mib, share_text, again, f"{ratio:.2f}", "yes" if equal else "NO"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; default all")
    names = parser.parse_args().models or list(MODELS)
    rows = [row for name in names for row in rows_of(name)]
    headers = ["model", "execution", "peak MiB", "of ordinary", "recomputations", "time", "same bits"]
    print(tabulate(rows, headers, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
