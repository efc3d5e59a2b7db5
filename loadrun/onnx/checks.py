"""Checks by the rule of ONNX's backend tests, |expect - get| <= atol + rtol * |expect|, and the values they compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..base.errors import FormatError
from ..build import emit as e
from ..graph import params as P
from ..graph.dtypes import Array
from ..tensors import Tensor, apply1, const
from ..tensors.access import as_vector, dtype_of
from ..testcase import FileValue
from .messages import Message, MessageField, TensorProto, TypeProto, parse
from .tensors import STRING, ExternalData, array, texts
from .values import BF16

__all__ = ["ATOL", "BRAIN_RTOL", "RTOL", "check", "check_within", "parsed", "tensor_value"]

RTOL, ATOL = 1e-3, 1e-7
BRAIN_RTOL = 2.0**-6
_M, _T = P.ElemwiseMode, P.ElemwiseMultiTypeMode


def check(expect: Tensor, get: Tensor, kind: int, rtol: float = RTOL, atol: float = ATOL) -> Tensor:
    """Build an AssertEqual that passes if no difference exceeds the tolerance.

    Equal infinities agree, and so does NaN with NaN. Values of different shapes do not.

    Args:
        expect: the expected value.
        get: what the graph computes.
        kind: ONNX's type of it; bfloat16 is compared with two of its last places.
        rtol: how much may differ in proportion to the expected value.
        atol: how much may differ anyway.
    """
    # MegEngine's operator wants its three inputs of one dtype; what that rounds is far below the tolerance.
    a, b = (e.real(as_vector(v)) for v in (expect, get))
    if kind == BF16:
        rtol = max(rtol, BRAIN_RTOL)
    missing = e.elem(_M.AND, e.is_nan(a), e.is_nan(b))
    same = e.elem(_M.OR, e.compare(_T.EQ, a, b), missing)
    difference = e.elem(_M.ABS, e.elem(_M.SUB, a, b))
    allowed = e.elem(
        _M.ADD, e.elem(_M.MUL, const(rtol, dtype_of(a)), e.elem(_M.ABS, a)), const(atol, dtype_of(a))
    )
    ratio = e.where(same, const(0.0, dtype_of(a)), e.elem(_M.TRUE_DIV, difference, allowed))
    worst = apply1(
        "ReduceV2", P.Reduce(mode=P.ReduceMode.MAX), inputs=[ratio, as_vector(const(1))], scalar=False
    )
    sizes = [apply1("GetVarShapeV1", P.OptionalAxisV1(), inputs=[v], scalar=False) for v in (a, b)]
    other = e.logical_not(e.compare(_T.EQ, *sizes))
    shaped = as_vector(e.reduce(e.cast(other, dtype_of(a)), P.ReduceMode.MAX, [0]))
    err = e.elem(_M.ADD, worst, e.elem(_M.MUL, shaped, const(1e30, dtype_of(a))))
    param = P.AssertEqual(maxerr=1.0, verbose=False)
    return apply1("AssertEqual", param, inputs=[a, b, err], scalar=False)


def check_within(expect: Tensor, get: Tensor, maxerr: float) -> Tensor:
    """Build an AssertEqual with MegEngine's formula, for a model that was a dump with such a check.

    Args:
        expect: the expected value.
        get: what the graph computes.
        maxerr: its tolerance.
    """
    a, b = (e.real(as_vector(v)) for v in (expect, get))
    top = e.elem(_M.ABS, e.elem(_M.SUB, a, b))
    least = e.elem(_M.MIN, e.elem(_M.ABS, a), e.elem(_M.ABS, b))
    ratio = e.elem(_M.TRUE_DIV, top, e.elem(_M.MAX, least, const(1.0, dtype_of(a))))
    worst = P.Reduce(mode=P.ReduceMode.MAX)
    err = apply1("ReduceV2", worst, inputs=[ratio, as_vector(const(1))], scalar=False)
    param = P.AssertEqual(maxerr=maxerr, verbose=False)
    return apply1("AssertEqual", param, inputs=[a, b, err], scalar=False)


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
    values: list[FileValue] = [tensor_value(t, external) for t in proto.tensors]
    values += [_items(s, external) for s in proto.sequences]
    values += [_map(m, external) for m in proto.maps]
    return values + [_optional(o, external) for o in proto.optionals]


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
