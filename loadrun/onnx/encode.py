"""Models as they are made, in numpy's and Python's types; `encode` turns one into the bytes of a file.

These come in pieces, by the schema of `messages`, so that weights are never copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np

from ..base.registry import late
from ..graph.dtypes import Array
from ..testcase import FileValue
from .messages import (
    AttributeProto,
    ContainerTypeProto,
    DimensionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    OptionalProto,
    Piece,
    SequenceProto,
    StringStringEntryProto,
    TensorProto,
    TensorShapeProto,
    TensorTypeProto,
    TypeProto,
    ValueInfoProto,
    pieces,
    utf8,
)
from .tensors import ElemType

with late(__name__):
    from . import types


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
            return types.coded_size(count, self.elem)
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
    float, str, bytes, TensorMessage, "GraphMessage", ValueMessage, Array, Sequence[float | str]
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

    @property
    def bodies(self) -> list[GraphMessage]:
        """The subgraphs of the node."""
        return [v for v in self.attributes.values() if isinstance(v, GraphMessage)]


@dataclass(eq=False)
class GraphMessage:
    """A GraphProto."""

    name: str
    nodes: list[NodeMessage] = field(default_factory=list)
    initializers: list[TensorMessage] = field(default_factory=list)
    inputs: list[ValueMessage] = field(default_factory=list)
    outputs: list[ValueMessage] = field(default_factory=list)


@dataclass(eq=False)
class ModelMessage:
    """A ModelProto; `opsets` gives the version of every domain ("" is ONNX's own)."""

    graph: GraphMessage
    opsets: Mapping[str, int]
    ir_version: int
    producer: str = "loadrun"
    producer_version: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


def unused(name: str, taken: set[str], mark: str = "#", first: int = 2) -> str:
    """Take a name that no value has yet: that one, or it with a number."""
    free, n = name, first
    while free in taken:
        free, n = f"{name}{mark}{n}", n + 1
    taken.add(free)
    return free


def encode(model: ModelMessage) -> list[Piece]:
    """Encode a model as bytes, in pieces.

    >>> graph = GraphMessage("g", [NodeMessage("Relu", ["x"], ["y"])])
    >>> b"".join(encode(ModelMessage(graph, {"": 18}, 8, producer="")))
    b'\\x08\\x08:\\x11\\n\\x0c\\n\\x01x\\x12\\x01y"\\x04Relu\\x12\\x01gB\\x02\\x10\\x12'
    """
    return pieces(
        ModelProto(
            ir_version=model.ir_version,
            producer=model.producer,
            producer_version=model.producer_version,
            graph=_graph(model.graph),
            opsets=[OperatorSetIdProto(*pair) for pair in model.opsets.items()],
            properties=[StringStringEntryProto(*pair) for pair in model.metadata.items()],
        )
    )


def encode_tensor(tensor: TensorMessage) -> list[Piece]:
    """Encode one TensorProto as bytes, as the files of a `test_data_set_N` folder hold it.

    >>> b"".join(encode_tensor(TensorMessage.of("x", np.array([1, 2], "i1"))))
    b'\\x08\\x02\\x10\\x03B\\x01xJ\\x02\\x01\\x02'
    """
    return pieces(_tensor(tensor))


def encode_value(name: str, value: FileValue, elem: ElemType, *, is_optional: bool) -> list[Piece]:
    """Encode a TensorProto, a SequenceProto of tensors, or an OptionalProto that holds one of these or nothing.

    >>> b"".join(encode_value("s", [np.zeros(1, "i1")], ElemType.INT8, is_optional=False))
    b'\\n\\x01s\\x10\\x01\\x1a\\x07\\x08\\x01\\x10\\x03J\\x01\\x00'
    """
    tensor = _tensor(TensorMessage.of(name, value, elem)) if isinstance(value, np.ndarray) else None
    items = value if tensor is None and value is not None else ()
    tensors = [_tensor(TensorMessage.of("", np.asarray(item), elem)) for item in items]
    sequence = SequenceProto(name, _TENSOR, tensors) if tensor is None else None
    if not is_optional:
        return pieces(tensor or sequence or SequenceProto())
    if value is None:
        return pieces(OptionalProto(name))
    return pieces(OptionalProto(name, _SEQUENCE if tensor is None else _TENSOR, tensor, sequence))


_TENSOR, _SEQUENCE = 1, 3
"""Kinds of values in sequences and optional values."""


def _graph(graph: GraphMessage) -> GraphProto:
    return GraphProto(
        nodes=[_node(n) for n in graph.nodes],
        name=graph.name,
        initializers=[_tensor(t) for t in graph.initializers],
        inputs=[_value(v) for v in graph.inputs],
        outputs=[_value(v) for v in graph.outputs],
    )


def _node(node: NodeMessage) -> NodeProto:
    attributes = [_attribute(n, v) for n, v in node.attributes.items()]
    return NodeProto(node.inputs, node.outputs, node.name, node.op_type, attributes, node.doc, node.domain)


def _attribute(name: str, value: Attribute) -> AttributeProto:
    if isinstance(value, (int, np.integer)):
        return AttributeProto(name, i=int(value), type=2)
    if isinstance(value, (float, np.floating)):
        return AttributeProto(name, f=float(value), type=1)
    if isinstance(value, (str, bytes)):
        return AttributeProto(name, s=value.encode() if isinstance(value, str) else value, type=3)
    if isinstance(value, TensorMessage):
        return AttributeProto(name, t=_tensor(value), type=4)
    if isinstance(value, GraphMessage):
        return AttributeProto(name, g=_graph(value), type=5)
    if isinstance(value, ValueMessage):
        return AttributeProto(name, kind=_type(value), type=13)
    if isinstance(value, np.ndarray) and not value.size:
        return AttributeProto(name, type={"f": 6, "U": 8}.get(value.dtype.kind, 7))
    values: list[Any] = list(value)
    if values and all(isinstance(v, str) for v in values):
        return AttributeProto(name, strings=[memoryview(v.encode()) for v in values], type=8)
    if any(isinstance(v, (float, np.floating)) for v in values):
        return AttributeProto(name, floats=[np.array(values, np.float32)], type=6)
    return AttributeProto(name, ints=[np.array(values, np.int64)], type=7)


def _tensor(tensor: TensorMessage) -> TensorProto:
    proto = TensorProto([*tensor.dims], int(tensor.elem), name=tensor.name)
    if tensor.external is not None:
        pairs = zip(("location", "offset", "length"), map(str, tensor.external), strict=True)
        proto.external, proto.location = [StringStringEntryProto(*pair) for pair in pairs], 1
    elif tensor.elem is ElemType.STRING and tensor.value is not None:
        proto.strings = [memoryview(utf8(item)) for item in tensor.value.reshape(-1).tolist()]
    elif tensor.value is not None:
        proto.raw = raw_bytes(tensor)
    return proto


def raw_bytes(tensor: TensorMessage) -> memoryview:
    """Return the elements of a tensor as a file stores them: little endian, row by row.

    Raises:
        ValueError: its type does not have one of the values.
    """
    assert tensor.value is not None
    if tensor.elem >= ElemType.BFLOAT16:
        return memoryview(types.coded_bytes(tensor.value, tensor.elem))
    flat = np.ascontiguousarray(tensor.value, tensor.elem.numpy.newbyteorder("<")).reshape(-1)
    raw: Array = flat.view(np.uint8)
    return raw.data


def _value(value: ValueMessage) -> ValueInfoProto:
    return ValueInfoProto(value.name, _type(value))


def _type(value: ValueMessage) -> TypeProto:
    shape = None
    if value.shape is not None:
        axes = [DimensionProto(param=n) if isinstance(n, str) else DimensionProto(n) for n in value.shape]
        shape = TensorShapeProto(axes)
    kind = TypeProto(TensorTypeProto(int(value.elem), shape))
    for number in reversed(value.held):
        held = ContainerTypeProto(kind)
        kind = TypeProto(sequence=held) if number == SEQUENCE else TypeProto(optional=held)
    return kind
