"""ONNX's element types as types of a graph."""

from __future__ import annotations

from ..base.errors import FormatError
from ..graph.composite import ObjectType
from ..graph.dtypes import DType
from .messages import TypeProto, ValueInfoProto
from .tensors import NAMES

__all__ = ["dtype_of_kind", "kind_of_dtype", "sizes_of", "type_of"]


def type_of(kind: TypeProto | None) -> DType | None:
    """Return a declared type as a graph holds it, None if it is not declared."""
    if kind is None:
        return None
    if kind.tensor is not None:
        return dtype_of_kind(kind.tensor.elem) if kind.tensor.elem else None
    if kind.sequence is not None:
        return ObjectType("sequence", type_of(kind.sequence.of))
    if kind.optional is not None:
        return ObjectType("optional", type_of(kind.optional.of))
    return ObjectType("map") if kind.map is not None else None


def sizes_of(info: ValueInfoProto) -> tuple[int | str | None, ...] | None:
    """Return the declared sizes of a tensor, or of those that a sequence or an optional value holds.

    They are numbers, names of open ones or None; None stands for no shape.
    """
    kind = info.type
    while kind is not None and (holder := kind.sequence or kind.optional) is not None:
        kind = holder.of
    tensor = kind.tensor if kind is not None else None
    if tensor is None or tensor.shape is None:
        return None
    return tuple(d.param or None if d.value is None or d.value < 0 else d.value for d in tensor.shape.dims)


_OWN = {"float": "Float32", "double": "Float64", "bfloat16": "BFloat16", "float4e2m1": "Float4E2M1"}
_OWN |= {f"float8{n}": f"Float8{n.upper()}" for n in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0")}
_DTYPES = {kind: DType(_OWN.get(name, name.capitalize())) for kind, name in NAMES.items()}
_KINDS = {dtype.name: kind for kind, dtype in _DTYPES.items()}


def dtype_of_kind(kind: int) -> DType:
    """Return the type with ONNX's number.

    Raises:
        FormatError: there is none.

    >>> dtype_of_kind(16).name
    'BFloat16'
    """
    if kind not in _DTYPES:
        raise FormatError(f"the unknown element type {kind}")
    return _DTYPES[kind]


def kind_of_dtype(dtype: DType) -> int:
    """Return ONNX's number of a type.

    >>> kind_of_dtype(DType("Int64"))
    7
    """
    return _KINDS[dtype.name]
