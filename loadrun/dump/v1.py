"""FBS v1 (magic MGBC, and MGBS up to release 1.7): tensor values, then a FlatBuffer with root ``Graph``."""

from struct import Struct, unpack_from

import numpy as np

from ..base.errors import FormatError
from ..graph import Graph, Header, Opr, StoredTensor, TensorFormat
from ..graph.dtypes import Array, nbytes
from ..graph.graph import dumped
from .build import (
    GraphAssembler,
    check_params,
    check_shape,
    comp_node,
    constant_or_input,
    describe,
    find_op,
    read_dtype,
    read_params,
    take_blobs,
)
from .flat import Buffer, Table

IDENTIFIER = b"mgb1"
MAGICS = {b"MGBC": 24, b"MGBS": 16}
"""Magic and header length."""
_OUTPUT = Struct("<II")


def _layout(data: memoryview, base: int) -> tuple[int, int, int]:
    """Header length, length of the tensor area and of the FlatBuffer."""
    header = MAGICS[bytes(data[:4])]
    if len(data) < header + 4:
        raise FormatError(f"a v1 dump takes at least {header + 4} bytes, found {len(data)}", offset=base)
    (area,) = unpack_from("<Q", data, header - 8)
    if header + area + 4 > len(data):
        raise FormatError(
            f"the tensor area claims {area} bytes, but {len(data) - header} are left; the file is truncated, copy it "
            "again",
            offset=base + header - 8,
        )
    (fbs,) = unpack_from("<I", data, header + area)
    if header + area + 4 + fbs > len(data):
        raise FormatError(
            f"the graph claims {fbs} bytes, but {len(data) - header - area - 4} are left; "
            "the file is truncated, copy it again",
            offset=base + header + area,
        )
    return header, int(area), int(fbs)


def size(data: memoryview, base: int) -> int:
    """Length in bytes of the dump at the start of `data`."""
    header, area, fbs = _layout(data, base)
    return header + area + 4 + fbs


def read(data: memoryview, base: int) -> Graph:
    """Read one FBS v1 dump at the start of `data`."""
    header, area, fbs = _layout(data, base)
    start = header + area + 4
    buf = Buffer(data[start : start + fbs], base + start, IDENTIFIER)
    root = buf.root()
    magic = bytes(data[:4]).decode()
    said = Header(magic, root.integer(0, "uint"), 1, root.integer(1, "ulong"), has_middle_tensors=False)
    graph = Graph(header=said)
    if said.content_hash == 0:
        raise buf.error("the content hash is 0: the dump was never completed", root.pos)
    reader = _Reader(GraphAssembler(graph), np.frombuffer(data, np.uint8, area, header), magic)
    seen: set[int] = set()
    for t in root.tables(3):
        if t.pos in seen:
            raise buf.error("an operator is listed twice", t.pos)
        seen.add(t.pos)
        reader.operator(t)
    reader.builder.set_outputs(root, root.structs(4, _OUTPUT))
    reader.builder.set_metadata(root.table(5), options=3, user_info=2)
    return graph


class _Reader:
    """Walks the operators of a v1 graph; tensor values are taken from the tensor area in that order."""

    def __init__(self, builder: GraphAssembler, area: Array, magic: str) -> None:
        self.builder = builder
        self.area = area
        self.used = 0
        self.ids = "id_v1" if magic == "MGBC" else "id_mgbs"

    def operator(self, t: Table) -> None:
        op = find_op(t, self.ids, t.integer(0, "ulong"))
        opr = Opr(op.name, name=t.text(12))
        mge_version = self.builder.graph.header.mge_version
        records = read_params(t, t.integer(1, "ubyte"), t.table(2), t.unions(10, 11), mge_version)
        opr.params = check_params(t, op, records)
        opr.inputs = self.builder.link(t, op, t.numbers(3, "uint") or ())
        nodes = tuple(map(comp_node, t.tables(4)))
        names = t.texts(5)
        dtype = t.table(6)
        opr.output_dtype = read_dtype(dtype) if dtype is not None else None
        opr.tensors = [self.tensor(x) for x in t.tables(7)]
        opr.dumped = dumped(nodes, t.integer(8, "int"))
        take_blobs(t, opr, t.tables(9), required=True)
        if "WithFormat" in op.name:
            _formats(t, opr)
        constant_or_input(t, opr, op)
        self.builder.append(t, opr, op.n_outputs(opr))
        for var, tensor in zip(opr.outputs, opr.tensors, strict=False):
            describe(var, tensor)
        if opr.name and len(opr.outputs) == 1 and not opr.outputs[0].name:
            opr.outputs[0].name = opr.name
        for var, name in zip(opr.outputs, names, strict=False):
            var.name = name or var.name

    def tensor(self, t: Table) -> StoredTensor:
        name = t.text(0)
        what = f"tensor {name!r}" if name else "a tensor"
        node, dtype_table = t.table(2), t.table(3)
        if node is None or dtype_table is None:
            raise t.buf.error(f"{what} has no {'computing node' if node is None else 'dtype'}", t.pos)
        dtype = read_dtype(dtype_table)
        shape = check_shape(t, t.numbers(1, "uint"), what)
        length, skip = t.integer(4, "uint"), t.integer(5, "uint")
        data: Array | None = None
        if length:
            if shape is None:
                raise t.buf.error(f"{what} has a value but no shape", t.pos)
            if self.used + length > self.area.size:
                raise t.buf.error(
                    f"{what} owns {length} bytes, but {self.area.size - self.used} are left", t.pos
                )
            want = nbytes(shape, dtype)
            if skip + want > length:
                raise t.buf.error(
                    f"{what}: {dtype.name} {list(shape)} takes {want} bytes, found {length - skip}", t.pos
                )
            begin = self.used + skip
            data = self.area[begin : begin + want]
            self.used += length
        return StoredTensor(dtype, shape, name, data, comp_node(node))


def _formats(t: Table, opr: Opr) -> None:
    """Tensor formats of the WithFormat holders: i32 kind (0 default, 1 image, 2 low bits), bytes."""
    blobs = opr.dumped.blobs[1:] if opr.type.startswith("Multiple") else opr.dumped.blobs
    for tensor, blob in zip(opr.tensors, blobs, strict=False):
        if len(blob) < 4:
            raise t.buf.error(f"a tensor format takes at least 4 bytes, found {len(blob)}", t.pos)
        (kind,) = unpack_from("<i", blob)
        rest = blob[4:] + b"\0\0"
        if kind == 0:
            tensor.format = TensorFormat(1)
        elif kind == 1:
            tensor.format = TensorFormat(2, align_axis=rest[0])
        elif kind == 2:
            tensor.format = TensorFormat(3, size_nbits=rest[0], align_size_in_bits=rest[1])
        else:
            raise t.buf.error(f"tensor format {kind} is unknown; expected 0 to 2", t.pos)
