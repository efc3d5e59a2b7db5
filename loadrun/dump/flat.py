"""A bounds-checked cursor over FlatBuffers tables.

The flatbuffers package for Python verifies nothing, so every offset is checked here before it is followed.
Work and memory are bounded by the size of the buffer: each table or vector that is visited is paid for
from a budget, so that a small file whose offsets all lead to the same large table cannot expand into a
giant graph.
"""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from struct import Struct, unpack_from
from typing import Any, Final, NamedTuple

import numpy as np

from ..base.errors import FormatError
from ..graph.dtypes import Array
from ..graph.params import Record

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
_PLANS: Final = 4096
"""For how many forms of tables it is kept how their fields are read; MegEngine's files have dozens."""


class TableFields:
    """The fields of one kind of table, for `Table.fields`.

    Args:
        wires: the wire type of every slot: a key of `SCALARS`, or ``offset`` for a string, a vector or a table.
    """

    __slots__ = ("wires",)

    def __init__(self, *wires: str) -> None:
        self.wires = wires


class _Plan(NamedTuple):
    """How the fields of tables that share a vtable are read at once.

    Attributes:
        form: reads the fields that are present, in the order of their places.
        order: sorts what was read, behind a 0 for what is absent, by slots.
        pointers: slots and places of the offsets among them.
    """

    form: Struct
    order: itemgetter[Any]
    pointers: tuple[tuple[int, int], ...]


