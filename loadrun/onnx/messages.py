"""The messages of an ONNX file as light records; tensors are views of the file.

Field numbers are those of onnx.proto. Unknown fields are skipped, as protobuf does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from ..base.errors import FormatError
from ..graph.dtypes import Array
from .wire import BYTES, FIXED32, FIXED64, VARINT, fields, packed_varints, signed, text

__all__ = [
    "AttributeProto",
    "FunctionProto",
    "GraphProto",
    "ModelProto",
    "NodeProto",
    "OperatorSetIdProto",
    "SparseTensorProto",
    "StringStringEntryProto",
    "TensorProto",
    "TypeProto",
    "ValueInfoProto",
    "looks_like",
    "parse",
    "read_model",
]

_DEPTH = 64
_MESSAGES, _BYTES_EACH = 100_000, 8
"""Messages that any file may hold, and bytes of it for each further one."""
_MODEL_FIELDS = frozenset((1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26))
M = TypeVar("M", bound="Message")


class MessageField(NamedTuple):
    """The target of a message's field."""

    name: str
    kind: Any
    many: bool = False


class Message:
    """A record whose fields are filled from the wire."""

    __slots__ = ()
    FIELDS: ClassVar[dict[int, MessageField]] = {}


@dataclass(slots=True)
class StringStringEntryProto(Message):
    """A key and a value, both text."""

    key: str = ""
    value: str = ""
    FIELDS: ClassVar[dict[int, MessageField]] = {1: MessageField("key", str), 2: MessageField("value", str)}


@dataclass(slots=True)
class TensorProto(Message):
    """A tensor as it is stored; `loadrun.onnx.tensors.array` gives its value."""

    dims: list[int] = field(default_factory=list)
    data_type: int = 0
    floats: list[Array] = field(default_factory=list)
    int32s: list[Array] = field(default_factory=list)
    strings: list[memoryview] = field(default_factory=list)
    int64s: list[Array] = field(default_factory=list)
    name: str = ""
    raw: memoryview | None = None
    doubles: list[Array] = field(default_factory=list)
    uint64s: list[Array] = field(default_factory=list)
    external: list[StringStringEntryProto] = field(default_factory=list)
    location: int = 0
    FIELDS: ClassVar[dict[int, MessageField]] = {
        1: MessageField("dims", int, True),
        2: MessageField("data_type", int),
        4: MessageField("floats", "<f4", True),
        5: MessageField("int32s", "varints", True),
        6: MessageField("strings", bytes, True),
        7: MessageField("int64s", "varints", True),
        8: MessageField("name", str),
        9: MessageField("raw", bytes),
        10: MessageField("doubles", "<f8", True),
        11: MessageField("uint64s", "varints", True),
        13: MessageField("external", StringStringEntryProto, True),
        14: MessageField("location", int),
    }


@dataclass(slots=True)
class SparseTensorProto(Message):
    """Values and their positions."""

    values: TensorProto | None = None
    indices: TensorProto | None = None
    dims: list[int] = field(default_factory=list)
    FIELDS: ClassVar[dict[int, MessageField]] = {
        1: MessageField("values", TensorProto),
        2: MessageField("indices", TensorProto),
        3: MessageField("dims", int, True),
    }


@dataclass(slots=True)
class DimensionProto(Message):
    """One size of a declared shape: a number, a name, or neither."""

    value: int | None = None
    param: str = ""
    FIELDS: ClassVar[dict[int, MessageField]] = {1: MessageField("value", int), 2: MessageField("param", str)}


@dataclass(slots=True)
class TensorShapeProto(Message):
    """A declared shape."""

    dims: list[DimensionProto] = field(default_factory=list)
    FIELDS: ClassVar[dict[int, MessageField]] = {1: MessageField("dims", DimensionProto, True)}


@dataclass(slots=True)
class TensorTypeProto(Message):
    """Element type and shape."""

    elem: int = 0
    shape: TensorShapeProto | None = None
    FIELDS: ClassVar[dict[int, MessageField]] = {
        1: MessageField("elem", int),
        2: MessageField("shape", TensorShapeProto),
    }


@dataclass(slots=True)
class TypeProto(Message):
    """The type of a value: a tensor, or what holds others."""

    tensor: TensorTypeProto | None = None
    sequence: ContainerTypeProto | None = None
    map: ContainerTypeProto | None = None
    optional: ContainerTypeProto | None = None
    sparse: TensorTypeProto | None = None


@dataclass(slots=True)
class ContainerTypeProto(Message):
    """A sequence, map or optional value of another type."""

    of: TypeProto | None = None
    FIELDS: ClassVar[dict[int, MessageField]] = {1: MessageField("of", TypeProto)}


@dataclass(slots=True)
class MapTypeProto(Message):
    """A map's type; its fields do not matter."""


