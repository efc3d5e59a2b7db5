"""Files of old releases. The numbers are those of MegEngine's schemas of the releases named."""

from __future__ import annotations

import struct

import flatbuffers
import numpy as np
import pytest

from loadrun.base.errors import FormatError
from loadrun.dump import loads
from loadrun.dump.build import find_op, read_param
from loadrun.dump.flat_builder import FlatBufferEmitter
from loadrun.dump.writer import dump_bytes
from loadrun.graph import Graph, Header, StoredTensor
from loadrun.graph.dtypes import encode
from loadrun.graph.params import (
    ComputeMode,
    ConvBias,
    Convolution,
    Correlation,
    Elemwise,
    ExecutionPolicy,
    Format,
    Host2DeviceCopy,
    Images2Neibs,
    Pooling,
    Record,
    RelayoutFormat,
    Strategy,
)
from tests.support.dump_graphs import F32, buffer, plain

V = {"0.3.1": 301, "0.4.0": 400, "0.5.0": 500, "1.0.0": 100000, "1.1.0": 100100, "1.2.0": 100200}
V |= {"1.3.0": 100300, "1.3.1": 100301, "1.4.0": 100400, "1.5.0": 100500, "1.6.0": 100600, "1.13.0": 101300}


def read(kind: type[Record], slots: dict[int, int], release: str) -> Record:
    """A record whose table has these 4-byte slots."""
    b = flatbuffers.Builder(0)
    b.StartObject(16)
    for slot, value in slots.items():
        b.PrependUint32(value)
        b.Slot(slot)
    b.FinishSizePrefixed(b.EndObject(), b"test")
    return read_param(buffer(bytes(b.Output())).root(), kind.code, V[release])


# Numbers of param.Convolution's Format (until 1.2 shared by all operators), by release.
FORMATS = {
    "0.3.1": {
        "NCHW": 0,
        "NHWC": 1,
        "NHWCD4": 2,
        "NCHW4": 3,
        "NCHW8": 4,
        "NCHW32": 5,
        "NCHW88": 6,
        "CHWN4": 9,
    },
    "0.4.0": {"NCHW88": 6, "NCHW44": 7, "CHWN4": 11},
    "0.5.0": {"NCHW44": 7, "NCHW44_DOT": 8, "CHWN4": 12},
    "1.1.0": {"NCHW44": 7, "NCHW44_DOT": 8, "CHWN4": 12},
    "1.2.0": {
        "NCHW44_DOT": 8,
        "NCHW4_NCHW32": 12,
        "NCHW32_NCHW4": 13,
        "NCHW4_NCHW": 14,
        "NHWC_NCHW": 15,
        "NHWC_NCHW4_IC_SMALL": 16,
        "NCHW_NCHW4_IC_SMALL": 17,
        "CHWN4": 18,
    },
    "1.3.0": {
        "NCHW44_DOT": 8,
        "NCHW4_NCHW32": 9,
        "NCHW32_NCHW4": 10,
        "NCHW4_NCHW": 11,
        "NHWC_NCHW": 12,
        "CHWN4": 15,
    },
    "1.4.0": {"NHWC_NCHW": 12, "NHWC_NCHW4_IC_SMALL": 13, "NCHW_NCHW4_IC_SMALL": 14, "CHWN4": 15},
    "1.5.0": {
        "NCHW4_NCHW": 11,
        "NCHW4_NHWC": 12,
        "NHWC_NCHW": 13,
        "NHWC_NCHW4_IC_SMALL": 14,
        "NCHW_NCHW4_IC_SMALL": 15,
        "CHWN4": 16,
        "NCHW64": 17,
    },
    "1.6.0": {"NHWC_NCHW": 12, "CHWN4": 15, "NCHW64": 16, "NCHW4_NHWC": 17},
    "1.13.0": {"NHWC_NCHW": 12, "CHWN4": 15, "NCHW64": 16, "NCHW4_NHWC": 17},
}
CASES = [(release, name, number) for release, names in FORMATS.items() for name, number in names.items()]


@pytest.mark.parametrize(("release", "name", "number"), CASES)
def test_format_numbers(release: str, name: str, number: int) -> None:
    for kind, slot in ((Convolution, 8), (Pooling, 7), (ConvBias, 3)):
        record = read(kind, {slot: number}, release)
        assert record.format.name == name  # type: ignore[attr-defined]
        e = FlatBufferEmitter(mge_version=V[release])
        raw = buffer(e.builder.finish(e.param(record), b"test")).root()
        assert raw.integer(slot, "uint") == number


@pytest.mark.parametrize(
    ("release", "number", "what"),
    [
        ("0.3.1", 7, "value 7 is the retired format NCHW_WINOGRAD, which no current release runs"),
        ("0.4.0", 10, "value 10 is the retired format NCHW44_WINOGRAD"),
        ("1.2.0", 9, "value 9 is the retired format NCHW_WINOGRAD"),
        ("0.3.1", 10, "value 10 is unknown; this release had 0 to 9"),
        ("1.2.0", 19, "value 19 is unknown; this release had 0 to 18"),
        ("1.5.0", 18, "value 18 is unknown; this release had 0 to 17"),
        ("1.13.0", 18, "value 18 is unknown; this loadrun knows 0 NCHW to 17 NCHW4_NHWC"),
    ],
)
def test_format_numbers_without_a_member(release: str, number: int, what: str) -> None:
    with pytest.raises(FormatError, match=f"Convolution.format: {what}"):
        read(Convolution, {8: number}, release)


