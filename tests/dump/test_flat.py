"""The FlatBuffers cursor: every rule of the C++ verifier, each on a buffer that breaks that rule alone."""

from __future__ import annotations

import mmap
import random
import re
import struct
import tracemalloc
from collections.abc import Callable

import flatbuffers
import numpy as np
import pytest

from loadrun.base.errors import FormatError
from loadrun.dump import flat
from loadrun.dump.flat import Buffer, Table

IDENT = b"test"


def assemble(offsets: list[int], body: bytes, tail: bytes = b"") -> bytearray:
    """A buffer whose root table lies at 16: vtable at 8 with these field offsets, inline bytes, then the tail."""
    vtable = struct.pack(f"<{2 + len(offsets)}H", 4 + 2 * len(offsets), 4 + len(body), *offsets)
    assert len(vtable) <= 8
    data = bytearray(struct.pack("<I4s", 16, IDENT) + vtable.ljust(8, b"\0"))
    return data + struct.pack("<i", 8) + body + tail


def open_buffer(data: bytes | bytearray) -> Buffer:
    return Buffer(memoryview(bytes(data)), 100, IDENT)


def root(data: bytes | bytearray) -> Table:
    return open_buffer(data).root()


def refuse(data: bytes | bytearray, what: str, at: int, read: str = "root") -> None:
    """The read must fail with that text, at that place of the file (the buffer begins at 100)."""
    with pytest.raises(FormatError, match=re.escape(what)) as e:
        call(data, read)
    assert e.value.offset == 100 + at


def call(data: bytes | bytearray | Table, read: str, times: int = 1) -> None:
    """Open the root table and call a method of it, as in ``integer 0 uint``."""
    table = data if isinstance(data, Table) else root(data)
    if read != "root":
        name, *args = read.split()
        for _ in range(times):
            getattr(table, name)(*[int(a) if a.isdigit() else a for a in args])


def test_reads_what_the_flatbuffers_package_writes() -> None:
    b = flatbuffers.Builder(0)
    text = b.CreateString("héllo")
    b.StartVector(4, 3, 4)
    for n in (3, 2, 1):
        b.PrependUint32(n)
    numbers = b.EndVector()
    b.StartObject(1)
    b.PrependInt8Slot(0, -5, 0)
    inner = b.EndObject()
    b.StartVector(4, 2, 4)
    b.PrependUOffsetTRelative(inner)
    b.PrependUOffsetTRelative(inner)
    tables = b.EndVector()
    b.StartObject(7)
    b.PrependUint64Slot(0, 2**63 + 1, 0)
    b.PrependFloat32Slot(1, 1.5, 0)
    b.PrependUOffsetTRelativeSlot(2, text, 0)
    b.PrependUOffsetTRelativeSlot(3, numbers, 0)
    b.PrependUOffsetTRelativeSlot(4, inner, 0)
    b.PrependUOffsetTRelativeSlot(5, tables, 0)
    b.FinishSizePrefixed(b.EndObject(), IDENT)
    t = Buffer(memoryview(bytes(b.Output()))[4:], 4, IDENT).root()
    assert t.integer(0, "ulong") == 2**63 + 1
    assert t.scalar(1, "float") == 1.5
    assert t.text(2) == "héllo"
    assert t.raw_string(2) == "héllo".encode()
    assert t.numbers(3, "uint") == (1, 2, 3)
    inside = t.table(4)
    assert inside is not None
    assert inside.integer(0, "byte") == -5
    assert [x.integer(0, "byte") for x in t.tables(5)] == [-5, -5]
    assert t.integer(6, "int", 7) == 7
    assert (t.text(6), t.table(6), t.numbers(6, "int"), t.tables(6), t.texts(6)) == (None, None, None, [], [])


def test_buffer_too_small() -> None:
    refuse(b"\0" * 7, "takes at least 8 bytes, found 7", 0)


def test_buffer_too_large() -> None:
    with (
        mmap.mmap(-1, 2**31) as m,
        memoryview(m) as view,
        pytest.raises(FormatError, match="at most 2147483647"),
    ):
        Buffer(view, 0, b"\0\0\0\0")


def test_identifier() -> None:
    data = assemble([4], b"\1\0\0\0")
    data[4:8] = b"nope"
    refuse(data, "expected the identifier b'test', found b'nope'", 4)


@pytest.mark.parametrize("step", [0, 3, 21, 0xFFFFFFFF, 2**31])
def test_root_offset_out_of_bounds(step: int) -> None:
    data = assemble([4], b"")
    assert len(data) == 20
    struct.pack_into("<I", data, 0, step)
    refuse(data, f"offset {step} leads outside the buffer of 20 bytes", 0)


