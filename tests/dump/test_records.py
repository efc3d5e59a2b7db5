"""Parameter records, dtypes and operator ids: written and read back, and against hand-made tables."""

from __future__ import annotations

import struct
from contextlib import suppress

import flatbuffers
import pytest
from hypothesis import given, settings, strategies as st

from loadrun.base.errors import FormatError
from loadrun.dump.build import find_op, read_dtype, read_param, read_params
from loadrun.dump.flat import Table
from loadrun.dump.flat_builder import FlatBufferEmitter
from loadrun.graph.dtypes import DType
from loadrun.graph.params import SVD, ConvBias, Convolution, Elemwise, ExecutionPolicy, Pooling, PowC, Record
from loadrun.ops.catalog import CATALOG, TypeParam
from loadrun.testing.strategies import dtypes, records
from tests.support.cases import fewer
from tests.support.dump_graphs import buffer

KINDS = sorted(Record.by_code.items())


def emitted(record: Record, mge_version: int = 101300) -> Table:
    e = FlatBufferEmitter(mge_version=mge_version)
    return buffer(e.builder.finish(e.param(record), b"test")).root()


@pytest.mark.parametrize(("code", "kind"), KINDS, ids=[k.__name__ for _, k in KINDS])
def test_every_record_round_trips(code: int, kind: type[Record]) -> None:
    @settings(max_examples=fewer(25, 3), deadline=None, database=None)
    @given(records(kind))
    def check(record: Record) -> None:
        # As text, which tells -0.0 from 0.0 and takes nan for equal.
        assert repr(read_param(emitted(record), code, 101300).__dict__) == repr(record.__dict__)

    check()


@pytest.mark.parametrize(("code", "kind"), KINDS, ids=[k.__name__ for _, k in KINDS])
def test_an_empty_table_is_the_defaults(code: int, kind: type[Record]) -> None:
    b = flatbuffers.Builder(0)
    b.StartObject(0)
    b.FinishSizePrefixed(b.EndObject(), b"test")
    assert read_param(buffer(bytes(b.Output())).root(), code, 101300) == kind()


def test_defaults_are_left_out() -> None:
    t = emitted(Pooling())
    assert not any(t.offsets)


def test_wire_slots_of_convolution() -> None:
    """Slots as in the schema: mode, pad, stride, dilate, sparse, format, compute_mode."""
    b = flatbuffers.Builder(0)
    b.StartObject(10)
    for slot, value in enumerate([1, 2, 3, 4, 5, 6, 7, 1, 6, 1]):
        b.PrependUint32Slot(slot, value, 0)
    b.FinishSizePrefixed(b.EndObject(), b"test")
    record = read_param(buffer(bytes(b.Output())).root(), 3, 101300)
    assert list(record.__dict__.values()) == [1, 2, 3, 4, 5, 6, 7, 1, 6, 1]
    assert (record.mode.name, record.sparse.name, record.format.name) == ("CONVOLUTION", "GROUP", "NCHW88")  # type: ignore[attr-defined]


def test_equal_tables_share_one_record_but_different_ones_do_not() -> None:
    e = FlatBufferEmitter()
    members = [e.param(Elemwise(mode=m)) for m in (4, 7, 4, 4, 7, 4)]
    vector = e.offsets(members)
    t = buffer(e.builder.finish(e.table(1, [(0, "offset", vector, 0)]), b"test")).root()
    found = [read_param(x, Elemwise.code, 101300) for x in t.tables(0)]
    assert [int(r.mode) for r in found] == [4, 7, 4, 4, 7, 4]  # type: ignore[attr-defined]
    # The package makes two vtables here, as the tables' padding differs.
    assert len({id(r) for r in found}) <= 4


def test_sharing_looks_at_every_byte_of_the_fields() -> None:
    """Also where the vtable states too small a table."""
    e = FlatBufferEmitter()
    members = [e.param(SVD(full_matrices=a, compute_uv=b)) for a in (True, False) for b in (True, False)] * 2
    members += [e.param(PowC(exp=v)) for v in (1.0, 2.0)]
    vector = e.offsets(members)
    data = bytearray(e.builder.finish(e.table(1, [(0, "offset", vector, 0)]), b"test"))
    for x in buffer(bytes(data)).root().tables(0):
        struct.pack_into("<H", data, 4 + x.vt + 2, 4)
    tables = buffer(bytes(data)).root().tables(0)
    found = [read_param(x, SVD.code, 101300) for x in tables[:8]]
    assert found == [SVD(full_matrices=a, compute_uv=b) for a in (True, False) for b in (True, False)] * 2
    assert [read_param(x, PowC.code, 101300) for x in tables[8:]] == [PowC(exp=1.0), PowC(exp=2.0)]


def test_unknown_record() -> None:
    with pytest.raises(FormatError, match="parameter record 200 is unknown"):
        read_param(emitted(Elemwise()), 200, 101300)


def test_unknown_enum_value() -> None:
    b = flatbuffers.Builder(0)
    b.StartObject(1)
    b.PrependUint32Slot(0, 999, 0)
    b.FinishSizePrefixed(b.EndObject(), b"test")
    with pytest.raises(
        FormatError, match=r"Elemwise\.mode: value 999 is unknown; this loadrun knows 0 RELU to 85 SIGN"
    ):
        read_param(buffer(bytes(b.Output())).root(), Elemwise.code, 101300)


