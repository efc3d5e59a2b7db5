"""A bounds-checked cursor over FlatBuffers tables.

The flatbuffers package for Python verifies nothing, so every offset is checked here before it is followed.
Work and memory are bounded by the size of the buffer: each table or vector that is visited is paid for
from a budget, so that a small file whose offsets all lead to the same large table cannot unfold into a
giant graph.
"""

from __future__ import annotations

from struct import Struct, unpack_from
from typing import Any, Final

import numpy as np

from ..base.errors import FormatError
from ..graph.dtypes import Array

__all__ = ["MAX_DEPTH", "MAX_SIZE", "MAX_TABLES", "Buffer", "Table"]

MAX_DEPTH: Final = 64
"""Deepest nesting of tables, as in the FlatBuffers verifier that MegEngine runs."""
MAX_TABLES: Final = 1_000_000
"""Most tables in one buffer, as in the FlatBuffers verifier that MegEngine runs."""

MAX_SIZE: Final = 2**31 - 1
"""Largest buffer: offsets back to a vtable are signed."""
MAX_SLOTS: Final = 32
"""Fields of a table that are looked at; no table of a dump has so many."""
_PREFIX: Final = 4
"""The buffers of dumps follow a size prefix, and MegEngine aligns from the prefix on."""

_U8, _I8, _U16S, _U32, _I32 = Struct("<B"), Struct("<b"), Struct("<HH"), Struct("<I"), Struct("<i")
_U64, _F32, _F64, _BOOL = Struct("<Q"), Struct("<f"), Struct("<d"), Struct("<?")
SCALARS: Final[dict[str, Struct]] = {
    "ubyte": _U8,
    "byte": _I8,
    "bool": _BOOL,
    "uint": _U32,
    "int": _I32,
    "ulong": _U64,
    "float": _F32,
    "double": _F64,
}