def test_offset_of_2_gib_is_negative_in_c() -> None:
    with mmap.mmap(-1, 2**31 - 1) as m, memoryview(m) as view:
        struct.pack_into("<I4s", m, 0, 2**31 - 4, IDENT)
        buf = Buffer(view, 0, IDENT)
        with pytest.raises(FormatError, match="outside"):
            buf.root()
        del buf


def test_unaligned_table() -> None:
    data = assemble([4], b"\0" * 8)
    data[0] = 18
    refuse(data, "offset 18 leads to the unaligned position 18", 0)


@pytest.mark.parametrize(("soffset", "vt"), [(20, -4), (-(2**31), 2**31 + 16), (-4, 20), (-2, 18)])
def test_vtable_outside(soffset: int, vt: int) -> None:
    data = assemble([4], b"")
    struct.pack_into("<i", data, 16, soffset)
    refuse(data, f"the table's vtable would lie at {vt}, outside the buffer or unaligned", 16)


def test_vtable_unaligned() -> None:
    data = assemble([4], b"")
    struct.pack_into("<i", data, 16, 7)
    refuse(data, "vtable would lie at 9, outside the buffer or unaligned", 16)


@pytest.mark.parametrize("size", [0, 2, 5, 14])
def test_vtable_size(size: int) -> None:
    data = assemble([], b"")
    struct.pack_into("<H", data, 8, size)
    refuse(data, f"a vtable of {size} bytes does not fit", 8)


def test_shared_vtable_still_bounds_every_table() -> None:
    """A vtable that fitted one table is not trusted for the next one."""
    data = assemble([8], struct.pack("<II", 0, 9))
    second = len(data)
    data += struct.pack("<ii", second - 8, 0)
    assert root(data).integer(0, "uint") == 9
    buf = open_buffer(data)
    assert Table(buf, 16, 1).integer(0, "uint") == 9
    with pytest.raises(FormatError, match="field 0 of 4 bytes at offset 8 of its table does not fit"):
        Table(buf, second, 1).integer(0, "uint")


@pytest.mark.parametrize(("offset", "width"), [(1, 4), (3, 4), (24, 4), (65535, 4), (22, 1)])
def test_field_outside(offset: int, width: int) -> None:
    data = assemble([offset], b"\0" * 4, b"\0" * 14)
    assert len(data) == 38
    wire = "uint" if width == 4 else "ubyte"
    what = f"field 0 of {width} bytes at offset {offset} of its table does not fit"
    refuse(data, what, 16, f"integer 0 {wire}")


def test_stated_table_size_is_not_relied_on() -> None:
    """flatbuffers 2.0 for Python shares vtables between tables of different sizes, as MegEngine accepts."""
    data = assemble([4], struct.pack("<Q", 2**40))
    for size in (0, 4, 8, 65535):
        struct.pack_into("<H", data, 10, size)
        assert root(data).integer(0, "ulong") == 2**40


@pytest.mark.parametrize(("offset", "wire"), [(6, "uint"), (5, "float"), (8, "double"), (8, "ulong")])
def test_unaligned_field(offset: int, wire: str) -> None:
    """Alignment counts from the size prefix: 8-byte fields lie at 4 modulo 8 of the buffer."""
    data = assemble([offset], b"\0" * 16)
    assert (16 + offset + 4) % struct.calcsize({"uint": "I", "float": "f", "double": "d", "ulong": "Q"}[wire])
    refuse(data, f"lies unaligned at {16 + offset}", 16, f"integer 0 {wire}")


def test_aligned_ulong() -> None:
    assert root(assemble([4], struct.pack("<Q", 2**60 + 77))).integer(0, "ulong") == 2**60 + 77


def with_target(tail: bytes) -> bytearray:
    """The root's field 0, at 20, is an offset to the tail, which begins at 24."""
    return assemble([4], struct.pack("<I", 4), tail)


@pytest.mark.parametrize(
    "read", ["text 0", "raw_string 0", "numbers 0 int", "tables 0", "texts 0", "bytes_view 0"]
)
def test_vector_longer_than_the_buffer(read: str) -> None:
    width = 4 if read.split()[0] in ("numbers", "tables", "texts") else 1
    refuse(
        with_target(struct.pack("<II", 9, 0)),
        f"a vector of 9 elements of {width} bytes does not fit the 4 bytes left",
        24,
        read,
    )


