"""The values of stored tensors as numpy arrays, views of the file where its bytes are numpy's.

Types that numpy lacks are stored in ones that it has: bfloat16 and floats of 8 and 4 bits in float32, 4-bit and 2-bit
integers in 8-bit ones. Strings are of no use to a graph of MegEngine's operators and are refused.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..base.errors import FormatError
from ..base.files import FileWatch, mapped_file
from ..graph.dtypes import Array
from ..ops.registry import FoldingBudget, pay
from .messages import SparseTensorProto, TensorProto


class FloatFormat(NamedTuple):
    """The bit layout of a type.

    Attributes:
        exponent: how many bits the exponent has.
        mantissa: how many the mantissa has.
        bias: the exponent's code minus the exponent.
        infinite: whether it has infinities.
        signed_zero: whether it has a negative zero; where not, its code is the one NaN.
        largest: the largest number.
    """

    exponent: int
    mantissa: int
    bias: int
    infinite: bool
    signed_zero: bool
    largest: float

    @property
    def least(self) -> float:
        """The distance of the smallest numbers."""
        return 2.0 ** (1 - self.bias - self.mantissa)


FLOAT4, E8M0 = 23, 24
SMALL_FLOATS: dict[int, FloatFormat] = {
    17: FloatFormat(4, 3, 7, False, True, 448.0),
    18: FloatFormat(4, 3, 8, False, False, 240.0),
    19: FloatFormat(5, 2, 15, True, True, 57344.0),
    20: FloatFormat(5, 2, 16, False, False, 57344.0),
    FLOAT4: FloatFormat(2, 1, 1, False, True, 6.0),
}
"""By ONNX's number of the type: float8e4m3fn, float8e4m3fnuz, float8e5m2, float8e5m2fnuz, float4e2m1."""


@cache
def _table(kind: int) -> Array:
    if kind == E8M0:
        powers = np.ldexp(np.float32(1), np.arange(255) - 127).astype(np.float32)
        return np.append(powers, np.float32(np.nan))
    layout = SMALL_FLOATS[kind]
    bits = layout.exponent + layout.mantissa
    codes = np.arange(1 << bits)
    power, rest = codes >> layout.mantissa, codes & ((1 << layout.mantissa) - 1)
    whole = np.where(power > 0, rest + (1 << layout.mantissa), rest)
    positive = np.ldexp(whole.astype(np.float32), np.maximum(power, 1) - layout.bias - layout.mantissa)
    positive[positive > layout.largest] = np.nan
    if layout.infinite:
        positive[(power == (1 << layout.exponent) - 1) & (rest == 0)] = np.inf
    both = np.concatenate([positive, -positive])
    if not layout.signed_zero:
        both[1 << bits] = np.nan
    return both.astype(np.float32)


def decoded(codes: Array, kind: int) -> Array:
    """Decode codes to float32 numbers."""
    return _table(kind)[codes]


class ElemType(IntEnum):
    """Numbers of TensorProto.DataType."""

    FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, STRING, BOOL = range(1, 10)
    FLOAT16, DOUBLE, UINT32, UINT64, COMPLEX64, COMPLEX128, BFLOAT16 = range(10, 17)
    FLOAT8E4M3FN, FLOAT8E4M3FNUZ, FLOAT8E5M2, FLOAT8E5M2FNUZ, UINT4, INT4 = range(17, 23)
    FLOAT4E2M1, FLOAT8E8M0, UINT2, INT2 = range(23, 27)

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


STRING = 8
NAMES = {e.value: e.name.lower() for e in ElemType}
"""ONNX's names of the types by their numbers."""
HELD: dict[int, Any] = dict(
    zip((1, *range(2, 8), *range(9, 14)), "f4 u1 i1 u2 i2 i4 i8 b1 f2 f8 u4 u8".split(), strict=True)
)
HELD |= (
    dict.fromkeys((16, *SMALL_FLOATS, E8M0), "f4")
    | dict.fromkeys((21, 25), "u1")
    | dict.fromkeys((22, 26), "i1")
)
"""The dtypes that hold the values."""
_NUMPY = {ElemType(k): HELD[k] for k in HELD if k < STRING or STRING < k < 14} | {ElemType.COMPLEX64: "c8"}
_ELEM = {text: elem for elem, text in _NUMPY.items()}
_BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}
_CODES = frozenset((*SMALL_FLOATS, E8M0))
_SIGNED = (22, 26)
_BYTES, _BYTES_EACH = 64 << 20, 64
"""Bytes of results that any file may ask for while it is read, and for each of its bytes."""
_OPERATIONS, _OPERATIONS_EACH = 10**9, 2000
_RECORDED, _RECORDED_EACH = 35_000, 0.25
"""Operators that any model may be made of, however few nodes stand in the file, and for each of the file's bytes."""
_INT32S = frozenset((2, 3, 4, 5, 6, 9, 10, 16, 21, 22, 25, 26)) | _CODES


