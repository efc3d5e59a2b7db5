"""Encoding of ONNX's protobuf messages, without the onnx package.

Each class below is one message; `encode` turns a model into pieces of bytes whose concatenation is the file, so that
weights are never copied. Fields are written in the order of their numbers, repeated numbers one by one, as the
messages' own schema (proto2) does. Strings are UTF-8; all integers are little endian base-128 numbers of 64 bits.

Source of the numbers: onnx.proto of ONNX, IR version 10.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Union

import numpy as np

from ..graph.dtypes import Array
from ..testcase import FileValue

__all__ = [
    "OPTIONAL",
    "SEQUENCE",
    "Attribute",
    "ElemType",
    "GraphMessage",
    "ModelMessage",
    "NodeMessage",
    "TensorMessage",
    "ValueMessage",
    "encode",
    "encode_tensor",
    "encode_value",
]


class ElemType(IntEnum):
    """Numbers of TensorProto.DataType that loadrun writes."""

    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype of the elements; STRING and those from BFLOAT16 on have none."""
        return np.dtype(_NUMPY[self])

    @classmethod
    def of(cls, dtype: np.dtype[Any]) -> ElemType:
        """Return the number for a numpy dtype.

        Raises:
            KeyError: ONNX has no such type here.
        """
        return _ELEM[np.dtype(dtype).newbyteorder("=").str.lstrip("<>|=")]


_NUMPY = {
    ElemType.FLOAT: "f4",
    ElemType.UINT8: "u1",
    ElemType.INT8: "i1",
    ElemType.UINT16: "u2",
    ElemType.INT16: "i2",
    ElemType.INT32: "i4",
    ElemType.INT64: "i8",
    ElemType.BOOL: "b1",
    ElemType.FLOAT16: "f2",
    ElemType.DOUBLE: "f8",
    ElemType.UINT32: "u4",
    ElemType.UINT64: "u8",
    ElemType.COMPLEX64: "c8",
}
_ELEM = {text: elem for elem, text in _NUMPY.items()}