@pytest.mark.parametrize(("release", "number"), [("1.4.0", 18), ("1.5.0", 19), ("1.6.0", 18)])
def test_correlation_format(release: str, number: int) -> None:
    """Correlation kept the old enum, in which CHWN4 moved once."""
    assert read(Correlation, {0: number}, release).format.name == "CHWN4"  # type: ignore[attr-defined]


def test_conv_bias_before_1_3() -> None:
    """Slot 10 was output_block_size, compute_mode came after it."""
    old = read(ConvBias, {4: 1, 10: 4, 11: 1}, "1.2.0")
    assert old == ConvBias(pad_h=1, compute_mode=ComputeMode.FLOAT32)
    assert read(ConvBias, {4: 1, 10: 1}, "1.3.0") == ConvBias(pad_h=1, compute_mode=ComputeMode.FLOAT32)
    e = FlatBufferEmitter(mge_version=V["1.2.0"])
    raw = buffer(e.builder.finish(e.param(ConvBias(compute_mode=ComputeMode.FLOAT32)), b"test")).root()
    assert (raw.integer(10, "uint"), raw.integer(11, "uint")) == (0, 1)


@pytest.mark.parametrize(
    ("number", "strategy"),
    [
        (0, Strategy.HEURISTIC),
        (1, Strategy.HEURISTIC | Strategy.REPRODUCIBLE),
        (2, Strategy.PROFILE),
        (3, Strategy.PROFILE | Strategy.REPRODUCIBLE),
        (4, Strategy.PROFILE | Strategy.HEURISTIC),
    ],
)
def test_strategy_before_1_3(number: int, strategy: Strategy) -> None:
    assert read(ExecutionPolicy, {0: number}, "1.2.0").strategy == strategy  # type: ignore[attr-defined]
    e = FlatBufferEmitter(mge_version=V["1.2.0"])
    raw = buffer(e.builder.finish(e.param(ExecutionPolicy(strategy=strategy)), b"test")).root()
    assert raw.integer(0, "uint") == number


def test_strategy_defaults() -> None:
    assert read(ExecutionPolicy, {}, "1.2.0").strategy == Strategy.HEURISTIC  # type: ignore[attr-defined]
    assert read(ExecutionPolicy, {}, "1.3.0").strategy == Strategy.HEURISTIC  # type: ignore[attr-defined]
    assert read(ExecutionPolicy, {0: 6}, "1.3.0").strategy == Strategy.PROFILE | Strategy.REPRODUCIBLE  # type: ignore[attr-defined]
    with pytest.raises(FormatError, match="value 5 is unknown; this release had 0 to 4"):
        read(ExecutionPolicy, {0: 5}, "1.2.0")


def test_images2neibs_before_1_4() -> None:
    """pad, stride, then the window; dilate came between them in 1.4."""
    assert read(Images2Neibs, {0: 1, 4: 5, 5: 6}, "1.3.1") == Images2Neibs(pad_h=1, window_h=5, window_w=6)
    assert read(Images2Neibs, {0: 1, 4: 5, 5: 6}, "1.4.0") == Images2Neibs(pad_h=1, dilate_h=5, dilate_w=6)


