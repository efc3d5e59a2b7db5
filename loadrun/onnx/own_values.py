"""Values of test data in the types that an ONNX file declares: tensors of any type, text, sequences, maps, nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..base.errors import FormatError
from ..graph.dtypes import Array
from ..testcase import FileValue
from .messages import Message, MessageField, TensorProto, TypeProto, parse
from .tensors import STRING, ExternalData, array, texts

__all__ = ["parsed", "tensor_value"]


@dataclass
class SequenceProto(Message):
    """A sequence of values, all of one kind."""

    tensors: list[TensorProto] = field(default_factory=list)
    sequences: list[SequenceProto] = field(default_factory=list)
    maps: list[MapProto] = field(default_factory=list)
    optionals: list[OptionalProto] = field(default_factory=list)


@dataclass
class MapProto(Message):
    """Keys, which are integers or text, and as many values."""

    keys: list[Array] = field(default_factory=list)
    texts: list[memoryview] = field(default_factory=list)
    values: SequenceProto | None = None


@dataclass
class OptionalProto(Message):
    """A value, or none."""

    tensor: TensorProto | None = None
    sequence: SequenceProto | None = None
    map: MapProto | None = None
    optional: OptionalProto | None = None


SequenceProto.FIELDS = {
    3: MessageField("tensors", TensorProto, True),
    5: MessageField("sequences", SequenceProto, True),
    6: MessageField("maps", MapProto, True),
    7: MessageField("optionals", OptionalProto, True),
}
MapProto.FIELDS = {
    3: MessageField("keys", "varints", True),
    4: MessageField("texts", bytes, True),
    5: MessageField("values", SequenceProto),
}
OptionalProto.FIELDS = {
    3: MessageField("tensor", TensorProto),
    5: MessageField("sequence", SequenceProto),
    6: MessageField("map", MapProto),
    7: MessageField("optional", OptionalProto),
}


def parsed(data: memoryview, kind: TypeProto | None, folder: Path) -> FileValue:
    """Parse the value in the bytes of a test data file.

    Args:
        data: the bytes.
        kind: the type that the model declares.
        folder: where data outside the file is.

    Raises:
        FormatError: the bytes are no such value.
        UnsupportedTensorTypeError: it holds complex numbers.
    """
    external = ExternalData(folder)
    if kind is not None and kind.sequence is not None:
        return _items(parse(SequenceProto, data), external)
    if kind is not None and kind.map is not None:
        return _map(parse(MapProto, data), external)
    if kind is not None and kind.optional is not None:
        # ONNX's own tests also store a present element without the wrapping message.
        try:
            return _optional(parse(OptionalProto, data), external)
        except FormatError:
            return parsed(data, kind.optional.of, folder)
    return tensor_value(parse(TensorProto, data), external)


def tensor_value(proto: TensorProto, external: ExternalData) -> Array:
    """Return the value of a tensor, including text."""
    return texts(proto) if proto.data_type == STRING else np.array(array(proto, external))


def _items(proto: SequenceProto, external: ExternalData) -> list[FileValue]:
    found: list[FileValue] = [tensor_value(t, external) for t in proto.tensors]
    found += [_items(s, external) for s in proto.sequences]
    found += [_map(m, external) for m in proto.maps]
    return found + [_optional(o, external) for o in proto.optionals]


def _map(proto: MapProto, external: ExternalData) -> dict[object, object]:
    keys: list[object] = [k for row in proto.keys for k in row.tolist()]
    keys += [bytes(t).decode("utf-8", "replace") for t in proto.texts]
    values = _items(proto.values, external) if proto.values is not None else []
    if len(keys) != len(values):
        raise FormatError(f"a map has {len(keys)} keys and {len(values)} values")
    return dict(zip(keys, values, strict=True))


def _optional(proto: OptionalProto, external: ExternalData) -> FileValue:
    if proto.tensor is not None:
        return tensor_value(proto.tensor, external)
    if proto.sequence is not None:
        return _items(proto.sequence, external)
    if proto.map is not None:
        return _map(proto.map, external)
    return _optional(proto.optional, external) if proto.optional is not None else None
