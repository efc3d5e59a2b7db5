"""Testcases of one form: written to the bytes that each by itself has, and read with nothing taken for granted."""

from __future__ import annotations

from pathlib import Path
from struct import pack, unpack_from

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import FormatError
from loadrun.dump.container import stored_tensors
from loadrun.dump.repeated import Reader, RepeatedWriter
from loadrun.dump.writer import dump_bytes
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import Array, DType
from loadrun.graph.params import Host2DeviceCopy
from loadrun.testcase import Bundle, FileFacts, Testcase
from tests.support.dump_graphs import case_graph

SHAPES = [(2, 3), (2, 3), (2, 3), (1, 3), (2, 3), (1, 3), (1, 3), (4,)]


def model(dtype: DType) -> Graph:
    graph = Graph()
    for name in ("a", "b"):
        (var,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(dtype, (2, 3), name)])
        var.name = name
        graph.outputs.append(var)
    return graph


def cases(dtype: DType) -> list[Testcase]:
    rng = np.random.default_rng(5)
    values = [(rng.integers(0, 2, s), rng.integers(0, 2, s)) for s in SHAPES]
    return [
        Testcase({"a": a.astype(dtype.np), "b": b.astype(dtype.np)}, {"a": dtype, "b": dtype})
        for a, b in values
    ]


@pytest.mark.parametrize("format", ["FBS_V2", "FBS"])
@pytest.mark.parametrize("name", ["Float32", "Int8", "Bool", "BFloat16", "UintB4"])
def test_each_testcase_has_its_own_bytes(tmp_path: Path, name: str, format: str) -> None:
    dtype = DType(name)
    graph, many = model(dtype), cases(dtype)
    loadrun.save(
        Bundle(graph, many, facts=FileFacts(is_container=True)), tmp_path / "many.mge", format=format
    )
    alone = b"".join(dump_bytes(case_graph(c, ["a", "b"]), format=format) for c in many)
    whole = (tmp_path / "many.mge").read_bytes()
    assert whole.endswith(alone)
    assert unpack_from("<I", whole, 8) == (len(many),)
    found = loadrun.load(tmp_path / "many.mge").testcases
    for order in (range(len(many)), reversed(range(len(many)))):
        for i in order:
            for key, want in many[i].arrays.items():
                np.testing.assert_array_equal(found[i].arrays[key], want)
                assert found[i].dtypes[key] == dtype


def one(value: Array) -> bytes:
    return dump_bytes(case_graph(Testcase({"a": value}), ["a"]))


def test_damage_outside_the_numbers_is_found_again() -> None:
    reader = Reader()
    data = [one(np.full(4, i, np.float32)) for i in range(4)]
    for i, d in enumerate(data):
        (tensor,) = reader.read(memoryview(d), stored_tensors)
        assert tensor.value().tolist() == [i] * 4
    damaged = bytearray(data[0])
    # The offset to the root table.
    damaged[4:8] = pack("<I", 2**30)
    with pytest.raises(FormatError):
        reader.read(memoryview(bytes(damaged)), stored_tensors)


def test_a_table_among_the_numbers_is_read_each_time() -> None:
    # The parser stands for one that finds the tensor's length inside the tensor.
    def parse(data: memoryview) -> list[StoredTensor]:
        count = max(1, min(data[0], 4))
        view = np.frombuffer(data, np.uint8)[:count]
        return [StoredTensor(DType("Uint8"), (count,), None, view)]

    reader = Reader()
    for first, want in ((2, 2), (2, 2), (2, 2), (3, 3), (2, 2)):
        (tensor,) = reader.read(memoryview(bytes([first, 9, 9, 9, 9, 9])), parse)
        assert tensor.value().shape == (want,)


def test_a_builder_that_writes_more_than_numbers_is_asked_each_time() -> None:
    def build(tensors: list[StoredTensor]) -> bytes:
        data = tensors[0].data
        assert data is not None
        return bytes([int(data.sum()) & 255]) + data.tobytes()

    def parse(data: memoryview) -> list[StoredTensor]:
        view = np.frombuffer(data, np.uint8)[1:]
        return [StoredTensor(DType("Uint8"), (view.size,), None, view)]

    writer = RepeatedWriter(build, parse)  # type: ignore[arg-type]
    for i in range(4):
        tensor = StoredTensor(DType("Uint8"), (3,), None, np.full(3, i, np.uint8))
        assert writer.write([tensor]) == bytes([3 * i, i, i, i])
