"""The protobuf wire format, read where it lies: every length is checked before it is followed.

A message is a row of fields; a field begins with a number and one of four wire types. Nothing is copied: what a field
with a length holds is a view of the buffer. Facts: the encoding that protobuf documents.
"""

from collections.abc import Iterator
from struct import unpack_from

import numpy as np

from ..base.errors import FormatError
from ..graph.dtypes import Array

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_GROUPS = (3, 4)


def fields(data: memoryview, base: int = 0) -> Iterator[tuple[int, int, int | memoryview, int]]:
    """Iterate over the fields of one message: number, wire type, value, offset in the file.

    Args:
        data: the bytes of the message.
        base: where they begin in the file.

    Yields:
        numbers for varints and fixed fields (unsigned), views for fields with a length.

    Raises:
        FormatError: a field does not end inside the message, or has no such type.

    >>> list(fields(memoryview(bytes((8, 150, 1)))))
    [(1, 0, 150, 1)]
    """
    at, end = 0, len(data)
    while at < end:
        # Most numbers have one byte: they are taken at once.
        key = data[at]
        if key < 128:
            at += 1
        else:
            key, at = _varint(data, at, base)
        number, kind = key >> 3, key & 7
        if number == 0 or number >= 1 << 29:
            raise FormatError(f"a protobuf field has the number {number}", offset=base + at)
        where = base + at
        value: int | memoryview
        if kind == VARINT:
            value = data[at] if at < end else 128
            if value < 128:
                at += 1
            else:
                value, at = _varint(data, at, base)
        elif kind == BYTES:
            size = data[at] if at < end else 128
            if size < 128:
                at += 1
            else:
                size, at = _varint(data, at, base)
            if size > end - at:
                raise FormatError(
                    f"a protobuf field of {size} bytes does not fit in the {end - at} that are left",
                    offset=where,
                )
            where = base + at
            value, at = data[at : at + size], at + size
        else:
            value, at = _fixed(data, at, number, kind, where)
        yield number, kind, value, where


def _fixed(data: memoryview, at: int, number: int, kind: int, where: int) -> tuple[int, int]:
    if kind not in (FIXED32, FIXED64):
        what = "a group, which ONNX does not have" if kind in _GROUPS else f"of the unknown wire type {kind}"
        raise FormatError(f"protobuf field {number} is {what}", offset=where)
    size = 4 if kind == FIXED32 else 8
    if size > len(data) - at:
        raise FormatError(f"a protobuf number of {size} bytes is cut off", offset=where)
    return unpack_from("<I" if size == 4 else "<Q", data, at)[0], at + size


def _varint(data: memoryview, at: int, base: int) -> tuple[int, int]:
    value = shift = 0
    for i in range(at, min(at + 10, len(data))):
        byte = data[i]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, i + 1
        shift += 7
    raise FormatError("a protobuf number has no end", offset=base + at)


def signed(value: int) -> int:
    """Reinterpret a 64-bit number as signed.

    >>> signed(2**64 - 1)
    -1
    """
    return value - (1 << 64) if value >= 1 << 63 else value


def packed_varints(data: memoryview, base: int = 0) -> Array:
    """Decode the varints of a packed field to int64.

    Raises:
        FormatError: the last one is cut off, or one is longer than ten bytes.

    >>> packed_varints(memoryview(bytes((1, 150, 1)))).tolist()
    [1, 150]
    """
    raw = np.frombuffer(data, np.uint8)
    if not raw.size:
        return np.zeros(0, np.int64)
    ends = np.flatnonzero(raw < 128)
    if not ends.size or ends[-1] != raw.size - 1:
        raise FormatError("the last number of a packed field is cut off", offset=base)
    if ends.size == raw.size:
        return raw.astype(np.int64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if int((ends - starts).max()) >= 10:
        raise FormatError("a protobuf number has more than ten bytes", offset=base)
    place = np.arange(raw.size) - np.repeat(starts, ends - starts + 1)
    parts = (raw & 127).astype(np.uint64) << (place * 7).astype(np.uint64)
    return np.add.reduceat(parts, starts).view(np.int64)


def field_bytes(number: int, data: bytes) -> bytes:
    """Encode a message field that holds bytes, such as another message.

    >>> field_bytes(1, b"ab").hex()
    '0a026162'
    """
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def varint(value: int) -> bytes:
    """Encode a number of 64 bits.

    >>> varint(150).hex(), len(varint(-1))
    ('9601', 10)
    """
    if 0 <= value < 128:
        return bytes((value,))
    value &= (1 << 64) - 1
    buffer = bytearray()
    while value > 127:
        buffer.append(value & 127 | 128)
        value >>= 7
    return bytes([*buffer, value])


def text(data: memoryview, base: int) -> str:
    """Decode a string of the file.

    Raises:
        FormatError: it is not UTF-8.
    """
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        raise FormatError("a name in the file is not UTF-8", offset=base) from None
