"""Building FlatBuffers from the end to the front, a table at a time: the counterpart of `flat`.

The types are those of the flatbuffers package, and the bytes those of its Builder, which places every field by itself
and takes far longer. Here the layout of a table follows from which fields it has and how its end is aligned; layouts
are kept, so that a table is one `Struct.pack`. Contents of vectors stay where they are until `Builder.finish` joins the
pieces.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import copysign
from struct import Struct, pack
from typing import Any, Final

from flatbuffers import number_types

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