class UnsupportedTensorTypeError(Exception):
    """A stored tensor has a type that no array can hold."""


def kind_name(kind: int) -> str:
    """Return ONNX's name of an element type."""
    return NAMES.get(kind, f"type {kind}")


class ExternalData:
    """Files beside a model that hold its tensors; nothing outside the model's folder is opened.

    Args:
        folder: the model's folder, None for a model that is no file.
        copy: read the files into memory, instead of mapping them.

    Attributes:
        watches: return whether the files that are mapped are still as they were.
    """

    def __init__(self, folder: Path | None, *, copy: bool = False) -> None:
        self.folder = folder
        self.watches: list[FileWatch] = []
        self._copy = copy
        self._budget = FoldingBudget(0, 0)
        self._open: dict[str, memoryview] = {}

    def folding(self, size: int) -> FoldingBudget:
        """Return the budget for constant folding while a graph is built; it grows with every file opened meanwhile.

        Args:
            size: bytes of the model's own file.
        """
        size += self.size
        recorded = _RECORDED + int(_RECORDED_EACH * size)
        self._budget = FoldingBudget(
            _BYTES + _BYTES_EACH * size, _OPERATIONS + _OPERATIONS_EACH * size, recorded
        )
        return self._budget

    @property
    def size(self) -> int:
        """Bytes of the files that were opened."""
        return sum(map(len, self._open.values()))

    def bytes(self, tensor: TensorProto) -> memoryview:
        """Return the bytes of a tensor that is outside.

        Raises:
            FormatError: the path is not inside the folder, or the file is too short.
        """
        said = {e.key: e.value for e in tensor.external}
        data = self._file(said.get("location", ""), tensor.name)
        try:
            offset = int(said.get("offset", "0") or 0)
            length = int(said["length"]) if said.get("length") else len(data) - offset
        except ValueError:
            raise FormatError(f"tensor {tensor.name!r}: offset and length must be numbers") from None
        if offset < 0 or length < 0 or offset + length > len(data):
            raise FormatError(
                f"tensor {tensor.name!r} is at byte {offset} for {length} bytes, but the file "
                f"{said.get('location')!r} has {len(data)}"
            )
        return data[offset : offset + length]

    def _file(self, name: str, tensor: str) -> memoryview:
        if name in self._open:
            return self._open[name]
        if self.folder is None:
            raise FormatError(
                f"tensor {tensor!r} is in the file {name!r}; load the model by its path, so that its folder is known"
            )
        parts = name.replace("\\", "/").split("/")
        inside = name and "\0" not in name and ".." not in parts
        if not inside or ":" in parts[0] or parts[0] == "":
            raise FormatError(
                f"tensor {tensor!r} names the file {name!r}; expected a plain name inside the model's folder"
            )
        folder = self.folder.resolve()
        path = folder.joinpath(*parts)
        try:
            real = path.resolve(strict=True)
            if real != path or not stat.S_ISREG(real.stat().st_mode):
                raise FormatError(
                    f"tensor {tensor!r} names {name!r}, which leads to {real}: expected a plain file in "
                    "the model's folder"
                )
            data, watch = mapped_file(real, "the weights of a model", self._copy, plain=True)
        except (OSError, ValueError, RuntimeError) as e:
            if isinstance(e, FormatError):
                raise
            raise FormatError(
                f"tensor {tensor!r} is in the file {name!r}, which cannot be read: {e}"
            ) from None
        self._open[name] = data
        if watch is not None:
            self.watches.append(watch)
        self._budget.add(FoldingBudget(_BYTES_EACH * len(data), _OPERATIONS_EACH * len(data)))
        return data


def array(tensor: TensorProto, external: ExternalData | None = None) -> Array:
    """Decode the value of a stored tensor.

    Raises:
        FormatError: the bytes do not fit its type and shape.
        UnsupportedTensorTypeError: it holds strings or complex numbers.
    """
    kind = tensor.data_type
    if kind not in HELD:
        if kind not in NAMES:
            raise FormatError(f"tensor {tensor.name!r} has the unknown element type {kind}")
        raise UnsupportedTensorTypeError(f"holds {kind_name(kind)}, which MegEngine does not have")
    if any(d < 0 for d in tensor.dims) or len(tensor.dims) > 64:
        raise FormatError(f"tensor {tensor.name!r} has the shape {tensor.dims}")
    count = prod(tensor.dims)
    raw = tensor.raw
    if tensor.location == 1:
        raw = (external or ExternalData(None)).bytes(tensor)
    if raw is not None and (len(raw) or not _listed(tensor, kind)):
        values = _from_raw(raw, kind, count, tensor.name)
    else:
        values = _from_list(_listed(tensor, kind), kind, count)
    if values.size != count:
        raise FormatError(
            f"tensor {tensor.name!r} of shape {tensor.dims} takes {count} elements, found {values.size}"
        )
    return _shaped(values, tensor.name, tensor.dims)