def test_vector_length_cannot_wrap() -> None:
    """2**30 elements of 4 bytes are 2**32 bytes, which 32-bit arithmetic would take for 0."""
    refuse(with_target(struct.pack("<II", 2**30, 0)), "a vector of 1073741824 elements", 24, "numbers 0 int")


def test_struct_vector_is_bounded() -> None:
    buf = open_buffer(with_target(struct.pack("<III", 1, 0, 0)))
    assert buf.root().structs(0, struct.Struct("<II")) == [(0, 0)]
    buf = open_buffer(with_target(struct.pack("<III", 2, 0, 0)))
    with pytest.raises(FormatError, match="2 elements of 8 bytes does not fit the 8 bytes left"):
        buf.root().structs(0, struct.Struct("<II"))


def test_string_ends_with_zero() -> None:
    assert root(with_target(struct.pack("<I", 3) + b"abc\0")).text(0) == "abc"
    refuse(with_target(struct.pack("<I", 3) + b"abcd"), "has no terminating zero byte", 31, "text 0")
    refuse(with_target(struct.pack("<I", 4) + b"abcd"), "has no terminating zero byte", 32, "text 0")


def test_text_that_is_not_utf8() -> None:
    data = with_target(struct.pack("<I", 3) + b"a\xff\xc3\0")
    assert root(data).text(0) == "a\udcff\udcc3"
    assert root(data).raw_string(0) == b"a\xff\xc3"


def test_empty_vector_at_the_very_end() -> None:
    t = root(with_target(struct.pack("<I", 0)))
    assert t.numbers(0, "int") == ()
    view = t.bytes_view(0)
    assert view is not None
    assert view.size == 0


def test_offset_to_itself() -> None:
    data = assemble([4], struct.pack("<I", 0))
    refuse(data, "offset 0 leads outside", 20, "table 0")


def chain(n: int) -> bytes:
    """n tables, each the only field of the one before."""
    b = flatbuffers.Builder(0)
    inner = 0
    for _ in range(n):
        b.StartObject(1)
        if inner:
            b.PrependUOffsetTRelativeSlot(0, inner, 0)
        inner = b.EndObject()
    b.Finish(inner, IDENT)
    return bytes(b.Output())


def test_depth() -> None:
    def walk(n: int) -> int:
        t, depth = root(chain(n)).table(0), 1
        while t is not None:
            t, depth = t.table(0), depth + 1
        return depth

    assert walk(64) == 64
    with pytest.raises(FormatError, match="tables are nested deeper than 64"):
        walk(65)


def test_number_of_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat, "MAX_TABLES", 5)
    assert len(root(vector_of_tables(4)).tables(0)) == 4
    with pytest.raises(FormatError, match="more than 5 tables"):
        root(vector_of_tables(5)).tables(0)


def test_limits_are_those_of_the_cpp_verifier() -> None:
    assert (flat.MAX_DEPTH, flat.MAX_TABLES, flat.MAX_SIZE) == (64, 1_000_000, 2**31 - 1)


def vector_of_tables(n: int, *, shared: bool = False) -> bytes:
    b = flatbuffers.Builder(0)
    items = []
    for i in range(1 if shared else n):
        b.StartObject(1)
        b.PrependInt32Slot(0, i + 1, 0)
        items.append(b.EndObject())
    b.StartVector(4, n, 4)
    for i in range(n):
        b.PrependUOffsetTRelative(items[0 if shared else i])
    vector = b.EndVector()
    b.StartObject(1)
    b.PrependUOffsetTRelativeSlot(0, vector, 0)
    b.Finish(b.EndObject(), IDENT)
    return bytes(b.Output())


def test_shared_table_cannot_unfold() -> None:
    """A vector that names one table over and over costs as much as tables of its own."""
    assert len(root(vector_of_tables(500, shared=True)).tables(0)) == 500
    data = vector_of_tables(100_000, shared=True)
    t = root(data)
    assert len(t.tables(0)) == 100_000
    with pytest.raises(FormatError, match="expands beyond its size"):
        call(t, "tables 0", times=5)


@pytest.mark.parametrize("read", ["numbers 0 uint", "texts 0", "tables 0", "bytes_view 0"])
def test_shared_vectors_are_paid_for(read: str) -> None:
    name = read.split()[0]
    n = 200_000
    if name in ("texts", "tables"):
        steps = b"".join(struct.pack("<I", 4 * (n - i)) for i in range(n))
        what = struct.pack("<I", 1) + b"x\0\0\0" if name == "texts" else struct.pack("<i", 24 + 4 + 4 * n - 8)
        data = with_target(struct.pack("<I", n) + steps + what + bytes(8))
    else:
        data = with_target(struct.pack("<I", n * (4 if name == "bytes_view" else 1)) + bytes(4 * n))
    t = root(data)
    with pytest.raises(FormatError, match="expands beyond its size"):
        call(t, read, times=40)