TypeProto.FIELDS = {
    1: MessageField("tensor", TensorTypeProto),
    4: MessageField("sequence", ContainerTypeProto),
    5: MessageField("map", MapTypeProto),
    8: MessageField("sparse", TensorTypeProto),
    9: MessageField("optional", ContainerTypeProto),
}


@dataclass(slots=True)
class ValueInfoProto(Message):
    """A name and what type it has."""

    name: str = ""
    type: TypeProto | None = None
    FIELDS: ClassVar[dict[int, MessageField]] = {
        1: MessageField("name", str),
        2: MessageField("type", TypeProto),
    }


@dataclass(slots=True)
class AttributeProto(Message):
    """An attribute of a node: which of the values counts, its type says."""

    name: str = ""
    f: float = 0.0
    i: int = 0
    s: bytes = b""
    t: TensorProto | None = None
    g: GraphProto | None = None
    floats: list[Array] = field(default_factory=list)
    ints: list[Array] = field(default_factory=list)
    strings: list[memoryview] = field(default_factory=list)
    tensors: list[TensorProto] = field(default_factory=list)
    graphs: list[GraphProto] = field(default_factory=list)
    type: int = 0
    ref: str = ""
    sparse: SparseTensorProto | None = None
    kind: TypeProto | None = None


@dataclass(slots=True)
class NodeProto(Message):
    """An operator applied to names."""

    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    name: str = ""
    op: str = ""
    attributes: list[AttributeProto] = field(default_factory=list)
    domain: str = ""
    overload: str = ""
    FIELDS: ClassVar[dict[int, MessageField]] = {
        1: MessageField("inputs", str, True),
        2: MessageField("outputs", str, True),
        3: MessageField("name", str),
        4: MessageField("op", str),
        5: MessageField("attributes", AttributeProto, True),
        7: MessageField("domain", str),
        8: MessageField("overload", str),
    }


@dataclass(slots=True)
class GraphProto(Message):
    """Nodes in order, initializers, inputs and outputs."""

    nodes: list[NodeProto] = field(default_factory=list)
    name: str = ""
    initializers: list[TensorProto] = field(default_factory=list)
    inputs: list[ValueInfoProto] = field(default_factory=list)
    outputs: list[ValueInfoProto] = field(default_factory=list)
    sparse: list[SparseTensorProto] = field(default_factory=list)
    FIELDS: ClassVar[dict[int, MessageField]] = {
        1: MessageField("nodes", NodeProto, True),
        2: MessageField("name", str),
        5: MessageField("initializers", TensorProto, True),
        11: MessageField("inputs", ValueInfoProto, True),
        12: MessageField("outputs", ValueInfoProto, True),
        15: MessageField("sparse", SparseTensorProto, True),
    }

    @property
    def stored(self) -> set[str]:
        """The names of the tensors that are stored, dense or sparse."""
        values = [s.values for s in self.sparse]
        return {t.name for t in (*self.initializers, *values) if t is not None}


AttributeProto.FIELDS = {
    1: MessageField("name", str),
    2: MessageField("f", float),
    3: MessageField("i", int),
    4: MessageField("s", bytes),
    5: MessageField("t", TensorProto),
    6: MessageField("g", GraphProto),
    7: MessageField("floats", "<f4", True),
    8: MessageField("ints", "varints", True),
    9: MessageField("strings", bytes, True),
    10: MessageField("tensors", TensorProto, True),
    11: MessageField("graphs", GraphProto, True),
    14: MessageField("kind", TypeProto),
    20: MessageField("type", int),
    21: MessageField("ref", str),
    22: MessageField("sparse", SparseTensorProto),
}


@dataclass(slots=True)
class OperatorSetIdProto(Message):
    """A domain and the version of its operators."""

    domain: str = ""
    version: int = 0
    FIELDS: ClassVar[dict[int, MessageField]] = {
        1: MessageField("domain", str),
        2: MessageField("version", int),
    }


@dataclass(slots=True)
class FunctionProto(Message):
    """An operator that is composed of others."""

    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    nodes: list[NodeProto] = field(default_factory=list)
    opsets: list[OperatorSetIdProto] = field(default_factory=list)
    domain: str = ""
    defaults: list[AttributeProto] = field(default_factory=list)
    overload: str = ""
    FIELDS: ClassVar[dict[int, MessageField]] = {
        1: MessageField("name", str),
        4: MessageField("inputs", str, True),
        5: MessageField("outputs", str, True),
        6: MessageField("attributes", str, True),
        7: MessageField("nodes", NodeProto, True),
        9: MessageField("opsets", OperatorSetIdProto, True),
        10: MessageField("domain", str),
        11: MessageField("defaults", AttributeProto, True),
        13: MessageField("overload", str),
    }