def test_unknown_strategy_bits() -> None:
    b = flatbuffers.Builder(0)
    b.StartObject(1)
    b.PrependUint32Slot(0, 16, 0)
    b.FinishSizePrefixed(b.EndObject(), b"test")
    with pytest.raises(FormatError, match=r"ExecutionPolicy\.strategy: value 16 is unknown"):
        read_param(buffer(bytes(b.Output())).root(), ExecutionPolicy.code, 101300)


@given(dtypes)
def test_dtype_round_trips(dtype: DType) -> None:
    e = FlatBufferEmitter()
    assert read_dtype(buffer(e.builder.finish(e.dtype(dtype) or 0, b"test")).root()) == dtype


def dtype_table(code: int, *, tag: int = 1, scale: float | None = 0.5, zero: int = 3) -> Table:
    e = FlatBufferEmitter()
    param = None if scale is None else e.table(2, [(0, "float", scale, 0.0), (1, "ubyte", zero, 0)])
    fields = [(2, "offset", param, 0), (0, "byte", code, 0), (1, "ubyte", tag, 0)]
    return buffer(e.builder.finish(e.table(3, fields), b"test")).root()


def test_dtype_codes() -> None:
    assert read_dtype(dtype_table(11)) == DType("Quantized8Asymm", 0.5, 3)
    assert read_dtype(dtype_table(13)) == DType("QuantizedS8", 0.5, 0)
    assert read_dtype(dtype_table(18, tag=0, scale=None)) == DType("Bool")


@pytest.mark.parametrize(
    ("code", "tag", "scale", "what"),
    [
        (22, 1, 0.5, "dtype 22 is unknown; expected 0 to 21"),
        (-1, 1, 0.5, "dtype -1 is unknown"),
        (13, 1, None, "dtype QuantizedS8 has no scale"),
        (13, 0, 0.5, "dtype QuantizedS8 has no scale"),
        (13, 1, float("nan"), "dtype QuantizedS8 has the scale nan, expected a finite number"),
        (13, 1, float("inf"), "has the scale inf"),
    ],
)
def test_bad_dtypes(code: int, tag: int, scale: float | None, what: str) -> None:
    with pytest.raises(FormatError, match=what):
        read_dtype(dtype_table(code, tag=tag, scale=scale))


def params_table(tag: int, first: Record | None, more: list[Record], tags: bytes) -> Table:
    e = FlatBufferEmitter()
    one = None if first is None else e.param(first)
    members = e.offsets([e.param(r) for r in more])
    fields = [(1, "offset", one, 0), (2, "offset", e.bytes_vector(tags) if tags else None, 0)]
    fields += [(3, "offset", members, 0), (0, "ubyte", tag, 0)]
    return buffer(e.builder.finish(e.table(4, fields), b"test")).root()


def read_all(t: Table) -> tuple[Record, ...]:
    return read_params(t, t.integer(0, "ubyte"), t.table(1), t.unions(2, 3), 101300)


def test_params_in_order() -> None:
    t = params_table(3, Convolution(pad_h=2), [ConvBias(), TypeParam(dtype=DType("Bool"))], bytes([6, 67]))
    assert read_all(t) == (
        Convolution(pad_h=2),
        ConvBias(),
        TypeParam(dtype=DType("Bool")),
    )


def test_announced_record_is_absent() -> None:
    with pytest.raises(FormatError, match="parameter record 3 is announced but missing"):
        read_all(params_table(3, None, [], b""))


def test_record_without_tag_is_ignored() -> None:
    """Union tag 0 means none, whatever the offset leads to."""
    assert read_all(params_table(0, Convolution(), [], b"")) == ()


def test_ids_are_unique() -> None:
    for attribute in ("id_v1", "id_v2"):
        ids = [getattr(op, attribute) for op in CATALOG.values() if getattr(op, attribute) is not None]
        assert len(ids) == len(set(ids))
    ids = [op.id_mgbs for op in CATALOG.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("kind", ["id_v1", "id_v2", "id_mgbs"])
def test_unknown_operator(kind: str) -> None:
    with pytest.raises(FormatError, match=r"operator with type id 12345 .*'Xyz'.* is unknown"):
        find_op(emitted(Elemwise()), kind, 12345, "Xyz")


# From MegEngine 1.13.0's registry (dump_registered_oprs).
@pytest.mark.parametrize(
    ("kind", "type_id", "name"),
    [
        ("id_v1", 6977527550664090289, "ImmutableTensor"),
        ("id_mgbs", 5154136392692894827, "PoolingV1"),
        ("id_mgbs", 1005859804226725325, "ConvolutionV2"),
        ("id_mgbs", 17532003616627982465, "ConvBiasForwardV4"),
        ("id_mgbs", 7748309056852641149, "WarpPerspectiveV2"),
        ("id_mgbs", 2961320257790257266, "ResizeV2"),
    ],
)
def test_known_ids(kind: str, type_id: int, name: str) -> None:
    assert find_op(emitted(Elemwise()), kind, type_id).name == name


@given(st.binary(min_size=4, max_size=40))
def test_scalars_of_any_table_bytes_never_crash(body: bytes) -> None:
    data = struct.pack("<I4s2HH2xi", 16, b"test", 6, 4 + len(body), 4, 8) + body
    for code in (3, 6, 11, 67):
        with suppress(FormatError):
            found = read_param(buffer(struct.pack("<I", len(data)) + data).root(), code, 101300)
            assert type(found) is Record.by_code[code]
