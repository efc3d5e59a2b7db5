"""Loading does work by the number of tables, not by the size of the weights.

Work is counted in calls and in pages of the file that are looked at, which are the same on every machine.
"""

from __future__ import annotations

import resource
import struct
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadrun.dump import Bundle, load, loads, save
from loadrun.dump.flat_builder import FlatBufferEmitter
from loadrun.dump.writer import dump_bytes
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import encode
from loadrun.graph.params import Convolution, Elemwise, ElemwiseMode, ExecutionPolicy, Host2DeviceCopy
from loadrun.ops.catalog import CATALOG
from loadrun.testcase import Testcase
from tests.support.dump_graphs import F32, model


def network(operators: int) -> Graph:
    """Convolutions with weights, each followed by two activations, all variables named and shaped."""
    graph = Graph()
    (x,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1, 8, 4, 4), "x")])
    weight = encode(np.zeros((8, 8, 3, 3), np.float32), F32)
    while len(graph.oprs) < operators:
        (w,) = graph.add("ImmutableTensor", tensors=[StoredTensor(F32, (8, 8, 3, 3), None, weight)])
        params = Convolution(pad_h=1, pad_w=1), ExecutionPolicy()
        (x,) = graph.add("ConvolutionV2", *params, inputs=[x, w], names=[f"conv{len(graph.oprs)}"])
        for mode in (ElemwiseMode.RELU, ElemwiseMode.TANH):
            (x,) = graph.add("Elemwise", Elemwise(mode=mode), inputs=[x], names=[f"act{len(graph.oprs)}"])
    for var in graph.vars():
        var.shape = (1, 8, 4, 4)
    graph.outputs = [x]
    return graph


@cache
def stored(operators: int, fmt: str = "FBS_V2") -> bytes:
    return dump_bytes(network(operators), format=fmt)


def calls(what: Callable[[], object]) -> int:
    """How many functions are called, Python's and others."""
    what()  # What happens once is done now.
    count = 0

    def counted(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        what()
    finally:
        sys.setprofile(None)
    return count


def faults() -> int:
    """How many pages of memory were looked at for the first time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_minflt + used.ru_majflt


@pytest.mark.parametrize("fmt", ["FBS_V2", "FBS"])
def test_work_grows_with_the_graph(fmt: str) -> None:
    """Ten times the operators take ten times the calls, some hundred for each."""
    small, large = (calls(partial(loads, stored(n, fmt))) for n in (500, 5_000))
    assert large < 11 * small
    assert large < 5_000 * 250


def test_a_gibibyte_of_weights(tmp_path: Path) -> None:
    """The file is sparse; reading its values would take a second and a gibibyte."""
    count = 1 << 28
    e = FlatBufferEmitter()
    node = e.table(1, [(0, "offset", e.string("xpux:0"), 0)])
    dims, dtype = e.numbers([count]), e.table(3, [])
    fields = [
        (1, "offset", dims, 0),
        (2, "offset", node, 0),
        (3, "offset", dtype, 0),
        (4, "uint", 4 * count, 0),
    ]
    held = e.offsets([e.table(6, fields)])
    opr = e.table(13, [(0, "ulong", CATALOG["SharedDeviceTensor"].id_v1, 0), (7, "offset", held, 0)])
    oprs, outputs = e.offsets([opr]), e.structs(struct.Struct("<II"), [(0, 0)], 4)
    root = e.table(6, [(1, "ulong", 1, 0), (3, "offset", oprs, 0), (4, "offset", outputs, 0)])
    path = tmp_path / "big.mge"
    with path.open("wb") as f:
        f.write(b"MGBC" + bytes(12) + struct.pack("<Q", 4 * count))
        f.seek(24 + 4 * count)
        f.write(e.builder.finish(root, b"mgb1"))
    tracemalloc.start()
    try:
        load(path)
        before = faults()
        assert load(path).graph.oprs[0].tensors[0].value().shape == (count,)
        # A gibibyte takes 512 at least, were it mapped by pieces of 2 MiB.
        assert faults() - before < 300
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


class Many(Sequence[Testcase]):
    """Testcases that exist one at a time."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: Any) -> Any:
        if not 0 <= i < self.count:
            raise IndexError(i)
        return Testcase({"x": np.full((2, 3), i, np.float32)})


@pytest.mark.slow
def test_thousands_of_testcases(tmp_path: Path) -> None:
    """Loading finds where they are; they are decoded one at a time."""
    few, path = tmp_path / "few.mge", tmp_path / "many.mge"
    save(Bundle(model(), Many(400)), few)
    save(Bundle(model(), Many(4_000)), path)
    work = calls(partial(load, path))
    assert work < 11 * calls(partial(load, few))
    assert work < 4_000 * 20
    tracemalloc.start()
    try:
        bundle = load(path)
        loaded = tracemalloc.get_traced_memory()[0]
        assert loaded < 10_000_000
        assert sum(float(t.arrays["x"][1, 2]) for t in bundle.testcases) == sum(range(4_000))
        assert tracemalloc.get_traced_memory()[1] < loaded + 5_000_000
    finally:
        tracemalloc.stop()
