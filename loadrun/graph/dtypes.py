"""Data types of .mge variables and their numpy storage.

A quantized type stands for ``real = (stored - zero_point) * scale``. In memory every value is a plain
numpy array of the type's storage dtype; 4-bit and 1-bit types hold one element per int8/uint8, and
BFloat16 is held as float32 rounded to bfloat16 precision. In files 4-bit rows are packed low nibble
first, each innermost row padded to a whole byte; the one bit of QuantizedS1, 0 or 1, takes a byte. IntB1, IntB2 and
IntB4 hold odd numbers from -(2**bits - 1) to 2**bits - 1, counted from 0 in a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from typing import Any

import numpy as np

from ..base.errors import FormatError, InputError
from .params import DTypeEnum

Array = np.ndarray[Any, Any]

# name -> (storage dtype in memory, bits per element in a file, range of stored values for quantized types)
_STORAGE: dict[str, tuple[str, int, tuple[int, int] | None]] = {
    "Float32": ("f4", 32, None),
    "Uint8": ("u1", 8, None),
    "Int8": ("i1", 8, None),
    "Int16": ("i2", 16, None),
    "Int32": ("i4", 32, None),
    "IntB1": ("i1", 1, None),
    "IntB2": ("i1", 2, None),
    "IntB4": ("i1", 4, None),
    "Byte": ("u1", 8, None),
    "Float16": ("f2", 16, None),
    "UintB4": ("u1", 4, None),
    "Quantized8Asymm": ("u1", 8, (0, 255)),
    "QuantizedS32": ("i4", 32, (-(2**31), 2**31 - 1)),
    "QuantizedS8": ("i1", 8, (-128, 127)),
    "Quantized4Asymm": ("u1", 4, (0, 15)),
    "QuantizedS4": ("i1", 4, (-8, 7)),
    "QuantizedS16": ("i2", 16, (-32768, 32767)),
    "BFloat16": ("f4", 16, None),
    "Bool": ("?", 8, None),
    "Uint16": ("u2", 16, None),
    "QuantizedS1": ("i1", 8, (0, 1)),
    "Complex64": ("c8", 64, None),
}
_WIDE = {
    "Int64": ("i8", 64, None),
    "Uint32": ("u4", 32, None),
    "Uint64": ("u8", 64, None),
    "Float64": ("f8", 64, None),
}
"""Types of graphs that come from ONNX, PyTorch or numpy; narrowed where a .mge file is written."""
_OTHERS = {
    "String": ("O", 0, None),
    "Object": ("O", 0, None),
    **{f"Float8{n}": ("f4", 8, None) for n in ("E4M3FN", "E4M3FNUZ", "E5M2", "E5M2FNUZ", "E8M0")},
    "Float4E2M1": ("f4", 4, None),
    "Int4": ("i1", 4, None),
    "Uint4": ("u1", 4, None),
    "Int2": ("i1", 2, None),
    "Uint2": ("u1", 2, None),
}
"""Types of graphs of composite operators and of values that other runtimes return; dumps do not have them.

