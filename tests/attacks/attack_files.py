"""Parts that the attacks build their files from."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from loadrun.dump.flat_builder import Fields, FlatBufferEmitter
from loadrun.dump.writer import dump_bytes
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType, encode
from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy, Record
from loadrun.ops.catalog import CATALOG

F32 = DType("Float32")


def small() -> Graph:
    """y = relu(x)."""
    graph = Graph()
    (x,) = graph.add(
        "Host2DeviceCopy", Host2DeviceCopy(), names=["x"], tensors=[StoredTensor(F32, (4,), "x")]
    )
    graph.outputs = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.RELU), inputs=[x], names=["y"])
    return graph


def good(format: str = "FBS_V2") -> bytes:
    """A good plain dump."""
    return dump_bytes(small(), format=format)


def container(*parts: bytes, count: int | None = None) -> bytes:
    """A testcase file of these dumps."""
    return b"mgbtest0" + struct.pack("<I", len(parts) - 1 if count is None else count) + b"".join(parts)


def constant(value: float) -> StoredTensor:
    """A stored scalar."""
    return StoredTensor(F32, (1,), None, encode(np.full(1, value, np.float32), F32))


class V2:
    """An FBS_V2 file that is built table by table, so that it may lie."""

    def __init__(self) -> None:
        self.e = FlatBufferEmitter()

    def tensor(self, shape: Sequence[int], *, data: int | None = None, name: int | None = None) -> int:
        """A Float32 tensor; `data` and `name` are the offsets of a vector and a string."""
        e = self.e
        node = e.table(1, [(0, "offset", e.string("xpux:0"), 0)])
        dims = e.numbers(shape)
        dtype = e.table(3, [])
        fields: Fields = [(0, "offset", name, 0), (1, "offset", dims, 0), (2, "offset", node, 0)]
        return e.table(7, [*fields, (3, "offset", dtype, 0), (6, "offset", data, 0)])

    def operator(
        self, kind: str, *more: tuple[int, str, int | None, int], param: Record | None = None
    ) -> int:
        """An operator with further fields."""
        op = CATALOG[kind]
        version, number = (1, op.id_mgbs) if op.id_v2 is None else (2, op.id_v2)
        fields: list[tuple[int, str, int | None, int]] = [
            (1, "ulong", number, 0),
            (12, "uint", version, 0),
        ]
        if param is not None:
            fields += [(4, "offset", self.e.param(param), 0), (3, "ubyte", param.code, 0)]
        return self.e.table(15, sorted([*fields, *more], key=lambda f: {"ulong": 0, "ubyte": 2}.get(f[1], 1)))

    def held(self, tensor: int, kind: str = "SharedDeviceTensor", param: Record | None = None) -> int:
        """An operator that holds one tensor."""
        return self.operator(kind, (11, "offset", self.e.offsets([tensor]), 0), param=param)

    def finish(self, operators: Sequence[int], *more: tuple[int, str, int | None, int]) -> bytes:
        """The file."""
        oprs = self.e.offsets(operators)
        fields: Fields = [(0, "uint", 101300, 0), (1, "uint", 2, 0), (2, "offset", oprs, 0), *more]
        return self.e.builder.finish(self.e.table(8, fields), b"mgv2")

    def outputs(self, numbers: Sequence[int]) -> int | None:
        """The list of output variables."""
        return self.e.offsets([self.e.table(2, [(0, "uint", n, 0)]) for n in numbers])


class V1:
    """An FBS v1 file that is built table by table."""

    def __init__(self) -> None:
        self.e = FlatBufferEmitter()

    def tensor(
        self, shape: Sequence[int] | None, size: int = 0, *, node: bool = True, dtype: bool = True
    ) -> int:
        """A Float32 tensor that owns `size` bytes of the tensor area."""
        e = self.e
        place = e.table(1, [(0, "offset", e.string("xpux:0"), 0)]) if node else None
        fields: Fields = [(1, "offset", e.numbers(shape), 0), (2, "offset", place, 0)]
        kind = e.table(3, []) if dtype else None
        return e.table(6, [*fields, (3, "offset", kind, 0), (4, "uint", size, 0)])

    def operator(self, kind: str, *more: tuple[int, str, int | None, int], mgbs: int | None = None) -> int:
        """An operator; `mgbs` gives its id instead of its name."""
        return self.e.table(13, [(0, "ulong", mgbs or CATALOG[kind].id_v1, 0), *more])

    def held(self, tensor: int, kind: str = "SharedDeviceTensor") -> int:
        """An operator that holds one tensor."""
        return self.operator(kind, (7, "offset", self.e.offsets([tensor]), 0))

    def finish(
        self, operators: Sequence[int], area: bytes = b"", *, hash: int = 1, magic: bytes = b"MGBC"
    ) -> bytes:
        """The file."""
        oprs = self.e.offsets(operators)
        root = self.e.table(6, [(1, "ulong", hash, 0), (0, "uint", 101300, 0), (3, "offset", oprs, 0)])
        head = magic + bytes(12 if magic == b"MGBC" else 4)
        return head + struct.pack("<Q", len(area)) + area + self.e.builder.finish(root, b"mgb1")
