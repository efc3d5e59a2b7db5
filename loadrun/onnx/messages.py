"""The messages of an ONNX file as light records, read and written by one schema: their annotations are the wire format.

``Annotated[str, 3]`` is field 3 of onnx.proto. Tensors are views of the file, and are written from where they lie.
Unknown fields are skipped, as protobuf does.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np

from ..base.errors import FormatError
from ..graph.dtypes import Array
from .wire import BYTES, FIXED32, FIXED64, VARINT, fields, packed_varints, signed, text, varint

_DEPTH = 64
_MESSAGES, _BYTES_EACH = 100_000, 8
"""Messages that any file may hold, and bytes of it for each further one."""
_MODEL_FIELDS = frozenset((1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26))
_UNREAD = None
"""Marks fields that are written and of no use to a reader."""
M = TypeVar("M", bound="Message")
Piece = bytes | memoryview


class MessageField(NamedTuple):
    """One field of a message.

    Attributes:
        name: its attribute.
        kind: what it holds: a type, or how its numbers are stored.
        many: whether it repeats.
        read: whether readers want it.
        absent: what it is where it is left out.
        tag: the bytes before it, where each number stands alone.
    """

    name: str
    kind: Any
    many: bool
    read: bool
    absent: Any
    tag: bytes


@dataclass(slots=True)
class Message:
    """A record whose annotations give the numbers of its fields."""


_ANNOTATION = re.compile(r"Annotated\[(list\[)?(\w+)\]?(?: \| None)?, (\d+)(?:, [\"']?([\w<]+)[\"']?)?\]")
_SCHEMAS: dict[type, dict[int, MessageField]] = {}
_KINDS = {"str": str, "int": int, "float": float, "bytes": bytes, "memoryview": bytes}


def schema(kind: type[Message]) -> dict[int, MessageField]:
    """Return the fields of a message by number. Their annotations are read as text, since loading runs no code.

    >>> schema(StringStringEntryProto)[2][:4]
    ('value', <class 'str'>, False, True)
    """
    if kind in _SCHEMAS:
        return _SCHEMAS[kind]
    found = {}
    for name, annotation in kind.__annotations__.items():
        match = _ANNOTATION.fullmatch(annotation)
        assert match is not None, annotation
        many, inner, number, said = match.groups()
        read, absent = said != "_UNREAD", kind.__dataclass_fields__[name].default
        held = said if said and read else _KINDS.get(inner) or globals()[inner]
        wire = {int: VARINT, float: FIXED32, "<f4": FIXED32, "varints": VARINT}.get(held, BYTES)
        tag = varint(int(number) << 3 | wire)
        found[int(number)] = MessageField(name, held, bool(many), read, absent, tag)
    return _SCHEMAS.setdefault(kind, dict(sorted(found.items())))


@dataclass(slots=True)
class StringStringEntryProto(Message):
    """A key and a value, both text."""

    key: Annotated[str, 1] = ""
    value: Annotated[str, 2] = ""


@dataclass(slots=True)
class TensorProto(Message):
    """A tensor as it is stored; `loadrun.onnx.tensors.array` gives its value."""

    dims: Annotated[list[int], 1] = field(default_factory=list)
    data_type: Annotated[int, 2] = 0
    floats: Annotated[list[Array], 4, "<f4"] = field(default_factory=list)
    int32s: Annotated[list[Array], 5, "varints"] = field(default_factory=list)
    strings: Annotated[list[memoryview], 6] = field(default_factory=list)
    int64s: Annotated[list[Array], 7, "varints"] = field(default_factory=list)
    name: Annotated[str, 8] = ""
    raw: Annotated[memoryview | None, 9] = None
    doubles: Annotated[list[Array], 10, "<f8"] = field(default_factory=list)
    uint64s: Annotated[list[Array], 11, "varints"] = field(default_factory=list)
    external: Annotated[list[StringStringEntryProto], 13] = field(default_factory=list)
    location: Annotated[int, 14] = 0


@dataclass(slots=True)
class SparseTensorProto(Message):
    """Values and their positions."""

    values: Annotated[TensorProto | None, 1] = None
    indices: Annotated[TensorProto | None, 2] = None
    dims: Annotated[list[int], 3] = field(default_factory=list)


@dataclass(slots=True)
class SequenceProto(Message):
    """Values of one kind in order."""

    name: Annotated[str, 1, _UNREAD] = ""
    kind: Annotated[int, 2, _UNREAD] = 0
    tensors: Annotated[list[TensorProto], 3] = field(default_factory=list)
    sequences: Annotated[list[SequenceProto], 5] = field(default_factory=list)
    maps: Annotated[list[MapProto], 6] = field(default_factory=list)
    optionals: Annotated[list[OptionalProto], 7] = field(default_factory=list)


@dataclass(slots=True)
class MapProto(Message):
    """Keys, which are integers or text, and as many values."""

    keys: Annotated[list[Array], 3, "varints"] = field(default_factory=list)
    texts: Annotated[list[memoryview], 4] = field(default_factory=list)
    values: Annotated[SequenceProto | None, 5] = None


@dataclass(slots=True)
class OptionalProto(Message):
    """A value, or none."""

    name: Annotated[str, 1, _UNREAD] = ""
    kind: Annotated[int, 2, _UNREAD] = 0
    tensor: Annotated[TensorProto | None, 3] = None
    sequence: Annotated[SequenceProto | None, 5] = None
    map: Annotated[MapProto | None, 6] = None
    optional: Annotated[OptionalProto | None, 7] = None


@dataclass(slots=True)
class DimensionProto(Message):
    """One size of a declared shape: a number, a name, or neither."""

    value: Annotated[int | None, 1] = None
    param: Annotated[str, 2] = ""


@dataclass(slots=True)
class TensorShapeProto(Message):
    """A declared shape."""

    dims: Annotated[list[DimensionProto], 1] = field(default_factory=list)


@dataclass(slots=True)
class TensorTypeProto(Message):
    """Element type and shape."""

    elem: Annotated[int, 1] = 0
    shape: Annotated[TensorShapeProto | None, 2] = None


@dataclass(slots=True)
class MapTypeProto(Message):
    """A map's type; its fields do not matter."""

    key: Annotated[int, 1, _UNREAD] = 0