Object is a sequence, map or optional value: an array without axes that holds it as Python does.
"""
_STORAGE |= _WIDE | _OTHERS
HELD_AS_FLOAT32 = frozenset(n for n, (kind, bits, _) in _STORAGE.items() if kind == "f4" and bits < 32)
"""Names of the types whose values are in memory as float32, of which they are a part."""


# That of the standard library, since types are compared and hashed all the time.
@dataclass(frozen=True)
class DType:
    """A variable's data type, with scale and zero point for quantized ones.

    >>> q = DType("Quantized8Asymm", 0.5, 128)
    >>> q.np, q.is_quantized, q.range
    (dtype('uint8'), True, (0, 255))
    >>> str(q), str(DType("Float32"))
    ('Quantized8Asymm(scale=0.5, zero_point=128)', 'Float32')
    """

    name: str
    scale: float = 0.0
    zero_point: int = 0

    def __post_init__(self) -> None:
        if self.scale:
            # Files and MegEngine hold it in 32 bits.
            object.__setattr__(self, "scale", float(np.float32(self.scale)))

    @property
    def code(self) -> int:
        """The `DTypeEnum` number of the type.

        Raises:
            FormatError: a .mge file has no such type.
        """
        if self.name not in DTypeEnum.__members__:
            raise FormatError(f"a .mge file cannot hold {self.spelling}")
        return int(DTypeEnum[self.name])

    @cached_property
    def np(self) -> np.dtype[Any]:
        """The numpy dtype of a value in memory."""
        return np.dtype(_STORAGE[self.name][0])

    @cached_property
    def bits(self) -> int:
        """Bits per element in a file."""
        return _STORAGE[self.name][1]

    @cached_property
    def is_quantized(self) -> bool:
        """True if values stand for reals by scale and zero point."""
        return _STORAGE[self.name][2] is not None

    @cached_property
    def is_asymmetric(self) -> bool:
        """True if the type has a zero point."""
        return self.name in ("Quantized8Asymm", "Quantized4Asymm")

    @cached_property
    def is_float(self) -> bool:
        """True if values are floating-point numbers."""
        return self.name in ("Float32", "Float16", "BFloat16", "Float64")

    @cached_property
    def is_wide(self) -> bool:
        """True for the types that ONNX, PyTorch and numpy have and a .mge file cannot hold.

        >>> DType("Int64").is_wide, DType("Int32").is_wide
        (True, False)
        """
        return self.name in _WIDE

    @cached_property
    def is_odd(self) -> bool:
        """True if values are odd numbers of few bits."""
        return self.name.startswith("IntB")

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest stored value of a quantized type."""
        r = _STORAGE[self.name][2]
        if r is None:
            raise ValueError(f"{self.name} is not a quantized type")
        return r

    # Every operator compares and looks up dtypes, nearly always the same objects: identity is the fast path.

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, DType) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[DType], tuple[str, float, int]]:
        return DType, self._key

    @property
    def _key(self) -> tuple[str, float, int]:
        return self.name, self.scale, self.zero_point

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    @property
    def spelling(self) -> str:
        """Its spelling in tables and reports: numpy's name where numpy has the type, else MegEngine's, without scale.

        >>> DType("Float32").spelling, DType("BFloat16").spelling, DType("QuantizedS8", 0.5).spelling
        ('float32', 'bfloat16', 'QuantizedS8')
        """
        if self.name == "BFloat16" or self.name in _OTHERS:
            return self.name.lower()
        return str(self.np) if self in _PLAIN.values() else self.name

    @property
    def text(self) -> str:
        """The spelling, of quantized types with scale and zero point.

        >>> DType("Int8").text, DType("QuantizedS8", 0.5).text
        ('int8', 'QuantizedS8(scale=0.5)')
        """
        return str(self) if self.is_quantized else self.spelling

    def __str__(self) -> str:
        if not self.is_quantized:
            return self.name
        zero = f", zero_point={self.zero_point}" if self.is_asymmetric else ""
        return f"{self.name}(scale={self.scale:.9g}{zero})"


_PLAIN = {
    np.dtype(t): DType(n)
    for n, t in {
        "Float32": "f4",
        "Float16": "f2",
        "Uint8": "u1",
        "Int8": "i1",
        "Int16": "i2",
        "Uint16": "u2",
        "Int32": "i4",
        "Bool": "?",
        "Complex64": "c8",
        **{n: kind for n, (kind, _, _) in _WIDE.items()},
    }.items()
}


def dtype_of(array: Array) -> DType:
    """Return the plain dtype that stores a numpy array without change.

    Raises:
        InputError: graphs have no such type (complex128 and text for instance).

    >>> dtype_of(np.zeros(3, "f2"))
    DType(name='Float16', scale=0.0, zero_point=0)
    """
    try:
        return _PLAIN[array.dtype.newbyteorder("=")]
    except KeyError:
        raise InputError(
            f"graphs have no dtype for numpy {array.dtype}; convert to one of {', '.join(map(str, _PLAIN))}"
        ) from None


def is_dtype_name(name: str) -> bool:
    """Return whether a name is that of a data type, of MegEngine or of files of others.

    >>> is_dtype_name("Float32"), is_dtype_name("Int64"), is_dtype_name("Float3")
    (True, True, False)
    """
    return name in DTypeEnum.__members__ or name == "String" or name in _WIDE


def array_dtype(value: Array) -> DType:
    """Return the data type of an array of any type that files have.

    >>> array_dtype(np.zeros(2)).spelling, array_dtype(np.array(["a"])).spelling
    ('float64', 'string')
    """
    if value.dtype.kind in "OUS":
        return DType("String")
    return dtype_of(value)


def numpy_array(value: object) -> Array:
    """Return an array; one of ml_dtypes, which numpy alone cannot compute with, in the numpy dtype that holds it.

    bfloat16 and floats of 8 and 4 bits become float32, integers of 4 and 2 bits those of 8; no value changes.

    >>> numpy_array([1, 2]).tolist()
    [1, 2]
    """
    array = np.asarray(value)
    name = array.dtype.name
    if name == "bfloat16" or name.startswith(("float8_", "float4_", "float6_")):
        return array.astype(np.float32)
    storage = {"int4": np.int8, "int2": np.int8, "uint4": np.uint8, "uint2": np.uint8}.get(name)
    return array if storage is None else array.astype(storage)


def held_array(value: object, dtype: DType) -> Array:
    """Return a value as an array; one without axes holds what is none, such as a sequence or a map."""
    if dtype.name != "Object":
        return np.asarray(value)
    holder = np.empty((), object)
    holder[()] = value
    return holder