@lru_cache(_PLANS)
def _plan(layout: TableFields, offsets: tuple[int, ...], pos: int) -> _Plan | None:
    """Plan how to read tables with such field offsets; None if a field is not aligned, or two fields overlap."""
    spots = sorted((off, slot) for slot, off in enumerate(offsets[: len(layout.wires)]) if off)
    text, end = "<", 0
    for off, slot in spots:
        form = _U32 if layout.wires[slot] == "offset" else SCALARS[layout.wires[slot]]
        if off < max(4, end) or (pos + off + _PREFIX) & (form.size - 1):
            return None
        text += f"{off - end}x{form.format[-1]}"
        end = off + form.size
    place = {slot: i + 1 for i, (_, slot) in enumerate(spots)}
    pointers = tuple((slot, off) for off, slot in spots if layout.wires[slot] == "offset")
    order = itemgetter(*(place.get(slot, 0) for slot in range(len(layout.wires))))
    return _Plan(Struct(text), order, pointers)


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
        words = data[: self.size & ~3]
        self.words, self.ints = words.cast("I"), words.cast("i")
        self.base = base
        self.budget = 8 * self.size + 65536
        self.tables = 0
        self.vtables: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.plans: dict[tuple[int, int, TableFields], _Plan | None] = {}
        self.records: dict[tuple[int, int], tuple[int, dict[bytes, Record]]] = {}
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
                "tables or vectors are shared so often that the file expands beyond its size", pos
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
        step = self.words[at >> 2]
        pos = at + step
        if not 4 <= step < 2**31 or pos + 4 > self.size:
            raise self.broken(f"offset {step} leads outside the buffer of {self.size} bytes", at)
        if pos & 3:
            raise self.broken(f"offset {step} leads to the unaligned position {pos}", at)
        return pos

    def vector(self, pos: int, width: int) -> tuple[int, int]:
        """Start and length of the vector at `pos`; elements of `width` bytes.

        The elements of dumps take at most four bytes at a time, so they are aligned where their length is.
        """
        count = self.words[pos >> 2]
        if pos + 4 + count * width > self.size:
            raise self.broken(
                f"a vector of {count} elements of {width} bytes does not fit the "
                f"{self.size - pos - 4} bytes left",
                pos,
            )
        return pos + 4, count

    def string(self, pos: int) -> memoryview:
        """Return the bytes of the string at `pos`."""
        start, count = self.vector(pos, 1)
        self.spend(count, start)
        if start + count >= self.size or self.data[start + count] != 0:
            raise self.broken("a string has no terminating zero byte", start + count)
        return self.data[start : start + count]

    def text(self, pos: int) -> str:
        """Read the string at `pos` as text; what is not UTF-8 becomes lone surrogates, written as those bytes."""
        cached = self._texts.get(pos)
        if cached is None:
            # Decoded once for all that share it, else one long string could fill the memory.
            cached = self._texts[pos] = str(self.string(pos), "utf-8", "surrogateescape")
        return cached

    def tables_at(self, pos: int, depth: int) -> list[Table]:
        """Read the vector of tables at `pos`."""
        start, count = self.vector(pos, 4)
        self.spend(4 * count, start)
        return [Table(self, self.follow(at), depth + 1) for at in range(start, start + 4 * count, 4)]

    def numbers(self, pos: int, wire: str) -> tuple[int, ...]:
        """Read the vector of integers at `pos`."""
        form = SCALARS[wire]
        start, count = self.vector(pos, form.size)
        self.spend(8 * count, start)
        return unpack_from(f"<{count}{form.format[-1]}", self.data, start)

    def sizes(self, pos: int) -> tuple[int, ...]:
        """Read the vector of sizes, or of numbers of variables, at `pos`."""
        first = (pos >> 2) + 1
        count = self.words[first - 1]
        if pos + 4 + 4 * count > self.size:
            self.vector(pos, 4)
        self.spend(8 * count, pos)
        return (self.words[first],) if count == 1 else tuple(self.words[first : first + count])

    def bytes_view(self, pos: int) -> Array:
        """Read the vector of bytes at `pos` as a uint8 view of the buffer."""
        start, count = self.vector(pos, 1)
        self.spend(count, start)
        return np.frombuffer(self.data, np.uint8, count, start)


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
        self.vt = vt = pos - buf.ints[pos >> 2]
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

    def fields(self, layout: TableFields) -> tuple[Any, ...]:
        """Read all fields at once, by slot: numbers, and the positions that offsets lead to; 0 for what is absent."""
        buf, pos = self.buf, self.pos
        key = self.vt, pos & 4, layout
        plan = buf.plans.get(key)
        if plan is None and key not in buf.plans and len(buf.plans) < _PLANS:
            plan = buf.plans[key] = _plan(layout, self.offsets, pos & 4)
        if plan is None or pos + plan.form.size > buf.size:
            return tuple(
                self.position(slot) if wire == "offset" else self.scalar(slot, wire)
                for slot, wire in enumerate(layout.wires)
            )
        values = list(plan.order((0, *plan.form.unpack_from(buf.data, pos))))
        last = buf.size - 4
        for slot, off in plan.pointers:
            step = values[slot]
            to = values[slot] = pos + off + step
            if step < 4 or to & 3 or to > last:
                buf.follow(pos + off)
        return tuple(values)

    def position(self, slot: int) -> int:
        """Return the position that an offset field leads to, or 0 when it is absent."""
        return self.buf.follow(self.at(slot, 4)) if self.offsets[slot] else 0

    def table(self, slot: int) -> Table | None:
        """Read a table field."""
        pos = self.position(slot)
        return Table(self.buf, pos, self.depth + 1) if pos else None

    def child(self, pos: int) -> Table | None:
        """Read the table at a position that `fields` gave."""
        return Table(self.buf, pos, self.depth + 1) if pos else None

    def text(self, slot: int) -> str | None:
        """Read a string field as text."""
        pos = self.position(slot)
        return self.buf.text(pos) if pos else None

    def raw_string(self, slot: int) -> bytes | None:
        """Read a string field as bytes (MegEngine stores a pickle in one)."""
        pos = self.position(slot)
        return self.buf.string(pos).tobytes() if pos else None

    def tables(self, slot: int) -> list[Table]:
        """Read a vector of tables."""
        pos = self.position(slot)
        return self.buf.tables_at(pos, self.depth) if pos else []

    def texts(self, slot: int) -> list[str]:
        """Read a vector of strings."""
        pos = self.position(slot)
        if not pos:
            return []
        start, count = self.buf.vector(pos, 4)
        self.buf.spend(16 * count, start)
        return [self.buf.text(self.buf.follow(start + 4 * i)) for i in range(count)]

    def numbers(self, slot: int, wire: str) -> tuple[int, ...] | None:
        """Read a vector of integers, None when absent."""
        pos = self.position(slot)
        return self.buf.numbers(pos, wire) if pos else None

    def structs(self, slot: int, layout: Struct) -> list[tuple[int, ...]]:
        """Read a vector of inline structs."""
        pos = self.position(slot)
        if not pos:
            return []
        start, count = self.buf.vector(pos, layout.size)
        self.buf.spend(8 * count, start)
        return list(layout.iter_unpack(self.buf.data[start : start + count * layout.size]))

    def bytes_view(self, slot: int) -> Array | None:
        """Read a vector of bytes as a uint8 view of the buffer, None when absent."""
        pos = self.position(slot)
        return self.buf.bytes_view(pos) if pos else None

    def unions(self, tag_slot: int, slot: int) -> list[tuple[int, Table]]:
        """Read a vector of unions: its tags and tables."""
        tags = self.numbers(tag_slot, "ubyte") or ()
        members = self.tables(slot)
        if len(tags) != len(members):
            raise self.buf.broken(f"{len(tags)} union tags for {len(members)} union tables", self.pos)
        return list(zip(tags, members, strict=True))
