"""What the tests of dumps share: graphs as plain values, a small model, bytes as the reader takes them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from loadrun.dump.flat import Buffer
from loadrun.dump.writer import tensors_graph, testcase_tensors
from loadrun.graph import Graph, StoredTensor, Var
from loadrun.graph.dtypes import DType, encode
from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy
from loadrun.testcase import Testcase

F32 = DType("Float32")


def plain(graph: Graph) -> dict[str, Any]:
    """All that a graph says, as values that compare by content."""
    index = {id(v): i for i, v in enumerate(graph.vars())}

    def tensor(t: StoredTensor) -> tuple[Any, ...]:
        data = None if t.data is None else t.data.tobytes()
        return t.dtype, t.shape, t.name, data, t.comp_node, t.format

    def var(v: Var) -> tuple[Any, ...]:
        return v.id, v.index, v.name, v.dtype, v.shape, v.format, v.comp_node, v.described

    return {
        "oprs": [
            {
                "type": o.type,
                "params": [(type(p).__name__, repr(list(p.pairs()))) for p in o.params],
                "inputs": [index[id(v)] for v in o.inputs],
                "outputs": [var(v) for v in o.outputs],
                "name": o.name,
                "tensors": [tensor(t) for t in o.tensors],
                "output_dtype": o.output_dtype,
                **o.dumped._asdict(),
                "id": o.id,
            }
            for o in graph.oprs
        ],
        "outputs": [index[id(v)] for v in graph.outputs],
        "original_ids": graph.header.original_ids,
        "output_alias": graph.header.output_alias,
        "metadata": graph.header.metadata,
        "about": (
            graph.header.format,
            graph.header.magic,
            graph.header.mge_version,
            graph.header.model_version,
            graph.header.content_hash,
        ),
        "has_middle_tensors": graph.header.has_middle_tensors,
    }


def model(*, names: bool = True, shape: tuple[int, ...] | None = (2, 3)) -> Graph:
    """y = relu(x + w)."""
    graph = Graph()
    w = np.arange(3, dtype=np.float32) - 1
    (x,) = graph.add(
        "Host2DeviceCopy", Host2DeviceCopy(), names=["x"], tensors=[StoredTensor(F32, shape, "x")]
    )
    (c,) = graph.add(
        "ImmutableTensor", names=["w"], tensors=[StoredTensor(F32, (1, 3), None, encode(w, F32))]
    )
    (s,) = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.ADD), inputs=[x, c], names=["s"])
    (y,) = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.RELU), inputs=[s], names=["y"])
    graph.outputs = [y]
    graph.header.has_middle_tensors = names
    return graph


def case_graph(testcase: Testcase, names: Iterable[str]) -> Graph:
    """The graph that stores one testcase."""
    return tensors_graph(testcase_tensors(testcase, names))


def buffer(data: bytes, identifier: bytes = b"test") -> Buffer:
    """A Buffer over size-prefixed bytes, as in a file."""
    (size,) = struct.unpack_from("<I", data)
    assert size + 4 == len(data)
    return Buffer(memoryview(data)[4:], 4, identifier)