@dataclass(eq=False)
class TensorMessage:
    """A TensorProto: a constant of shape `dims`, or a reference to another file.

    Attributes:
        value: the elements; None for one whose bytes are elsewhere.
        external: location (a file name relative to the model), offset and length in bytes.
    """

    name: str
    elem: ElemType
    dims: tuple[int, ...]
    value: Array | None = None
    external: tuple[str, int, int] | None = None

    @classmethod
    def of(cls, name: str, value: Array, elem: ElemType | None = None) -> TensorMessage:
        """Build the message for an array, of a type that numpy lacks if `elem` says so."""
        value = np.asarray(value)
        return cls(name, elem or ElemType.of(value.dtype), value.shape, value)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements; none of text, which always stands in the model itself."""
        count = int(np.prod(self.dims, dtype=object))
        if self.elem is ElemType.STRING:
            return 0
        if self.elem >= ElemType.BFLOAT16:
            from .codes import coded_size  # for start-up

            return coded_size(count, self.elem)
        return count * self.elem.numpy.itemsize


@dataclass(eq=False)
class ValueMessage:
    """A ValueInfoProto; a size is a number, the name of a symbol, or None; `shape` None leaves the rank open.

    Attributes:
        held: the fields of TypeProto around a tensor that sequences and optional values hold, the outermost first.
    """

    name: str
    elem: ElemType
    shape: tuple[int | str | None, ...] | None
    held: tuple[int, ...] = ()


SEQUENCE, OPTIONAL = 4, 9
"""Fields of TypeProto for what holds values."""
Attribute = Union[
    int,
    float,
    str,
    bytes,
    TensorMessage,
    "GraphMessage",
    ValueMessage,
    Array,
    Sequence[int],
    Sequence[float],
    Sequence[str],
]
"""A list without entries is an array, whose dtype says of what; a type is a `ValueMessage` without a name."""


@dataclass(eq=False)
class NodeMessage:
    """A NodeProto."""

    op_type: str
    inputs: list[str]
    outputs: list[str]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    name: str = ""
    domain: str = ""
    doc: str = ""


@dataclass(eq=False)
class GraphMessage:
    """A GraphProto."""

    name: str
    nodes: list[NodeMessage] = field(default_factory=list)
    initializers: list[TensorMessage] = field(default_factory=list)
    inputs: list[ValueMessage] = field(default_factory=list)
    outputs: list[ValueMessage] = field(default_factory=list)
    values: list[ValueMessage] = field(default_factory=list)
    doc: str = ""


@dataclass(eq=False)
class ModelMessage:
    """A ModelProto; `opsets` gives the version of every domain ("" is ONNX's own)."""

    graph: GraphMessage
    opsets: Mapping[str, int]
    ir_version: int
    producer: str = "loadrun"
    producer_version: str = ""
    domain: str = ""
    model_version: int = 0
    doc: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


Piece = bytes | memoryview


class _Message:
    """The pieces of one message and how many bytes they are."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.size = 0

    def raw(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.size += len(piece)

    def number(self, field: int, value: int) -> None:
        self.raw(_varint(field << 3) + _varint(value))

    def real(self, field: int, value: float) -> None:
        self.raw(_varint(field << 3 | 5) + struct.pack("<f", value))

    def bytes(self, field: int, value: Piece) -> None:
        self.raw(_varint(field << 3 | 2) + _varint(len(value)))
        self.raw(value)

    def text(self, field: int, value: str) -> None:
        if value:
            self.bytes(field, _utf8(value))

    def message(self, field: int, value: _Message) -> None:
        self.raw(_varint(field << 3 | 2) + _varint(value.size))
        self.pieces += value.pieces
        self.size += value.size


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    if value < 0x80:
        return bytes((value,))
    buffer = bytearray()
    while value >= 0x80:
        buffer.append(value & 0x7F | 0x80)
        value >>= 7
    buffer.append(value)
    return bytes(buffer)


def _utf8(text: str) -> bytes:
    """Return the bytes of a text; where a name of another file was no UTF-8, its bytes are written as escapes.

    Raises:
        UnicodeEncodeError: the text holds a lone surrogate.
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").encode()


def encode(model: ModelMessage) -> list[Piece]:
    """Encode a model as bytes, in pieces.

    >>> graph = GraphMessage("g", [NodeMessage("Relu", ["x"], ["y"])])
    >>> b"".join(encode(ModelMessage(graph, {"": 18}, 8, producer="")))
    b'\\x08\\x08:\\x11\\n\\x0c\\n\\x01x\\x12\\x01y"\\x04Relu\\x12\\x01gB\\x02\\x10\\x12'
    """
    m = _Message()
    m.number(1, model.ir_version)
    m.text(2, model.producer)
    m.text(3, model.producer_version)
    m.text(4, model.domain)
    if model.model_version:
        m.number(5, model.model_version)
    m.text(6, model.doc)
    m.message(7, _graph(model.graph))
    for domain, version in model.opsets.items():
        opset = _Message()
        opset.text(1, domain)
        opset.number(2, version)
        m.message(8, opset)
    for key, value in model.metadata.items():
        m.message(14, _entry(key, value))
    return m.pieces


def encode_tensor(tensor: TensorMessage) -> list[Piece]:
    """Encode one TensorProto as bytes, as the files of a `test_data_set_N` folder hold it.

    >>> b"".join(encode_tensor(TensorMessage.of("x", np.array([1, 2], "i1"))))
    b'\\x08\\x02\\x10\\x03B\\x01xJ\\x02\\x01\\x02'
    """
    return _tensor(tensor).pieces


def encode_value(name: str, value: FileValue, elem: ElemType, *, is_optional: bool) -> list[Piece]:
    """Encode a TensorProto, a SequenceProto of tensors, or an OptionalProto that holds one of these or nothing.

    >>> b"".join(encode_value("s", [np.zeros(1, "i1")], ElemType.INT8, is_optional=False))
    b'\\n\\x01s\\x10\\x01\\x1a\\x07\\x08\\x01\\x10\\x03J\\x01\\x00'
    """
    if isinstance(value, np.ndarray):
        kind, m = _TENSOR, _tensor(TensorMessage.of(name, value, elem))
    else:
        kind, m = _SEQUENCE, _Message()
        m.text(1, name)
        m.number(2, _TENSOR)
        for item in value or ():
            m.message(3, _tensor(TensorMessage.of("", np.asarray(item), elem)))
    if not is_optional:
        return m.pieces
    whole = _Message()
    whole.text(1, name)
    if value is not None:
        whole.number(2, kind)
        whole.message(3 if kind == _TENSOR else 5, m)
    return whole.pieces


_TENSOR, _SEQUENCE = 1, 3
"""Kinds of values in sequences and optional values."""


def _entry(key: str, value: str) -> _Message:
    m = _Message()
    m.text(1, key)
    m.text(2, value)
    return m


def _graph(graph: GraphMessage) -> _Message:
    m = _Message()
    for node in graph.nodes:
        m.message(1, _node(node))
    m.text(2, graph.name)
    for tensor in graph.initializers:
        m.message(5, _tensor(tensor))
    m.text(10, graph.doc)
    for number, values in ((11, graph.inputs), (12, graph.outputs), (13, graph.values)):
        for value in values:
            m.message(number, _value(value))
    return m


def _node(node: NodeMessage) -> _Message:
    m = _Message()
    # An empty name stands for an input or output that is left out, so it is written.
    for number, names in ((1, node.inputs), (2, node.outputs)):
        for name in names:
            m.bytes(number, _utf8(name))
    m.text(3, node.name)
    m.text(4, node.op_type)
    for name, value in node.attributes.items():
        m.message(5, _attribute(name, value))
    m.text(6, node.doc)
    m.text(7, node.domain)
    return m


def _attribute(name: str, value: Attribute) -> _Message:
    m = _Message()
    m.text(1, name)
    if isinstance(value, (int, np.integer)):
        m.number(3, int(value))
        kind = 2
    elif isinstance(value, (float, np.floating)):
        m.real(2, float(value))
        kind = 1
    elif isinstance(value, (str, bytes)):
        m.bytes(4, _utf8(value) if isinstance(value, str) else value)
        kind = 3
    elif isinstance(value, TensorMessage):
        m.message(5, _tensor(value))
        kind = 4
    elif isinstance(value, GraphMessage):
        m.message(6, _graph(value))
        kind = 5
    elif isinstance(value, ValueMessage):
        m.message(14, _type(value))
        kind = 13
    elif isinstance(value, np.ndarray) and not value.size:
        kind = {"f": 6, "U": 8}.get(value.dtype.kind, 7)
    else:
        kind = _repeated(m, list(value))
    m.number(20, kind)
    return m


def _repeated(m: _Message, values: list[Any]) -> int:
    """Write a list of numbers or strings; the attribute's type."""
    if values and all(isinstance(v, str) for v in values):
        for v in values:
            m.bytes(9, str(v).encode())
        return 8
    if any(isinstance(v, (float, np.floating)) for v in values):
        for v in values:
            m.real(7, float(v))
        return 6
    for v in values:
        m.number(8, int(v))
    return 7


def _tensor(tensor: TensorMessage) -> _Message:
    m = _Message()
    for n in tensor.dims:
        m.number(1, n)
    m.number(2, int(tensor.elem))
    m.text(8, tensor.name)
    if tensor.external is not None:
        location, offset, length = tensor.external
        for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
            m.message(13, _entry(key, value))
        m.number(14, 1)
    elif tensor.elem is ElemType.STRING and tensor.value is not None:
        for item in tensor.value.reshape(-1).tolist():
            m.bytes(6, _utf8(item))
    elif tensor.value is not None:
        m.bytes(9, raw_bytes(tensor))
    return m


def raw_bytes(tensor: TensorMessage) -> memoryview:
    """Return the elements of a tensor as a file stores them: little endian, row by row.

    Raises:
        ValueError: its type does not have one of the values.
    """
    assert tensor.value is not None
    if tensor.elem >= ElemType.BFLOAT16:
        from .codes import coded_bytes  # for start-up

        return memoryview(coded_bytes(tensor.value, tensor.elem))
    flat = np.ascontiguousarray(tensor.value, tensor.elem.numpy.newbyteorder("<")).reshape(-1)
    raw: Array = flat.view(np.uint8)
    return raw.data


def _value(value: ValueMessage) -> _Message:
    m = _Message()
    m.text(1, value.name)
    m.message(2, _type(value))
    return m


def _type(value: ValueMessage) -> _Message:
    tensor = _Message()
    tensor.number(1, int(value.elem))
    if value.shape is not None:
        tensor.message(2, _shape(value.shape))
    kind = _Message()
    kind.message(1, tensor)
    for number in reversed(value.held):
        element, kind = kind, _Message()
        container = _Message()
        container.message(1, element)
        kind.message(number, container)
    return kind


def _shape(shape: Iterable[int | str | None]) -> _Message:
    m = _Message()
    for n in shape:
        dim = _Message()
        if isinstance(n, str):
            dim.text(2, n)
        elif n is not None:
            dim.number(1, n)
        m.message(1, dim)
    return m