def nbytes(shape: tuple[int, ...], dtype: DType) -> int:
    """Count the bytes that a value takes in a file, in Python integers (never wraps).

    >>> nbytes((3, 5), DType("QuantizedS4", 0.1))
    9
    """
    count = prod(shape)
    if dtype.bits >= 8:
        return count * (dtype.bits // 8)
    if not shape or not count:
        return 0 if not count else 1
    return count // shape[-1] * ((shape[-1] * dtype.bits + 7) // 8)


def decode(raw: Array, shape: tuple[int, ...], dtype: DType) -> Array:
    """Turn the bytes of a file (1-d uint8) into a value; a view unless the type is packed or bfloat16.

    Raises:
        FormatError: the number of bytes does not fit shape and dtype.
    """
    want = nbytes(shape, dtype)
    if raw.size != want:
        raise FormatError(
            f"a {dtype.name} tensor of shape {list(shape)} takes {want} bytes, found {raw.size}"
        )
    if dtype.bits < 8:
        return _unpack(raw, shape, dtype)
    if dtype.name == "BFloat16":
        return (raw.view("<u2").astype("<u4") << np.uint32(16)).view("<f4").reshape(shape)
    if dtype.name == "Bool":
        # A byte other than 0 and 1 would make numpy's bool misbehave.
        return raw.view("?").reshape(shape) if not (raw > 1).any() else (raw != 0).reshape(shape)
    return raw.view(dtype.np.newbyteorder("<")).reshape(shape)


def dequantized(value: Array, dtype: DType | None, real: type[np.floating[Any]] = np.float64) -> Array:
    """Return the numbers that a value stands for: those of a quantized type as floats, others as they are.

    >>> dequantized(np.array([130, 126], "u1"), DType("Quantized8Asymm", 0.5, 128)).tolist()
    [1.0, -1.0]
    """
    if dtype is None or not dtype.is_quantized:
        return value
    return (value.astype(real) - real(dtype.zero_point)) * real(dtype.scale)


def encode(value: Array, dtype: DType) -> Array:
    """Return the bytes (1-d uint8) that `decode` turns back into `value`."""
    value = np.ascontiguousarray(value)
    if dtype.bits < 8:
        return _pack(value, dtype)
    if dtype.name == "BFloat16":
        bits = round_bfloat16(value.astype("<f4")).view("<u4") >> np.uint32(16)
        return bits.astype("<u2").reshape(-1).view(np.uint8)
    return value.astype(dtype.np.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8)


def round_bfloat16(x: Array) -> Array:
    """Round float32 values to bfloat16 precision, ties to even, NaN kept; returns float32.

    >>> round_bfloat16(np.array([1.00390625], "f4"))
    array([1.], dtype=float32)
    """
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    bias = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = ((bits + bias) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(x), np.float32(np.nan), rounded)


def odd(array: Array, dtype: DType) -> Array:
    """Return numbers for a type that has only odd ones; fractions are cut off.

    Raises:
        InputError: a number that the type does not have.

    >>> odd(np.array([1.5, -3.0]), DType("IntB2"))
    array([ 1, -3], dtype=int8)
    """
    whole = np.trunc(array)
    largest = 2**dtype.bits - 1
    bad = ~((np.abs(whole) <= largest) & (whole % 2 == 1))
    if bad.any():
        raise InputError(
            f"{dtype.name.lower()} holds the odd numbers between -{largest} and {largest}, found {array[bad].flat[0]}"
        )
    return whole.astype(dtype.np)


def _unpack(raw: Array, shape: tuple[int, ...], dtype: DType) -> Array:
    bits = dtype.bits
    per = 8 // bits
    if not raw.size:
        return np.zeros(shape, dtype.np)
    last = shape[-1] if shape else 1
    rows = raw.reshape(-1, (last + per - 1) // per)
    shifts = np.arange(per, dtype=np.uint8) * np.uint8(bits)
    parts = (rows[:, :, None] >> shifts) & np.uint8((1 << bits) - 1)
    out = parts.reshape(rows.shape[0], -1)[:, :last].reshape(shape)
    if dtype.is_odd:
        return (2 * out.astype(np.int8)) - np.int8((1 << bits) - 1)
    if dtype.np.kind == "i":
        half = np.int8(1 << (bits - 1))
        return (out.astype(np.int8) ^ half) - half
    return np.ascontiguousarray(out)


def _pack(value: Array, dtype: DType) -> Array:
    bits = dtype.bits
    per = 8 // bits
    last = value.shape[-1] if value.shape else 1
    if dtype.is_odd:
        value = (value.astype(np.int8) + np.int8((1 << bits) - 1)) >> 1
    codes = value.view(np.uint8) & np.uint8((1 << bits) - 1)
    flat = codes.reshape(-1, last) if last else codes.reshape(0, 1)
    pad = -last % per
    if pad:
        flat = np.pad(flat, ((0, 0), (0, pad)))
    shifts = np.arange(per, dtype=np.uint8) * np.uint8(bits)
    grouped = flat.reshape(flat.shape[0], -1, per) << shifts
    return np.bitwise_or.reduce(grouped, axis=-1).astype(np.uint8).reshape(-1)


@cache
def plain(name: str) -> DType:
    """Return the unquantized dtype of this name, always the same object."""
    return DType(name)