@dataclass(slots=True)
class TypeProto(Message):
    """The type of a value: a tensor, or what holds others."""

    tensor: Annotated[TensorTypeProto | None, 1] = None
    sequence: Annotated[ContainerTypeProto | None, 4] = None
    map: Annotated[MapTypeProto | None, 5] = None
    sparse: Annotated[TensorTypeProto | None, 8] = None
    optional: Annotated[ContainerTypeProto | None, 9] = None


@dataclass(slots=True)
class ContainerTypeProto(Message):
    """A sequence or optional value of another type."""

    of: Annotated[TypeProto | None, 1] = None


@dataclass(slots=True)
class ValueInfoProto(Message):
    """A name and what type it has."""

    name: Annotated[str, 1] = ""
    type: Annotated[TypeProto | None, 2] = None


@dataclass(slots=True)
class AttributeProto(Message):
    """An attribute of a node: which of the values counts, its type says."""

    name: Annotated[str, 1] = ""
    f: Annotated[float, 2] = 0.0
    i: Annotated[int, 3] = 0
    s: Annotated[bytes, 4] = b""
    t: Annotated[TensorProto | None, 5] = None
    g: Annotated[GraphProto | None, 6] = None
    floats: Annotated[list[Array], 7, "<f4"] = field(default_factory=list)
    ints: Annotated[list[Array], 8, "varints"] = field(default_factory=list)
    strings: Annotated[list[memoryview], 9] = field(default_factory=list)
    tensors: Annotated[list[TensorProto], 10] = field(default_factory=list)
    graphs: Annotated[list[GraphProto], 11] = field(default_factory=list)
    kind: Annotated[TypeProto | None, 14] = None
    type: Annotated[int, 20] = 0
    ref: Annotated[str, 21] = ""
    sparse: Annotated[SparseTensorProto | None, 22] = None


@dataclass(slots=True)
class NodeProto(Message):
    """An operator applied to names."""

    inputs: Annotated[list[str], 1] = field(default_factory=list)
    outputs: Annotated[list[str], 2] = field(default_factory=list)
    name: Annotated[str, 3] = ""
    op: Annotated[str, 4] = ""
    attributes: Annotated[list[AttributeProto], 5] = field(default_factory=list)
    doc: Annotated[str, 6, _UNREAD] = ""
    domain: Annotated[str, 7] = ""
    overload: Annotated[str, 8] = ""


@dataclass(slots=True)
class GraphProto(Message):
    """Nodes in order, initializers, inputs and outputs."""

    nodes: Annotated[list[NodeProto], 1] = field(default_factory=list)
    name: Annotated[str, 2] = ""
    initializers: Annotated[list[TensorProto], 5] = field(default_factory=list)
    doc: Annotated[str, 10, _UNREAD] = ""
    inputs: Annotated[list[ValueInfoProto], 11] = field(default_factory=list)
    outputs: Annotated[list[ValueInfoProto], 12] = field(default_factory=list)
    infos: Annotated[list[ValueInfoProto], 13, _UNREAD] = field(default_factory=list)
    sparse: Annotated[list[SparseTensorProto], 15] = field(default_factory=list)

    @property
    def stored(self) -> set[str]:
        """The names of the tensors that are stored, dense or sparse."""
        values = [s.values for s in self.sparse]
        return {t.name for t in (*self.initializers, *values) if t is not None}


@dataclass(slots=True)
class OperatorSetIdProto(Message):
    """A domain and the version of its operators."""

    domain: Annotated[str, 1] = ""
    version: Annotated[int, 2] = 0


