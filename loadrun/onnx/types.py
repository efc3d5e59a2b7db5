"""ONNX's element types, the shapes that a file declares, and values of types that numpy lacks."""

from collections.abc import Sequence
from math import prod

import numpy as np

from ..base.errors import FormatError
from ..graph.composite import ObjectType
from ..graph.dtypes import Array, DType, round_bfloat16
from .messages import TensorProto, TensorTypeProto, TypeProto, ValueInfoProto
from .tensors import FLOAT4, NAMES, array, decoded, kind_name


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


def tensor_in(kind: TypeProto | None) -> TensorTypeProto | None:
    """Return the type of a tensor, or of those that a sequence or an optional value holds; None of anything else."""
    while kind is not None and (holder := kind.sequence or kind.optional) is not None:
        kind = holder.of
    return None if kind is None else kind.tensor


def sizes_of(info: ValueInfoProto) -> tuple[int | str | None, ...] | None:
    """Return the declared sizes of a tensor, or of those that a sequence or an optional value holds.

    They are numbers, names of open ones or None; None stands for no shape.
    """
    tensor = tensor_in(info.type)
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


def declared_shape(info: ValueInfoProto) -> tuple[int | None, ...] | None:
    """Return the shape of an input as the file declares it, with None for open sizes; None without one."""
    sizes = sizes_of(info) if info.type is not None and info.type.tensor is not None else None
    return None if sizes is None else tuple(n if isinstance(n, int) else None for n in sizes)


def axis_of(info: ValueInfoProto, axis: int) -> tuple[int | None, str]:
    """Return the declared size of an input's axis (None if open) and its name, or a name made up for it."""
    declared = declared_shape(info)
    if declared is None:
        return None, f"{info.name} {axis}"
    name = (sizes_of(info) or ())[axis]
    return declared[axis], name if isinstance(name, str) else f"{info.name} {axis}"


class StandIn:
    """Sizes to assume where none are given: of the first axes, and of the others.

    Args:
        infos: the model's inputs; a first axis that shares its name with a later axis has the size of those.
        first, other: the sizes.
    """

    def __init__(self, infos: Sequence[ValueInfoProto], first: int, other: int) -> None:
        self.first, self.other = first, other
        self._other: set[str] = set()
        for info in infos:
            sizes = sizes_of(info) or ()
            self._other.update(n for n in (sizes[1:] if len(sizes) > 1 else sizes) if isinstance(n, str))
            if len(sizes) == 1:
                self._other.add(f"{info.name} 0")

    def of(self, name: str, axis: int) -> int:
        """Return the size of an axis by its name and number."""
        return self.other if axis or name in self._other else self.first


_BITS = {16: 16, **dict.fromkeys((17, 18, 19, 20, 24), 8), **dict.fromkeys((21, 22, 23), 4), 25: 2, 26: 2}
_WHOLE = (21, 22, 25, 26)
CODED = frozenset(_BITS)
"""ONNX's numbers of the types: bfloat16, floats of 8 and 4 bits, integers of 4 and 2 bits."""


def to_codes(values: Array, kind: int) -> Array:
    """Encode values, stored as `loadrun.onnx.tensors` stores them, in an array of the values' shape.

    Codes of less than a byte are packed, the lowest first, and fill the beginning of the array.

    >>> to_codes(np.array([1.5, 2.0], "f4"), 16).tolist(), to_codes(np.array([1, -1, 2], "i1"), 22).tolist()
    ([16320, 16384], [241, 2, 0])
    """
    if kind == 16:
        bits = round_bfloat16(values).view(np.uint32) >> np.uint32(16)
        return bits.astype(np.uint16).reshape(values.shape)
    width = _BITS[kind]
    codes = values.astype(np.int8).view(np.uint8) if kind in _WHOLE else codes_of_floats(values, kind)
    if width == 8:
        return codes.reshape(values.shape)
    per = 8 // width
    flat = codes.reshape(-1) & np.uint8((1 << width) - 1)
    shifts = np.arange(per, dtype=np.uint8) * np.uint8(width)
    rows = np.pad(flat, (0, -flat.size % per)).reshape(-1, per) << shifts
    packed = np.bitwise_or.reduce(rows, axis=1) if rows.size else np.zeros(0, np.uint8)
    return np.pad(packed, (0, flat.size - packed.size)).astype(np.uint8).reshape(values.shape)


def codes_of_floats(values: Array, kind: int) -> Array:
    """Encode floats of 8 or 4 bits, each of which must have a code, in a byte for each."""
    table = decoded(np.arange(16 if kind == FLOAT4 else 256), kind)
    signed = np.signbit(table)
    if not (signed & (table == 0)).any():
        values = values + np.float32(0)
    encoded = np.zeros(values.shape, np.uint8)
    for sign in (False, True):
        # A negative zero has a code of its own, where there is one.
        codes = np.flatnonzero((signed == sign) & ~np.isnan(table))
        codes = codes[np.argsort(table[codes])]
        mine = (np.signbit(values) == sign) & ~np.isnan(values)
        if codes.size:
            encoded[mine] = codes[np.searchsorted(table[codes], values[mine]).clip(0, codes.size - 1)]
    nan = np.flatnonzero(np.isnan(table))
    encoded[np.isnan(values)] = nan[0] if nan.size else 0
    return encoded


def coded_bytes(values: Array, kind: int) -> bytes:
    """Return the bytes that `from_codes` decodes: those that a file stores.

    Raises:
        ValueError: the type does not have one of the values; bfloat16 rounds them.

    >>> coded_bytes(np.array([1, -1, 2], "i1"), 22).hex()
    'f102'
    """
    size = coded_size(values.size, kind)
    raw = (
        np.ascontiguousarray(to_codes(values, kind)).astype(f"<u{max(1, _BITS[kind] // 8)}").tobytes()[:size]
    )
    if kind != 16:
        same = np.equal(from_codes(raw, kind, values.shape), values)
        if kind not in (FLOAT4, *_WHOLE):
            same |= np.isnan(values)
        if not same.all():
            raise ValueError(f"{kind_name(kind)} does not have the value {values[~same].flat[0]}")
    return raw


def coded_size(count: int, kind: int) -> int:
    """Return the number of bytes of some codes in a file.

    >>> coded_size(3, 22), coded_size(3, 16)
    (2, 6)
    """
    return -(-count * _BITS[kind] // 8)


def from_codes(raw: bytes, kind: int, shape: Sequence[int]) -> Array:
    """Decode the bytes of a tensor to its values.

    >>> from_codes(bytes([241, 2]), 22, [3]).tolist()
    [1, -1, 2]
    """
    size = coded_size(prod(shape), kind)
    return np.array(array(TensorProto(list(shape), kind, raw=memoryview(raw)[:size])))
