"""Built buffers: byte for byte those of the flatbuffers package's Builder, which places every field by itself."""

from __future__ import annotations

import struct
from math import nan
from typing import Any

import flatbuffers
import pytest
from hypothesis import given, strategies as st

from loadrun.dump.flat_builder import Builder, Fields

ADD = {
    "ubyte": "PrependUint8Slot",
    "byte": "PrependInt8Slot",
    "bool": "PrependBoolSlot",
    "uint": "PrependUint32Slot",
    "int": "PrependInt32Slot",
    "ulong": "PrependUint64Slot",
    "float": "PrependFloat32Slot",
    "double": "PrependFloat64Slot",
}


def table(b: Any, n_slots: int, fields: Fields) -> int:
    """A table by the package."""
    b.StartObject(n_slots)
    for slot, wire, value, default in fields:
        if value is None:
            continue
        if wire == "offset":
            b.PrependUOffsetTRelativeSlot(slot, value, 0)
        elif wire.endswith("s"):
            b.Prep(1, len(value))
            for byte in reversed(value):
                b.PrependByte(byte)
            b.PrependStructSlot(slot, b.Offset(), 0)
        else:
            # Nothing equals nan, so it forces out a -0.0, which the package takes for the default 0.0.
            minus = wire in ("float", "double") and struct.pack("<d", value) == struct.pack("<d", -0.0)
            getattr(b, ADD[wire])(slot, value, nan if minus else default)
    return int(b.EndObject())


def vector(b: Any, raw: bytes, width: int, align: int) -> int:
    """A vector of items of that width by the package."""
    b.StartVector(width, len(raw) // width, align)
    for byte in reversed(raw):
        b.Place(byte, flatbuffers.number_types.Uint8Flags)
    return int(b.EndVector())


def offsets(b: Any, items: list[int]) -> int:
    """A vector of offsets by the package."""
    b.StartVector(4, len(items), 4)
    for item in reversed(items):
        b.PrependUOffsetTRelative(item)
    return int(b.EndVector())


small = st.integers(-3, 3)
scalars = st.one_of(
    st.tuples(st.sampled_from(["ubyte", "uint", "ulong"]), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("ulong"), st.integers(2**63, 2**64 - 1), st.just(0)),
    st.tuples(st.sampled_from(["byte", "int"]), st.none() | small, st.integers(-1, 1)),
    st.tuples(st.just("bool"), st.booleans(), st.booleans()),
    st.tuples(st.sampled_from(["float", "double"]), st.sampled_from([0.0, -0.0, 1.5, nan]), st.just(0.0)),
    st.tuples(st.just("5s"), st.binary(min_size=5, max_size=5), st.none()),
)
pieces = st.one_of(
    st.tuples(st.just("string"), st.binary(max_size=9)),
    st.tuples(
        st.just("vector"), st.integers(0, 9), st.sampled_from([(1, 1), (4, 4), (8, 4), (8, 8), (5, 1)])
    ),
    st.tuples(st.just("offsets"), st.lists(st.integers(0, 50), max_size=5)),
    st.tuples(
        st.just("table"),
        st.lists(
            scalars | st.tuples(st.just("offset"), st.none() | st.integers(0, 50), st.just(0)), max_size=6
        ),
    ),
)


@given(st.lists(pieces, max_size=12), st.randoms(use_true_random=False))
def test_bytes_are_those_of_the_package(plan: list[tuple[Any, ...]], rng: Any) -> None:
    ours, theirs = Builder(), flatbuffers.Builder(0)
    made = [ours.table(0, [])]
    assert made == [table(theirs, 0, [])]
    for kind, what, *more in plan:
        if kind == "string":
            pair = ours.string(what), theirs.CreateString(what)
        elif kind == "vector":
            width, align = more[0]
            raw = rng.randbytes(what * width)
            pair = ours.vector(raw, what, align), vector(theirs, raw, width, align)
        elif kind == "offsets":
            items = [made[i % len(made)] for i in what]
            pair = ours.offsets(items), offsets(theirs, items)
        else:
            slots = rng.sample(range(8), len(what))
            fields = [
                (
                    slot,
                    wire,
                    made[value % len(made)] if wire == "offset" and value is not None else value,
                    default,
                )
                for slot, (wire, value, default) in zip(slots, what, strict=True)
            ]
            pair = ours.table(8, fields), table(theirs, 8, fields)
        assert pair[0] == pair[1]
        made.append(pair[0])
    theirs.FinishSizePrefixed(made[-1], b"test")
    assert ours.finish(made[-1], b"test") == bytes(theirs.Output())


@pytest.mark.parametrize(
    ("wire", "value"), [("ubyte", 256), ("byte", -129), ("uint", -1), ("int", 2**31), ("ulong", 2**64)]
)
def test_numbers_beyond_their_type(wire: str, value: int) -> None:
    with pytest.raises(struct.error):
        Builder().table(1, [(0, wire, value, 0)])


def test_a_slot_that_the_schema_does_not_know() -> None:
    with pytest.raises(IndexError):
        Builder().table(2, [(2, "uint", 1, 0)])