@dataclass(slots=True)
class FunctionProto(Message):
    """An operator that is composed of others."""

    name: Annotated[str, 1] = ""
    inputs: Annotated[list[str], 4] = field(default_factory=list)
    outputs: Annotated[list[str], 5] = field(default_factory=list)
    attributes: Annotated[list[str], 6] = field(default_factory=list)
    nodes: Annotated[list[NodeProto], 7] = field(default_factory=list)
    opsets: Annotated[list[OperatorSetIdProto], 9] = field(default_factory=list)
    domain: Annotated[str, 10] = ""
    defaults: Annotated[list[AttributeProto], 11] = field(default_factory=list)
    overload: Annotated[str, 13] = ""


@dataclass(slots=True)
class ModelProto(Message):
    """A whole file."""

    ir_version: Annotated[int, 1] = 0
    producer: Annotated[str, 2] = ""
    producer_version: Annotated[str, 3] = ""
    domain: Annotated[str, 4, _UNREAD] = ""
    model_version: Annotated[int, 5, _UNREAD] = 0
    doc: Annotated[str, 6, _UNREAD] = ""
    graph: Annotated[GraphProto | None, 7] = None
    opsets: Annotated[list[OperatorSetIdProto], 8] = field(default_factory=list)
    properties: Annotated[list[StringStringEntryProto], 14] = field(default_factory=list)
    functions: Annotated[list[FunctionProto], 25] = field(default_factory=list)


# Reading


def parse(
    kind: type[M], data: memoryview, base: int = 0, depth: int = 0, count: Iterator[int] | None = None
) -> M:
    """Read one message.

    Args:
        kind: which message the bytes are.
        data: its bytes.
        base: where they begin in the file.
        depth: how many messages are around it.
        count: counts those that there may be: each takes far more memory than its two bytes in the file.

    Raises:
        FormatError: the bytes are no such message, or of nothing but empty ones.
    """
    if depth > _DEPTH:
        raise FormatError(f"messages are nested deeper than {_DEPTH}", offset=base)
    count = count or iter(range(_MESSAGES + len(data) // _BYTES_EACH))
    if next(count, None) is None:
        raise FormatError("the file consists of more messages than its size allows", offset=base)
    message = kind()
    table = schema(kind)
    for number, wire, value, where in fields(data, base):
        entry = table.get(number)
        if entry is None or not entry.read:
            continue
        name, target, many = entry[:3]
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
    entry: MessageField, wire: int, value: int | memoryview, where: int, depth: int, count: Iterator[int]
) -> object:
    kind = entry.kind
    if wire != {int: VARINT, float: FIXED32}.get(kind, BYTES):
        raise _wrong(entry.name, where)
    if isinstance(value, int):
        return signed(value) if kind is int else float(np.uint32(value).view(np.float32))
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


# Writing


def pieces(message: Message) -> list[Piece]:
    """Encode a message as bytes, in pieces whose concatenation it is: what it holds is not copied.

    Fields are written in the order of their numbers, repeated numbers one by one, as the messages' own schema (proto2)
    does. Strings are UTF-8; all integers are little endian base-128 numbers of 64 bits.

    >>> pieces(StringStringEntryProto("k", "v"))
    [b'\\n\\x01', b'k', b'\\x12\\x01', b'v']
    """
    found: list[Piece] = []
    _write(message, found)
    return found


def _write(message: Message, out: list[Piece]) -> int:
    """Append the pieces of a message; how many bytes they are."""
    # Of an attribute the value that counts is written even where it holds nothing.
    size, kept = 0, {1: "f", 2: "i", 3: "s"}.get(message.type if isinstance(message, AttributeProto) else 0)
    for name, kind, many, _, absent, tag in schema(type(message)).values():
        held = getattr(message, name)
        if (not held and name != kept) if many or absent is not None else held is None:
            continue
        for value in held if many else (held,):
            if kind in _ALONE:
                out.append(_numbers_of(kind, tag, value))
                size += len(out[-1])
                continue
            inner: list[Piece] = []
            if kind is str or kind is bytes:
                inner.append(utf8(value) if kind is str else value)
                length = len(inner[0])
            else:
                length = _write(value, inner)
            head = tag + varint(length)
            out.append(head)
            out += inner
            size += len(head) + length
    return size


_ALONE = frozenset((int, float, "<f4", "<f8", "varints"))
"""Kinds that stand behind a tag alone."""


def _numbers_of(kind: Any, tag: bytes, value: Any) -> bytes:  # noqa: ANN401 - what the schema says
    numbers = value if isinstance(kind, str) else (value,)
    if kind is float or kind == "<f4":
        return b"".join(tag + struct.pack("<f", v) for v in numbers)
    return b"".join(tag + varint(int(v)) for v in numbers)


def utf8(text: str) -> bytes:
    """Return the bytes of a text; where a name of another file was no UTF-8, its bytes are written as escapes.

    Raises:
        UnicodeEncodeError: the text holds half a character.
    """
    if text.isascii():
        return text.encode()
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").encode()


# Files


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