class Buffer:
    """One FlatBuffer inside a file.

    Args:
        data: the bytes of the buffer, without its size prefix.
        base: where the buffer begins in the file, for error messages.
        identifier: the four bytes expected at offset 4.
    """

    def __init__(self, data: memoryview, base: int, identifier: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.base = base
        self.budget = 8 * self.size + 65536
        self.tables = 0
        self.vtables: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.records: dict[tuple[int, int], tuple[int, dict[bytes, Any]]] = {}
        self._strings: dict[int, bytes] = {}
        self._texts: dict[int, str] = {}
        if self.size < 8:
            raise self.error(f"a FlatBuffer takes at least 8 bytes, found {self.size}", 0)
        if self.size > MAX_SIZE:
            raise self.error(f"a FlatBuffer takes at most {MAX_SIZE} bytes, found {self.size}", 0)
        actual = bytes(data[4:8])
        if actual != identifier:
            raise self.error(f"expected the identifier {identifier!r}, found {actual!r}", 4)

    def error(self, message: str, pos: int) -> FormatError:
        """Make a FormatError at a position of this buffer."""
        return FormatError(message, offset=self.base + pos)

    def broken(self, message: str, pos: int) -> FormatError:
        """Make a FormatError about the bytes themselves, not their meaning."""
        return self.error(f"{message}; the file is damaged, copy it again", pos)

    def spend(self, units: int, pos: int) -> None:
        """Pay for work in proportion to the bytes it reads."""
        self.budget -= units
        if self.budget < 0:
            raise self.error(
                "tables or vectors are shared so often that the file unfolds beyond its size", pos
            )

    def root(self) -> Table:
        """Return the root table."""
        return self.table(0, 0)

    def table(self, at: int, depth: int) -> Table:
        """Return the table that the offset stored at `at` points to."""
        return Table(self, self.follow(at), depth + 1)

    def vtable(self, vt: int, pos: int) -> tuple[int, tuple[int, ...]]:
        """Stated table size and field offsets that the vtable at `vt` gives the tables that share it.

        The size only tells what a table costs. Fields are not checked against it, as in the C++ verifier: the
        flatbuffers package 2.0 for Python lets tables of different sizes share a vtable.
        """
        if not 0 <= vt <= self.size - 4 or vt & 1:
            raise self.broken(f"the table's vtable would lie at {vt}, outside the buffer or unaligned", pos)
        vsize, tsize = _U16S.unpack_from(self.data, vt)
        if vsize < 4 or vsize & 1 or vt + vsize > self.size:
            raise self.broken(f"a vtable of {vsize} bytes does not fit", vt)
        n = min(vsize // 2 - 2, MAX_SLOTS)
        self.spend(8 * n, vt)
        offsets = unpack_from(f"<{n}H", self.data, vt + 4) + (0,) * (MAX_SLOTS - n)
        vtable = self.vtables[vt] = (tsize, offsets)
        return vtable

    def follow(self, at: int) -> int:
        """Follow the unsigned offset stored at `at`; all that offsets lead to begins with four aligned bytes."""
        step: int = _U32.unpack_from(self.data, at)[0]
        pos = at + step
        if not 4 <= step < 2**31 or pos + 4 > self.size:
            raise self.broken(f"offset {step} leads outside the buffer of {self.size} bytes", at)
        if pos & 3:
            raise self.broken(f"offset {step} leads to the unaligned position {pos}", at)
        return pos

    def vector(self, at: int, width: int) -> tuple[int, int]:
        """Start and length of the vector that the offset at `at` points to; elements of `width` bytes.

        The elements of dumps take at most four bytes at a time, so they are aligned where their length is.
        """
        pos = self.follow(at)
        count: int = _U32.unpack_from(self.data, pos)[0]
        if pos + 4 + count * width > self.size:
            raise self.broken(
                f"a vector of {count} elements of {width} bytes does not fit the "
                f"{self.size - pos - 4} bytes left",
                pos,
            )
        return pos + 4, count

    def string(self, at: int) -> bytes:
        """Return the bytes of the string that the offset at `at` points to."""
        start, count = self.vector(at, 1)
        cached = self._strings.get(start)
        if cached is None:
            self.spend(count, start)
            if start + count >= self.size or self.data[start + count] != 0:
                raise self.broken("a string lacks its closing zero byte", start + count)
            cached = self._strings[start] = bytes(self.data[start : start + count])
        return cached

    def text(self, at: int) -> str:
        """Read the string at `at` as text; what is not UTF-8 becomes lone surrogates, written as those bytes."""
        pos = at + int(_U32.unpack_from(self.data, at)[0])
        cached = self._texts.get(pos)
        if cached is None:
            # Decoded once for all that share it, else one long string could fill the memory.
            cached = self._texts[pos] = self.string(at).decode("utf-8", "surrogateescape")
        return cached


class Table:
    """One table: a checked vtable and typed access to its fields by slot."""

    __slots__ = ("buf", "depth", "offsets", "pos", "size", "vt")

    def __init__(self, buf: Buffer, pos: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise buf.error(f"tables are nested deeper than {MAX_DEPTH}", pos)
        buf.tables += 1
        if buf.tables > MAX_TABLES:
            raise buf.error(f"more than {MAX_TABLES} tables", pos)
        self.buf = buf
        self.pos = pos
        self.depth = depth
        self.vt = vt = pos - _I32.unpack_from(buf.data, pos)[0]
        vtable = buf.vtables.get(vt)
        self.size, self.offsets = vtable if vtable is not None else buf.vtable(vt, pos)
        buf.budget -= self.size + 12
        if buf.budget < 0:
            buf.spend(0, pos)

    def at(self, slot: int, width: int, align: int = 0) -> int:
        """Position of a field of `width` bytes (aligned to that, or to `align`), or 0 when it is absent."""
        off = self.offsets[slot]
        if not off:
            return 0
        at = self.pos + off
        if off < 4 or at + width > self.buf.size:
            raise self.buf.broken(
                f"field {slot} of {width} bytes at offset {off} of its table does not fit", self.pos
            )
        if (at + _PREFIX) & ((align or width) - 1):
            raise self.buf.broken(f"field {slot} of {width} bytes lies unaligned at {at}", self.pos)
        return at

    def scalar(self, slot: int, wire: str, default: float = 0) -> float:
        """Read a number of the wire type, or its default."""
        if not self.offsets[slot]:
            return default
        form = SCALARS[wire]
        return form.unpack_from(self.buf.data, self.at(slot, form.size))[0]

    def integer(self, slot: int, wire: str, default: int = 0) -> int:
        """Read an integer of the wire type, or its default."""
        if not self.offsets[slot]:
            return default
        form = SCALARS[wire]
        return int(form.unpack_from(self.buf.data, self.at(slot, form.size))[0])

    def table(self, slot: int) -> Table | None:
        """Read a table field."""
        if not self.offsets[slot]:
            return None
        return self.buf.table(self.at(slot, 4), self.depth)

    def text(self, slot: int) -> str | None:
        """Read a string field as text."""
        if not self.offsets[slot]:
            return None
        return self.buf.text(self.at(slot, 4))

    def raw_string(self, slot: int) -> bytes | None:
        """Read a string field as bytes (MegEngine stores a pickle in one)."""
        if not self.offsets[slot]:
            return None
        return self.buf.string(self.at(slot, 4))

    def tables(self, slot: int) -> list[Table]:
        """Read a vector of tables."""
        if not self.offsets[slot]:
            return []
        at = self.at(slot, 4)
        start, count = self.buf.vector(at, 4)
        self.buf.spend(4 * count, start)
        return [self.buf.table(start + 4 * i, self.depth) for i in range(count)]

    def texts(self, slot: int) -> list[str]:
        """Read a vector of strings."""
        if not self.offsets[slot]:
            return []
        at = self.at(slot, 4)
        start, count = self.buf.vector(at, 4)
        self.buf.spend(16 * count, start)
        return [self.buf.text(start + 4 * i) for i in range(count)]

    def numbers(self, slot: int, wire: str) -> tuple[int, ...] | None:
        """Read a vector of integers, None when absent."""
        if not self.offsets[slot]:
            return None
        at = self.at(slot, 4)
        form = SCALARS[wire]
        buf = self.buf
        start, count = buf.vector(at, form.size)
        buf.spend(8 * count, start)
        if count == 1:
            return form.unpack_from(buf.data, start)
        return unpack_from(f"<{count}{form.format[-1]}", buf.data, start)

    def structs(self, slot: int, layout: Struct) -> list[tuple[int, ...]]:
        """Read a vector of inline structs."""
        if not self.offsets[slot]:
            return []
        at = self.at(slot, 4)
        start, count = self.buf.vector(at, layout.size)
        self.buf.spend(8 * count, start)
        return list(layout.iter_unpack(self.buf.data[start : start + count * layout.size]))

    def bytes_view(self, slot: int) -> Array | None:
        """Read a vector of bytes as a uint8 view of the buffer, None when absent."""
        if not self.offsets[slot]:
            return None
        at = self.at(slot, 4)
        start, count = self.buf.vector(at, 1)
        self.buf.spend(count, start)
        return np.frombuffer(self.buf.data, np.uint8, count, start)

    def unions(self, tag_slot: int, slot: int) -> list[tuple[int, Table]]:
        """Read a vector of unions: its tags and tables."""
        tags = self.numbers(tag_slot, "ubyte") or ()
        members = self.tables(slot)
        if len(tags) != len(members):
            raise self.buf.broken(
                f"{len(tags)} union tags stand beside {len(members)} union tables", self.pos
            )
        return list(zip(tags, members, strict=True))
