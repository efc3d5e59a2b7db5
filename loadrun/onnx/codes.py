"""Values of types that numpy lacks, to and from the bytes in which runtimes store them."""

from collections.abc import Sequence
from math import prod

import numpy as np

from ..graph.dtypes import Array, round_bfloat16
from .messages import TensorProto
from .tensors import FLOAT4, array, decoded, kind_name

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