def test_fields_that_came_later_take_their_defaults() -> None:
    assert read(RelayoutFormat, {0: 20}, "1.2.0") == RelayoutFormat(mode=20, oc=0, group=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (Convolution(format=Format.NCHW64), r"release 1\.2\.0 had no format NCHW64"),
        (ExecutionPolicy(strategy=Strategy.OPTIMIZED), r"release 1\.2\.0 had no strategy"),
        (Images2Neibs(dilate_h=2), r"release 1\.2\.0 had no field Images2Neibs\.dilate_h"),
    ],
)
def test_what_an_old_release_cannot_say(record: Record, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        FlatBufferEmitter(mge_version=V["1.2.0"]).param(record)


# Names that releases before 1.8 registered, with the id in their files, and what loads them now.
RETIRED = {
    "AdaptivePooling": (14420471329773230998, "AdaptivePoolingV1"),
    "AdaptivePoolingBackward": (16767048936625217975, "AdaptivePoolingBackwardV1"),
    "BatchConvBiasForward": (7642445736364092188, "BatchConvBiasForwardV1"),
    "BatchNorm": (6032777997293313103, "BatchNormV1"),
    "BatchNormBackward": (14247817637904332910, "BatchNormBackwardV1"),
    "ConvBiasForwardV3": (17532003616627982465, "ConvBiasForwardV4"),
    "ConvolutionBackwardDataV1": (16334703432944436329, "ConvolutionBackwardDataV2"),
    "ConvolutionBackwardFilterV1": (12258691570569605680, "ConvolutionBackwardFilterV2"),
    "ConvolutionV1": (1005859804226725325, "ConvolutionV2"),
    "DctChannelSelect": (16182254079565348335, "DctChannelSelectV1"),
    "DeformableConvForward": (11017218381981369915, "DeformableConvForwardV1"),
    "GaussianRNG": (12713498428712098256, "GaussianRNGV1"),
    "GroupLocalV1": (15239326506034504675, "GroupLocalV2"),
    "LocalShareForward": (2371195947753554836, "LocalShareForwardV1"),
    "LocalV1": (2438723524179139873, "LocalV2"),
    "MaskConvolutionV1": (11635562412200372474, "MaskConvolutionV2"),
    "Pooling": (5154136392692894827, "PoolingV1"),
    "PoolingBackward": (7074493973094280316, "PoolingBackwardV1"),
    "ROIAlign": (9748224881588153795, "ROIAlignV1"),
    "RelayoutFormat": (3045039161730867197, "RelayoutFormatV1"),
    "Remap": (7991894348397599907, "RemapV1"),
    "ResizeV1": (2961320257790257266, "ResizeV2"),
    "UniformRNG": (2021268840938002607, "UniformRNGV1"),
    "WarpAffineV1": (4439108789117598576, "WarpAffineV2"),
    "WarpPerspective": (7748309056852641149, "WarpPerspectiveV2"),
}


@pytest.mark.parametrize("name", RETIRED)
def test_retired_names_load_as_their_successors(name: str) -> None:
    type_id, successor = RETIRED[name]
    e = FlatBufferEmitter()
    table = buffer(e.builder.finish(e.param(Elemwise()), b"test")).root()
    assert find_op(table, "id_mgbs", type_id).name == successor


@pytest.mark.parametrize(
    ("name", "type_id"),
    [
        ("CheckHasInf", 8055901896344484584),
        ("ParamPackConcat", 16540738078970941426),
        ("WinogradFilterPreprocess", 16864803776621971166),
    ],
)
def test_operators_that_are_gone(name: str, type_id: int) -> None:
    e = FlatBufferEmitter()
    table = buffer(e.builder.finish(e.param(Elemwise()), b"test")).root()
    with pytest.raises(FormatError, match=f"operator {name} was retired before MegEngine 1.8"):
        find_op(table, "id_mgbs", type_id)


@pytest.mark.parametrize("release", V)
def test_old_file_round_trips(release: str) -> None:
    """A graph of an old release is written in that release's layout and read again the same."""
    graph = Graph(header=Header("MGBS", V[release], model_version=1, has_middle_tensors=False))
    (x,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1, 4, 4, 4), "x")])
    w = np.ones((4, 4, 3, 3), "f4")
    (c,) = graph.add("SharedDeviceTensor", tensors=[StoredTensor(F32, w.shape, "w", encode(w, F32))])
    param = ConvBias(pad_h=1, format=Format.NCHW88, compute_mode=ComputeMode.FLOAT32)
    (y,) = graph.add(
        "ConvBiasForwardV4", param, ExecutionPolicy(strategy=Strategy.PROFILE), inputs=[x, c], names=["y"]
    )
    graph.outputs = graph.add("PoolingV1", Pooling(format=Format.CHWN4), inputs=[y], names=["z"])
    data = dump_bytes(graph)
    assert data[:8] == b"MGBS\0\0\0\0"
    found = loads(data).graph
    assert [o.params for o in found.oprs] == [o.params for o in graph.oprs]
    assert (found.header.magic, found.header.mge_version) == ("MGBS", V[release])
    assert plain(loads(dump_bytes(found)).graph) == plain(found)


def test_header_of_old_files() -> None:
    graph = Graph(header=Header("MGBS"))
    value = encode(np.array([1.5], "f4"), F32)
    graph.outputs = graph.add("SharedDeviceTensor", tensors=[StoredTensor(F32, (1,), None, value)])
    data = dump_bytes(graph)
    magic, zero, area = struct.unpack_from("<4sIQ", data)
    assert (magic, zero, area) == (b"MGBS", 0, 4)
    assert data[16:20] == struct.pack("<f", 1.5)
    (size,) = struct.unpack_from("<I", data, 20)
    assert 24 + size == len(data)
    assert data[28:32] == b"mgb1"


def test_ids_of_the_other_header_are_refused() -> None:
    graph = Graph(header=Header("MGBS"))
    graph.outputs = graph.add(
        "SharedDeviceTensor", tensors=[StoredTensor(F32, (1,), None, np.zeros(4, "u1"))]
    )
    old = dump_bytes(graph)
    graph.header.magic = "MGBC"
    new = dump_bytes(graph)
    with pytest.raises(FormatError, match="operator with type id"):
        loads(b"MGBC" + bytes(12) + old[8:])
    with pytest.raises(FormatError, match="operator with type id"):
        loads(b"MGBS" + bytes(4) + new[16:])