@dataclass(slots=True)
class ModelProto(Message):
    """A whole file."""

    ir_version: int = 0
    producer: str = ""
    producer_version: str = ""
    graph: GraphProto | None = None
    opsets: list[OperatorSetIdProto] = field(default_factory=list)
    properties: list[StringStringEntryProto] = field(default_factory=list)
    functions: list[FunctionProto] = field(default_factory=list)
    FIELDS: ClassVar[dict[int, MessageField]] = {
        1: MessageField("ir_version", int),
        2: MessageField("producer", str),
        3: MessageField("producer_version", str),
        7: MessageField("graph", GraphProto),
        8: MessageField("opsets", OperatorSetIdProto, True),
        14: MessageField("properties", StringStringEntryProto, True),
        25: MessageField("functions", FunctionProto, True),
    }


class _Count:
    """The number of messages that a file may still hold: each takes far more memory than its two bytes in the file."""

    def __init__(self, size: int) -> None:
        self.left = _MESSAGES + size // _BYTES_EACH


def parse(kind: type[M], data: memoryview, base: int = 0, depth: int = 0, count: _Count | None = None) -> M:
    """Read one message.

    Args:
        kind: which message the bytes are.
        data: its bytes.
        base: where they begin in the file.
        depth: how many messages are around it.
        count: how many more there may be.

    Raises:
        FormatError: the bytes are no such message, or of nothing but empty ones.
    """
    if depth > _DEPTH:
        raise FormatError(f"messages are nested deeper than {_DEPTH}", offset=base)
    count = count or _Count(len(data))
    count.left -= 1
    if count.left < 0:
        raise FormatError("the file consists of more messages than its size allows", offset=base)
    message = kind()
    table = kind.FIELDS
    for number, wire, value, where in fields(data, base):
        entry = table.get(number)
        if entry is None:
            continue
        name, target, many = entry
        if isinstance(target, str):
            _numbers(getattr(message, name), target, wire, value, where)
        elif many and target is int and wire == BYTES:
            assert isinstance(value, memoryview)
            getattr(message, name).extend(packed_varints(value, where).tolist())
        else:
            one = _decoded_field(entry, wire, value, where, depth, count)
            if many:
                getattr(message, name).append(one)
            else:
                setattr(message, name, one)
    return message


def _decoded_field(
    entry: MessageField, wire: int, value: int | memoryview, where: int, depth: int, count: _Count
) -> object:
    kind = entry.kind
    if kind is int:
        if wire != VARINT or not isinstance(value, int):
            raise _wrong(entry.name, where)
        return signed(value)
    if kind is float:
        if wire != FIXED32 or not isinstance(value, int):
            raise _wrong(entry.name, where)
        return float(np.uint32(value).view(np.float32))
    if not isinstance(value, memoryview):
        raise _wrong(entry.name, where)
    if kind is str:
        return text(value, where)
    if kind is bytes:
        return value
    return parse(kind, value, where, depth + 1, count)


def _numbers(rows: list[Array], kind: str, wire: int, value: int | memoryview, where: int) -> None:
    """Append a field of numbers, which may be packed or separate."""
    if isinstance(value, memoryview):
        if kind == "varints":
            rows.append(packed_varints(value, where))
            return
        if len(value) % int(kind[2]):
            raise FormatError(
                f"{len(value)} bytes are not a whole number of {kind[1:]} numbers", offset=where
            )
        rows.append(np.frombuffer(value, kind))
        return
    if wire != {"varints": VARINT, "<f4": FIXED32, "<f8": FIXED64}[kind]:
        raise _wrong("of numbers", where)
    if kind == "varints":
        rows.append(np.array([signed(value)], np.int64))
    else:
        unsigned: Callable[[int], Any] = np.uint32 if kind == "<f4" else np.uint64
        rows.append(np.array([unsigned(value)]).view(kind))


def _wrong(name: str, where: int) -> FormatError:
    return FormatError(f"the field {name!r} has another type than in ONNX", offset=where)


def looks_like(data: memoryview) -> bool:
    """Return whether some bytes are an ONNX model by their outermost fields; nothing inside is read.

    >>> looks_like(memoryview(b"mgbtest0"))
    False
    """
    seen = set()
    try:
        for number, wire, _, _ in fields(data):
            if number not in _MODEL_FIELDS or (number in (7, 8, 14, 25)) != (
                wire == BYTES and number not in (2, 3, 4, 6)
            ):
                return False
            seen.add(number)
    except FormatError:
        return 7 in seen and bool(seen & {1, 8})
    return 7 in seen


def read_model(data: memoryview) -> ModelProto:
    """Read a whole file.

    Raises:
        FormatError: it is no ONNX model.
    """
    model = parse(ModelProto, data)
    if model.graph is None:
        raise FormatError("the file has no graph, so it is not an ONNX model", offset=0)
    return model
