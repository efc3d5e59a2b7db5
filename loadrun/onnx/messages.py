"""The messages of an ONNX file as light records; what tensors hold stays where it lies.

Field numbers are those of onnx.proto. Unknown fields are skipped, as protobuf does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from ..dtypes import Array
from ..errors import FormatError
from .wire import BYTES, FIXED32, FIXED64, VARINT, fields, packed_varints, signed, text

__all__ = [
    "Attribute",
    "Entry",
    "Function",
    "GraphProto",
    "Model",
    "NodeProto",
    "OperatorSet",
    "SparseTensor",
    "TensorProto",
    "Type",
    "ValueInfo",
    "looks_like",
    "parse",
    "read_model",
]

_DEPTH = 64
_MODEL_FIELDS = frozenset((1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26))
M = TypeVar("M", bound="Message")


class Field(NamedTuple):
    """Where a field of a message goes."""

    name: str
    kind: Any
    many: bool = False


class Message:
    """A record whose fields are filled from the wire."""

    FIELDS: ClassVar[dict[int, Field]] = {}


@dataclass
class Entry(Message):
    """A key and a value, both text."""

    key: str = ""
    value: str = ""
    FIELDS = {1: Field("key", str), 2: Field("value", str)}


@dataclass
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
    external: list[Entry] = field(default_factory=list)
    location: int = 0
    FIELDS = {
        1: Field("dims", int, True),
        2: Field("data_type", int),
        4: Field("floats", "<f4", True),
        5: Field("int32s", "varints", True),
        6: Field("strings", bytes, True),
        7: Field("int64s", "varints", True),
        8: Field("name", str),
        9: Field("raw", bytes),
        10: Field("doubles", "<f8", True),
        11: Field("uint64s", "varints", True),
        13: Field("external", Entry, True),
        14: Field("location", int),
    }


@dataclass
class SparseTensor(Message):
    """Values and where they stand."""

    values: TensorProto | None = None
    indices: TensorProto | None = None
    dims: list[int] = field(default_factory=list)
    FIELDS = {1: Field("values", TensorProto), 2: Field("indices", TensorProto), 3: Field("dims", int, True)}


@dataclass
class Dimension(Message):
    """One size of a declared shape: a number, a name, or neither."""

    value: int | None = None
    param: str = ""
    FIELDS = {1: Field("value", int), 2: Field("param", str)}


@dataclass
class Shape(Message):
    """A declared shape."""

    dims: list[Dimension] = field(default_factory=list)
    FIELDS = {1: Field("dims", Dimension, True)}


@dataclass
class TensorType(Message):
    """Element type and shape."""

    elem: int = 0
    shape: Shape | None = None
    FIELDS = {1: Field("elem", int), 2: Field("shape", Shape)}


@dataclass
class Type(Message):
    """The type of a value: a tensor, or what holds others."""

    tensor: TensorType | None = None
    sequence: Holder | None = None
    map: Holder | None = None
    optional: Holder | None = None
    sparse: TensorType | None = None


@dataclass
class Holder(Message):
    """A sequence, map or optional value of another type."""

    of: Type | None = None
    FIELDS = {1: Field("of", Type)}


@dataclass
class Map(Message):
    """A map's type, of which nothing but its being a map matters."""


Type.FIELDS = {
    1: Field("tensor", TensorType),
    4: Field("sequence", Holder),
    5: Field("map", Map),
    8: Field("sparse", TensorType),
    9: Field("optional", Holder),
}


@dataclass
class ValueInfo(Message):
    """A name and what type it has."""

    name: str = ""
    type: Type | None = None
    FIELDS = {1: Field("name", str), 2: Field("type", Type)}


@dataclass
class Attribute(Message):
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
    sparse: SparseTensor | None = None


@dataclass
class NodeProto(Message):
    """An operator applied to names."""

    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    name: str = ""
    op: str = ""
    attributes: list[Attribute] = field(default_factory=list)
    domain: str = ""
    overload: str = ""
    FIELDS = {
        1: Field("inputs", str, True),
        2: Field("outputs", str, True),
        3: Field("name", str),
        4: Field("op", str),
        5: Field("attributes", Attribute, True),
        7: Field("domain", str),
        8: Field("overload", str),
    }


@dataclass
class GraphProto(Message):
    """Nodes in order, initializers, inputs and outputs."""

    nodes: list[NodeProto] = field(default_factory=list)
    name: str = ""
    initializers: list[TensorProto] = field(default_factory=list)
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)
    sparse: list[SparseTensor] = field(default_factory=list)
    FIELDS = {
        1: Field("nodes", NodeProto, True),
        2: Field("name", str),
        5: Field("initializers", TensorProto, True),
        11: Field("inputs", ValueInfo, True),
        12: Field("outputs", ValueInfo, True),
        15: Field("sparse", SparseTensor, True),
    }