def test_shared_string_is_decoded_once() -> None:
    """20,000 names that are all the same long string take its length once."""
    n, length = 20_000, 100_000
    steps = b"".join(struct.pack("<I", 4 * (n - i)) for i in range(n))
    data = with_target(struct.pack("<I", n) + steps + struct.pack("<I", length) + b"\xff" * length + b"\0")
    t = root(data)
    tracemalloc.start()
    try:
        assert len(t.texts(0)) == n
        assert tracemalloc.get_traced_memory()[1] < 20 * length
    finally:
        tracemalloc.stop()


def test_overlapping_vtables_are_paid_for() -> None:
    """Every table with a vtable of its own, all of them long and overlapping."""
    count = 40_000
    n = 2 + count
    # Words of 62: each one reads as the size of a vtable of 31 words and as the size of a table.
    area = struct.pack("<H", 62) * n
    head = 24 + 4 + 4 * count
    steps, tables = b"", b""
    begin = head + len(area) + (-len(area)) % 4
    for i in range(count):
        pos = begin + 4 * i
        steps += struct.pack("<I", pos - (28 + 4 * i))
        tables += struct.pack("<i", pos - (head + 2 * i))
    data = with_target(
        struct.pack("<I", count) + steps + area.ljust(begin - head, b"\0") + tables + bytes(64)
    )
    with pytest.raises(FormatError, match=r"expands beyond|vtable"):
        root(data).tables(0)


def test_union_tags_and_tables_agree() -> None:
    b = flatbuffers.Builder(0)
    b.StartObject(0)
    member = b.EndObject()
    b.StartVector(4, 1, 4)
    b.PrependUOffsetTRelative(member)
    members = b.EndVector()
    tags = b.CreateByteVector(b"\1\2")
    b.StartObject(2)
    b.PrependUOffsetTRelativeSlot(0, tags, 0)
    b.PrependUOffsetTRelativeSlot(1, members, 0)
    b.Finish(b.EndObject(), IDENT)
    with pytest.raises(FormatError, match="2 union tags for 1 union tables"):
        root(bytes(b.Output())).unions(0, 1)


def test_slots_reach_every_field() -> None:
    from loadrun.graph.params import Record

    assert max(len(kind.fields()) for kind in Record.by_code.values()) + 1 <= flat.MAX_SLOTS


def test_surplus_slots_are_ignored() -> None:
    """A newer schema may give tables more fields."""
    b = flatbuffers.Builder(0)
    b.StartObject(flat.MAX_SLOTS + 20)
    b.PrependInt32Slot(flat.MAX_SLOTS + 19, 9, 0)
    b.PrependInt32Slot(0, 5, 0)
    b.Finish(b.EndObject(), IDENT)
    assert root(bytes(b.Output())).integer(0, "int") == 5


def test_all_fields_at_once() -> None:
    """The same numbers, or the same refusal, as field by field, wherever fields lie."""
    wires = ("offset", "ulong", "ubyte", "offset", "int", "double")
    layout, draw, read = flat.TableFields(*wires), random.Random(7), 0
    for case in range(3000):
        data = bytearray(draw.randbytes(112))
        # The root table, at 32 or 36, shares a vtable at 8 whose offsets are near to sensible ones.
        at = draw.choice((32, 36))
        offsets = [draw.choice((0, 4, 8, 12, 16, 20, 24, 28, 7, 2, 76)) for _ in wires]
        struct.pack_into("<I4sHH6H", data, 0, at, IDENT, 16, 32, *offsets)
        struct.pack_into("<i8I", data, at, at - 8, *(draw.choice((4, 8, 24, 40, 6, 2**31)) for _ in range(8)))
        slot_by_slot, at_once = (
            outcome(bytes(data), slots_of, wires),
            outcome(bytes(data), Table.fields, layout),
        )
        assert isinstance(at_once, type(slot_by_slot)), (case, slot_by_slot, at_once)
        if isinstance(slot_by_slot, tuple):
            read += any(slot_by_slot)
            np.testing.assert_equal(at_once, slot_by_slot)
    assert read == 103


def slots_of(t: Table, wires: tuple[str, ...]) -> tuple[float, ...]:
    return tuple(t.position(i) if w == "offset" else t.scalar(i, w) for i, w in enumerate(wires))


def outcome(data: bytes, read: Callable[..., object], how: object) -> object:
    try:
        return read(root(data), how)
    except FormatError as e:
        return e
