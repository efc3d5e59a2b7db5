"""Building FlatBuffers from the end to the front, a table at a time: the counterpart of `flat`.

The types are those of the flatbuffers package, and the bytes those of its Builder, which places every field by itself
and takes far longer. Here the layout of a table follows from which fields it has and how its end is aligned; layouts
are kept, so that a table is one `Struct.pack`. Contents of vectors stay where they are until `Builder.finish` joins the
pieces. `FlatBufferEmitter` has the tables and vectors that dumps consist of: parameter records, dtypes, names, numbers.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import copysign
from struct import Struct, error, pack
from typing import Any, Final

import numpy as np
from flatbuffers import number_types

from ..graph.dtypes import Array, DType
from ..graph.params import AxisDesc, DTypeScalar, IndexItem, Record, RecordField
from ..ops.catalog import TypeParam
from . import history

Fields = Sequence[tuple[int, str, Any, Any]]
"""The fields of a table: (slot, wire type or "offset", value, default); None and defaults are left out."""

_TYPES: Final = {
    "ubyte": number_types.Uint8Flags,
    "byte": number_types.Int8Flags,
    "bool": number_types.BoolFlags,
    "uint": number_types.Uint32Flags,
    "int": number_types.Int32Flags,
    "ulong": number_types.Uint64Flags,
    "float": number_types.Float32Flags,
    "double": number_types.Float64Flags,
    "offset": number_types.UOffsetTFlags,
}
_SCALARS: Final = {name: (t.packer_type.format.lstrip("<"), t.bytewidth) for name, t in _TYPES.items()}
"""The letter of `struct` and the width of each wire type; a struct of n bytes has the wire type "<n>s"."""
_WIDEST: Final = 8


class Builder:
    """A FlatBuffer that grows towards its front.

    An offset of a table, vector or string is the number of bytes from its beginning to the end of the buffer.

    >>> b = Builder()
    >>> name = b.string(b"x")
    >>> b.finish(b.table(2, [(0, "offset", name, 0), (1, "uint", 7, 0)]), b"test").hex(" ", 4)
    '24000000 10000000 74657374 08000c00 08000400 08000000 07000000 04000000 01000000 78000000'
    """

    def __init__(self) -> None:
        self._size = 0
        self._align = 4
        self._pieces: list[bytes | memoryview] = []  # the last one stands first in the buffer
        self._vtables: dict[bytes, int] = {}

    def _prepare(self, width: int, behind: int) -> None:
        """Fill up so that, when `behind` bytes were written, the next thing is aligned to `width`."""
        self._align = max(self._align, width)
        missing = -(self._size + behind) % width
        if missing:
            self._write(bytes(missing))

    def _write(self, piece: bytes | memoryview) -> None:
        self._pieces.append(piece)
        self._size += len(piece)

    def string(self, raw: bytes) -> int:
        """Write a string with the zero behind it."""
        return self.vector(raw + b"\0", len(raw), 4)

    def vector(self, raw: bytes | memoryview, count: int, align: int) -> int:
        """Write a vector of `count` items, whose bytes must not change before `finish`."""
        self._prepare(max(4, align), len(raw))
        self._write(raw)
        self._write(pack("<I", count))
        return self._size

    def offsets(self, items: Sequence[int]) -> int:
        """Write a vector of tables or strings."""
        self._prepare(4, 4 * len(items))
        # An offset counts from where it stands itself.
        place = self._size + 4 * len(items)
        self._write(pack(f"<{len(items)}I", *[place - 4 * i - item for i, item in enumerate(items)]))
        self._write(pack("<I", len(items)))
        return self._size

    def table(self, n_slots: int, fields: Fields) -> int:
        """Write a table; larger fields first, so that no padding is needed.

        Args:
            n_slots: fields that the schema knows.
            fields: those that may differ from their defaults, in the order in which they are placed from the end.
        """
        kept: list[tuple[int, str]] = []
        values: list[Any] = []
        for slot, wire, value, default in fields:
            if value is None:
                continue
            # -0.0 equals the default 0.0 but is another number.
            if value == default and not (wire in ("float", "double") and copysign(1, value) < 0):
                continue
            kept.append((slot, wire))
            values.append(value)
        layout, size, vtable, offsets, width = _layout(n_slots, tuple(kept), self._size % _WIDEST)
        for i, behind in offsets:
            values[i] = self._size + behind - values[i]
        place = self._size + size
        known = self._vtables.get(vtable)
        at = place + len(vtable) if known is None else known
        values.append(at - place)
        self._align = max(self._align, width)
        self._write(layout.pack(*reversed(values)))
        if known is None:
            self._write(vtable)
            self._vtables[vtable] = at
        return place

    def finish(self, root: int, identifier: bytes) -> bytes:
        """Return the buffer with its size in front; see `pieces`."""
        return b"".join(self.pieces(root, identifier))

    def pieces(self, root: int, identifier: bytes) -> list[bytes | memoryview]:
        """Return the buffer with its size in front in pieces, so that large vectors are written without a copy.

        Args:
            root: offset of the table that the buffer holds.
            identifier: the four bytes that say what kind of buffer it is.
        """
        head = 12
        self._prepare(self._align, head)
        size = self._size + head
        start = pack("<II4s", size - 4, size - 4 - root, identifier)
        return [start, *reversed(self._pieces)]


@lru_cache(maxsize=4096)
def _layout(
    n_slots: int, kept: tuple[tuple[int, str], ...], end: int
) -> tuple[Struct, int, bytes, list[tuple[int, int]], int]:
    """Lay out a table with these fields in front of `end` bytes, counted modulo the widest alignment.

    Returns:
        Its layout: first the way to its vtable, then the fields from the last to the first. Its size and vtable.
        Which of `kept` are offsets, and how many bytes in front of the table's end they stand. The widest alignment.
    """
    parts: list[str] = []
    places = [0] * n_slots
    offsets: list[tuple[int, int]] = []
    at, widest = end, 4
    for i, (slot, wire) in enumerate(kept):
        letter, width = _SCALARS.get(wire) or (wire, 1)
        missing = -at % width
        at += missing + (width if wire in _SCALARS else int(wire[:-1]))
        parts += [f"{missing}x", letter]
        places[slot] = at - end
        widest = max(widest, width)
        if wire == "offset":
            offsets.append((i, at - end))
    missing = -at % 4
    size = at + missing + 4 - end
    parts += [f"{missing}x", "i"]
    entries = [place and size - place for place in places]
    while entries and not entries[-1]:
        entries.pop()
    vtable = pack(f"<{2 + len(entries)}H", 4 + 2 * len(entries), size, *entries)
    return Struct("<" + "".join(reversed(parts))), size, vtable, offsets, widest


class FlatBufferEmitter:
    """A `Builder` with the few shapes of tables and vectors that dumps consist of.

    Args:
        mge_version: release whose parameter layouts are written.
    """

    def __init__(self, mge_version: int = 101300) -> None:
        self.builder = Builder()
        self.table = self.builder.table
        self.mge_version = mge_version
        self._strings: dict[bytes, int] = {}

    def string(self, text: str | bytes | None) -> int | None:
        """Write a string; equal ones are stored once."""
        if text is None:
            return None
        raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        if raw not in self._strings:
            self._strings[raw] = self.builder.string(raw)
        return self._strings[raw]

    def bytes_vector(self, data: bytes | Array | None) -> int | None:
        """Write a vector of bytes."""
        if data is None:
            return None
        raw = np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else data
        return self.builder.vector(raw, len(data), 1)

    def numbers(self, values: Sequence[int] | None, kind: str = "I") -> int | None:
        """Write a vector of 4-byte integers, unsigned (I) or signed (i)."""
        if values is None:
            return None
        try:
            packed = pack(f"<{len(values)}{kind}", *values)
        except error:
            low, high = (0, 2**32) if kind == "I" else (-(2**31), 2**31)
            beyond = next((v for v in values if not low <= v < high), values)
            raise ValueError(f"{beyond} is not an integer from {low} to {high - 1}") from None
        return self.builder.vector(packed, len(values), 4)

    def offsets(self, items: Sequence[int]) -> int | None:
        """Write a vector of tables or strings, None when empty."""
        return self.builder.offsets(items) if items else None

    def structs(self, layout: Struct, items: Sequence[Sequence[Any]], align: int) -> int:
        """Write a vector of inline structs."""
        raw = b"".join(layout.pack(*item) for item in items)
        return self.builder.vector(raw, len(items), align)

    def dtype(self, dtype: DType | None) -> int | None:
        """Write a DType table."""
        if dtype is None:
            return None
        if not dtype.is_quantized:
            return self.table(3, [(0, "byte", dtype.code, 0)])
        zero = dtype.zero_point if dtype.is_asymmetric else 0
        param = self.table(2, [(0, "float", dtype.scale, 0.0), (1, "ubyte", zero, 0)])
        return self.table(3, [(2, "offset", param, 0), (0, "byte", dtype.code, 0), (1, "ubyte", 1, 0)])

    def param(self, record: Record) -> int:
        """Write a parameter record."""
        if isinstance(record, TypeParam):
            return self.dtype(record.dtype) or 0
        layout = history.fields(type(record), self.mge_version)
        fields: list[tuple[int, str, Any, Any]] = []
        for slot, f in enumerate(layout):
            value = getattr(record, f.name, f.default)
            if f.wire == "[int]":
                fields.append((slot, "offset", self.numbers(value, "i"), 0))
            elif f.wire == "[AxisDesc]":
                fields.append((slot, "offset", self.structs(_AXIS_DESC, [AxisDesc(*v) for v in value], 4), 0))
            elif f.wire == "[IndexItem]":
                fields.append(
                    (slot, "offset", self.structs(_INDEX_ITEM, [IndexItem(*v) for v in value], 1), 0)
                )
            elif f.wire == "DTypeScalar":
                raw = _DTYPE_SCALAR.pack(*DTypeScalar(*value))
                fields.append((slot, f"{len(raw)}s", raw, None))
            elif f.enum is not None:
                number = history.number(f.enum(value), self.mge_version)
                fields.append((slot, f.wire, number, int(f.default)))
            else:
                fields.append((slot, f.wire, value, f.default))
        if len(layout) < len(record.fields()):
            self._check_dropped(record, layout)
        try:
            return self.table(len(layout), fields)
        except error:
            raise ValueError(self._beyond(record, fields, layout)) from None

    def _beyond(self, record: Record, fields: Fields, layout: Sequence[RecordField]) -> str:
        """Say which field holds a number that its type cannot."""
        for (_, wire, value, _), f in zip(fields, layout, strict=True):
            try:
                self.table(1, [(0, wire, value, None)])
            except error:
                return f"{type(record).__name__}.{f.name} is {value}, which is no {wire} of the file"
        raise AssertionError("some field was refused")

    def _check_dropped(self, record: Record, layout: Sequence[RecordField]) -> None:
        kept = {f.name for f in layout}
        for f in record.fields():
            if f.name not in kept and getattr(record, f.name) != f.default:
                raise ValueError(
                    f"release {history.release(self.mge_version)} had no field {type(record).__name__}.{f.name}"
                )


_AXIS_DESC, _INDEX_ITEM, _DTYPE_SCALAR = Struct("<bxxxi"), Struct("<b????"), Struct("<b4s")