def _shaped(values: Array, name: str, dims: Sequence[int]) -> Array:
    """Reshape an array to as many elements.

    Raises:
        FormatError: no array can have that shape, even one of no elements.
    """
    try:
        return values.reshape(dims)
    except (ValueError, OverflowError):
        raise FormatError(f"tensor {name!r} has the impossible shape {list(dims)}") from None


def texts(tensor: TensorProto) -> Array:
    """Return the text of a stored tensor as Python strings.

    Raises:
        FormatError: the number of strings does not match its shape.
    """
    strings = np.array([bytes(s).decode("utf-8", "replace") for s in tensor.strings], object)
    if any(d < 0 for d in tensor.dims) or len(tensor.dims) > 64 or strings.size != prod(tensor.dims):
        raise FormatError(
            f"tensor {tensor.name!r} of shape {tensor.dims} takes {prod(tensor.dims)} elements, found {strings.size}"
        )
    return _shaped(strings, tensor.name, tensor.dims)


def _listed(tensor: TensorProto, kind: int) -> list[Array]:
    if kind == 1:
        return tensor.floats
    if kind == 7:
        return tensor.int64s
    if kind == 11:
        return tensor.doubles
    return tensor.int32s if kind in _INT32S else tensor.uint64s


def _from_raw(raw: memoryview, kind: int, count: int, name: str) -> Array:
    if kind in _BITS:
        values = _spread(np.frombuffer(raw, np.uint8), kind, count)
        return decoded(values, kind) if kind in _CODES else values
    stored = np.dtype("<u2") if kind == 16 else np.dtype(HELD[kind]).newbyteorder("<")
    if kind in _CODES:
        stored = np.dtype(np.uint8)
    if len(raw) != count * stored.itemsize:
        raise FormatError(
            f"tensor {name!r} takes {count * stored.itemsize} bytes for its shape, found {len(raw)}"
        )
    if kind == 9:
        return np.frombuffer(raw, np.uint8) != 0
    values = np.frombuffer(raw, stored)
    if kind in _CODES:
        return decoded(values, kind)
    return _brain(values) if kind == 16 else values


def _from_list(rows: list[Array], kind: int, count: int) -> Array:
    values = np.concatenate(rows) if rows else np.zeros(0, HELD[kind])
    if kind in (1, 11):
        return values
    if kind in _BITS or kind in _CODES:
        codes = values.astype(np.uint8)
        codes = _spread(codes, kind, count) if kind in _BITS else codes
        return decoded(codes, kind) if kind in _CODES else codes
    if kind in (10, 16):
        bits = values.astype(np.uint16)
        return bits.view(np.float16) if kind == 10 else _brain(bits)
    return values.view(np.uint64) if kind == 13 else values.astype(HELD[kind])


def _brain(bits: Array) -> Array:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _spread(raw: Array, kind: int, count: int) -> Array:
    """Unpack elements of 4 or 2 bits, the lowest first, to one per byte."""
    bits = _BITS[kind]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    elements = ((raw[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)
    if -(-count * bits // 8) == raw.size:
        elements = elements[:count]
    if kind in _SIGNED:
        half = np.int8(1 << (bits - 1))
        return (elements.astype(np.int8) ^ half) - half
    return elements


def dense(sparse: SparseTensorProto, external: ExternalData | None = None) -> Array:
    """Return the value of a sparse tensor with its zeros.

    Raises:
        FormatError: an index is outside, or the parts do not fit each other.
    """
    if sparse.values is None or sparse.indices is None:
        raise FormatError("a sparse tensor has no values or no indices")
    values, where = array(sparse.values, external).reshape(-1), array(sparse.indices, external)
    if where.dtype.kind != "i":
        raise FormatError(f"the indices of a sparse tensor must be int64, found {where.dtype}")
    if any(d < 0 for d in sparse.dims) or prod(sparse.dims) > 1 << 28:
        raise FormatError(f"a sparse tensor has the shape {sparse.dims}")
    if where.ndim == 2 and where.shape[1] == len(sparse.dims):
        inside = (where >= 0).all() and (where < np.array(sparse.dims)).all()
        flat = np.ravel_multi_index(tuple(where.T), sparse.dims) if inside else np.array([-1])
    else:
        flat = where.reshape(-1)
    pay(prod(sparse.dims) * values.itemsize)
    full = np.zeros(prod(sparse.dims), values.dtype)
    if flat.size != values.size or (flat.size and (flat.min() < 0 or flat.max() >= full.size)):
        raise FormatError(f"the {values.size} values of a sparse tensor do not fit its indices")
    full[flat] = values
    return _shaped(full, sparse.values.name, sparse.dims)