Attribute.FIELDS = {
    1: Field("name", str),
    2: Field("f", float),
    3: Field("i", int),
    4: Field("s", bytes),
    5: Field("t", TensorProto),
    6: Field("g", GraphProto),
    7: Field("floats", "<f4", True),
    8: Field("ints", "varints", True),
    9: Field("strings", bytes, True),
    10: Field("tensors", TensorProto, True),
    11: Field("graphs", GraphProto, True),
    20: Field("type", int),
    21: Field("ref", str),
    22: Field("sparse", SparseTensor),
}


@dataclass
class OperatorSet(Message):
    """A domain and the version of its operators."""

    domain: str = ""
    version: int = 0
    FIELDS = {1: Field("domain", str), 2: Field("version", int)}


@dataclass
class Function(Message):
    """An operator that is made of others."""

    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    nodes: list[NodeProto] = field(default_factory=list)
    opsets: list[OperatorSet] = field(default_factory=list)
    domain: str = ""
    defaults: list[Attribute] = field(default_factory=list)
    overload: str = ""
    FIELDS = {
        1: Field("name", str),
        4: Field("inputs", str, True),
        5: Field("outputs", str, True),
        6: Field("attributes", str, True),
        7: Field("nodes", NodeProto, True),
        9: Field("opsets", OperatorSet, True),
        10: Field("domain", str),
        11: Field("defaults", Attribute, True),
        13: Field("overload", str),
    }


@dataclass
class Model(Message):
    """A whole file."""

    ir_version: int = 0
    producer: str = ""
    producer_version: str = ""
    graph: GraphProto | None = None
    opsets: list[OperatorSet] = field(default_factory=list)
    properties: list[Entry] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    FIELDS = {
        1: Field("ir_version", int),
        2: Field("producer", str),
        3: Field("producer_version", str),
        7: Field("graph", GraphProto),
        8: Field("opsets", OperatorSet, True),
        14: Field("properties", Entry, True),
        25: Field("functions", Function, True),
    }


def parse(kind: type[M], data: memoryview, base: int = 0, depth: int = 0) -> M:
    """Read one message.

    Args:
        kind: which message the bytes are.
        data: its bytes.
        base: where they begin in the file.
        depth: how many messages are around it.

    Raises:
        FormatError: the bytes are no such message.
    """
    if depth > _DEPTH:
        raise FormatError(f"messages lie in each other deeper than {_DEPTH}", offset=base)
    made = kind()
    table = kind.FIELDS
    for number, wire, value, where in fields(data, base):
        found = table.get(number)
        if found is None:
            continue
        if isinstance(found.kind, str):
            _numbers(getattr(made, found.name), found.kind, wire, value, where)
        elif found.many and found.kind is int and wire == BYTES:
            assert isinstance(value, memoryview)
            getattr(made, found.name).extend(packed_varints(value, where).tolist())
        else:
            one = _one(found, wire, value, where, depth)
            if found.many:
                getattr(made, found.name).append(one)
            else:
                setattr(made, found.name, one)
    return made


def _one(found: Field, wire: int, value: int | memoryview, where: int, depth: int) -> Any:
    kind = found.kind
    if kind is int:
        if wire != VARINT or not isinstance(value, int):
            raise _wrong(found.name, where)
        return signed(value)
    if kind is float:
        if wire != FIXED32 or not isinstance(value, int):
            raise _wrong(found.name, where)
        return float(np.uint32(value).view(np.float32))
    if not isinstance(value, memoryview):
        raise _wrong(found.name, where)
    if kind is str:
        return text(value, where)
    if kind is bytes:
        return value
    return parse(kind, value, where, depth + 1)


def _numbers(rows: list[Array], kind: str, wire: int, value: int | memoryview, where: int) -> None:
    """Append a field of numbers, which may be packed or stand one by one."""
    if isinstance(value, memoryview):
        if kind == "varints":
            rows.append(packed_varints(value, where))
            return
        if len(value) % int(kind[2]):
            raise FormatError(f"{len(value)} bytes are no whole number of {kind[1:]} numbers", offset=where)
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
    return FormatError(f"the field {name!r} has another type than ONNX gives it", offset=where)


def looks_like(data: memoryview) -> bool:
    """Whether some bytes are an ONNX model by their outermost fields; nothing inside is read.

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


def read_model(data: memoryview) -> Model:
    """Read a whole file.

    Raises:
        FormatError: it is no ONNX model.
    """
    model = parse(Model, data)
    if model.graph is None:
        raise FormatError("the file holds no graph, so it is no ONNX model", offset=0)
    return model
