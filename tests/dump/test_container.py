"""The file as a whole: testcases in any mix of formats, appended dumps, trailing bytes, names."""

from __future__ import annotations

import gc
import io
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import FormatError, UsageError
from loadrun.dump import Bundle, load, load_all, loads, save
from loadrun.dump.writer import dump_bytes
from loadrun.graph import Graph, Metadata, StoredTensor, TensorFormat
from loadrun.graph.dtypes import DType, encode
from loadrun.graph.params import AssertEqual, Host2DeviceCopy
from loadrun.testcase import Testcase
from tests.support.dump_graphs import F32, case_graph, model

FORMATS = ["FBS_V2", "FBS"]
X = np.array([[1, -2, 3], [0.5, 0, -1]], np.float32)


def container(parts: list[bytes], count: int | None = None) -> bytes:
    return b"mgbtest0" + struct.pack("<I", len(parts) - 1 if count is None else count) + b"".join(parts)


def case(value: np.ndarray, fmt: str, **more: np.ndarray) -> bytes:
    return dump_bytes(case_graph(Testcase({"x": value, **more}), ["x", *more]), format=fmt)


@pytest.mark.parametrize("first", FORMATS)
@pytest.mark.parametrize("second", FORMATS)
def test_formats_mix(first: str, second: str) -> None:
    """MegEngine's Python writes testcases as FBS_V2 even behind an FBS graph."""
    data = container([dump_bytes(model(), format=first), case(X, second), case(2 * X, second)])
    bundle = loads(data)
    assert (
        bundle.graph.header.format,
        bundle.facts.is_container,
        bundle.facts.size,
        bundle.facts.trailing,
    ) == (
        first,
        True,
        len(data),
        0,
    )
    assert [t.arrays["x"].tolist() for t in bundle.testcases] == [X.tolist(), (2 * X).tolist()]
    assert bundle.testcases[1].dtypes == {"x": F32}


def test_old_header_in_a_container() -> None:
    graph = model()
    graph.header.magic = "MGBS"
    old = dump_bytes(graph, format="FBS")
    assert old[:8] == b"MGBS\0\0\0\0"
    bundle = loads(container([old, case(X, "FBS")]))
    assert bundle.graph.header.magic == "MGBS"
    assert bundle.testcases[0].arrays["x"].tolist() == X.tolist()


@pytest.mark.parametrize("fmt", FORMATS)
def test_no_testcases(fmt: str) -> None:
    bundle = loads(container([dump_bytes(model(), format=fmt)]))
    assert bundle.facts.is_container
    assert len(bundle.testcases) == 0


@pytest.mark.parametrize("fmt", FORMATS)
def test_bundle_survives_saving(fmt: str, tmp_path: Path) -> None:
    source = Bundle(model(), [Testcase({"x": X}), Testcase({"x": X[:1]})])
    size = save(source, tmp_path / "m.mge", format=fmt).tot_bytes
    assert size == (tmp_path / "m.mge").stat().st_size
    found = load(tmp_path / "m.mge")
    assert (found.graph.header.format, found.facts.size, found.path) == (fmt, size, str(tmp_path / "m.mge"))
    assert [t.inputs["x"].shape for t in found.testcases] == [(2, 3), (1, 3)]
    assert found.testcases[-1].arrays["x"].tolist() == X[:1].tolist()
    assert [t.arrays["x"].shape for t in found.testcases[1:]] == [(1, 3)]


@pytest.mark.parametrize("fmt", FORMATS)
def test_appended_dumps(fmt: str) -> None:
    one, two = dump_bytes(model(), format=fmt), container([dump_bytes(model(), format=fmt), case(X, fmt)])
    found = load_all(one + two + one + b"rest")
    assert [b.facts.size for b in found] == [len(one), len(two), len(one)]
    assert [b.facts.is_container for b in found] == [False, True, False]
    assert found[0].facts.trailing == 4
    assert loads(one + two).facts.trailing == 0


def test_broken_tail_is_trailing() -> None:
    """MegEngine stops reading behind the first graph, so what follows cannot make a file unreadable."""
    data = dump_bytes(model())
    found = load_all(data + data[:-1])
    assert len(found) == 1
    assert found[0].facts.trailing == len(data) - 1


@pytest.mark.parametrize("fmt", FORMATS)
def test_sources(fmt: str, tmp_path: Path) -> None:
    data = dump_bytes(model(), format=fmt)
    path = tmp_path / "m.mge"
    path.write_bytes(data)
    for source in (path, str(path), data, bytearray(data), memoryview(data), io.BytesIO(data)):
        assert load(source).graph.outputs[0].name == "y"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "found"), [(object(), "an object of type object"), (io.StringIO("x"), "a file opened as text")]
)
def test_what_is_no_source_is_refused(source: Any, found: str) -> None:
    with pytest.raises(
        UsageError, match=f"as a path, as bytes or as a file opened in binary mode; found {found}"
    ):
        load(source)


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=r"expected a \.mge file, found a folder"):
        load(tmp_path)


def test_values_are_views_of_the_source() -> None:
    """Weights are mapped, not copied: a larger weight makes loading no slower."""
    graph = Graph()
    big = np.zeros(1 << 20, np.uint8)
    graph.outputs = graph.add("ImmutableTensor", tensors=[StoredTensor(F32, (1 << 18,), None, big)])
    for fmt in FORMATS:
        data = np.frombuffer(dump_bytes(graph, format=fmt), np.uint8)
        value = loads(memoryview(data)).graph.oprs[0].tensors[0].value()  # type: ignore[arg-type]
        assert np.shares_memory(value, data)
        assert not value.flags.writeable


def test_collector_is_left_as_it_was() -> None:
    data = dump_bytes(model())
    loads(data)
    assert gc.isenabled()
    gc.disable()
    try:
        loads(data)
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(FormatError):
        loads(data[:60])
    assert gc.isenabled()


class _Marker:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.path,)  # type: ignore[return-value]


@pytest.mark.parametrize("fmt", FORMATS)
def test_pickle_in_user_info_is_never_loaded(fmt: str, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    graph = model()
    graph.header.metadata = Metadata(
        is_valid=True, user_info=pickle.dumps(_Marker(marker)), optimize_options=64
    )
    bundle = loads(dump_bytes(graph, format=fmt))
    assert bundle.graph.header.metadata == graph.header.metadata
    assert not marker.exists()
    pickle.loads(graph.header.metadata.user_info or b"")
    assert marker.exists(), "the pickle would have left its mark"


@pytest.mark.parametrize("fmt", FORMATS)
def test_metadata(fmt: str) -> None:
    graph = model()
    assert loads(dump_bytes(graph, format=fmt)).graph.header.metadata is None
    graph.header.metadata = Metadata(True, True, 2**63 + 5, b"\x80\0\xff")
    assert loads(dump_bytes(graph, format=fmt)).graph.header.metadata == graph.header.metadata
    graph.header.metadata = Metadata(is_valid=False)
    assert loads(dump_bytes(graph, format=fmt)).graph.header.metadata == graph.header.metadata


def test_output_alias_replaces_the_outputs() -> None:
    graph = model()
    graph.outputs = [graph.oprs[2].outputs[0], graph.oprs[3].outputs[0]]
    graph.header.original_ids = [70, 71]
    graph.header.output_alias = [(71, "result"), (70, "sum"), (71, "again")]
    found = loads(dump_bytes(graph)).graph
    assert [v.name for v in found.outputs] == ["y", "s", "y"]
    assert found.header.output_alias == graph.header.output_alias
    assert loads(dump_bytes(found)).graph.header.output_alias == graph.header.output_alias


def test_output_alias_of_nothing() -> None:
    graph = model()
    graph.header.original_ids = [5]
    graph.header.output_alias = [(6, "other")]
    with pytest.raises(FormatError, match="the output alias 'other' names the unknown output 6"):
        loads(dump_bytes(graph))


@pytest.mark.parametrize("fmt", FORMATS)
def test_output_listed_twice_and_input_as_output(fmt: str) -> None:
    graph = model()
    y, x = graph.outputs[0], graph.oprs[0].outputs[0]
    graph.outputs = [y, x, y]
    bundle = loads(dump_bytes(graph, format=fmt))
    assert [v.id for v in bundle.graph.outputs] == [y.id, x.id, y.id]
    assert list(bundle.outputs) == ["y", "x", "y#2"]


@pytest.mark.parametrize("fmt", FORMATS)
def test_input_without_shape(fmt: str) -> None:
    found = loads(dump_bytes(model(shape=None), format=fmt)).graph.inputs[0]
    assert found.shape is None
    assert found.owner.tensors[0].shape is None
    assert found.owner.tensors[0].data is None


def test_names_v2() -> None:
    graph = loads(dump_bytes(model(names=True))).graph
    assert [v.name for v in graph.vars()] == ["x", "w", "s", "y"]
    graph = loads(dump_bytes(model(names=False))).graph
    assert [v.name for v in graph.vars()] == ["x", None, None, None]
    assert graph.outputs[0].label == "RELU[3]"


def test_names_v1() -> None:
    """FBS stores names per operator; the input's name is that of its tensor."""
    graph = loads(dump_bytes(model(), format="FBS")).graph
    assert [v.name for v in graph.vars()] == ["x", "w", "s", "y"]
    bare = model()
    for v in bare.vars():
        v.name = None
    bare.oprs[2].name = "add"
    for fmt in FORMATS:
        bare.header.has_middle_tensors = False
        assert [v.name for v in loads(dump_bytes(bare, format=fmt)).graph.vars()] == ["x", None, "add", None]


def test_names_survive_the_change_of_format() -> None:
    for first, second in (FORMATS, FORMATS[::-1]):
        graph = loads(dump_bytes(model(), format=first)).graph
        assert loads(dump_bytes(graph, format=second)).graph.outputs[0].name == "y"


def test_unnamed_input_gets_a_name() -> None:
    graph = Graph()
    graph.outputs = graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1,), None)])
    graph.header.has_middle_tensors = False
    assert [v.name for v in loads(dump_bytes(graph)).inputs] == ["h2d[0]"]


@pytest.mark.parametrize("fmt", FORMATS)
def test_equal_input_names(fmt: str) -> None:
    graph = Graph()
    for _ in range(2):
        graph.outputs += graph.add(
            "Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1,), "x")]
        )
    graph.header.has_middle_tensors = False
    with pytest.raises(FormatError, match="two graph inputs share the name 'x'"):
        loads(dump_bytes(graph, format=fmt))


@pytest.mark.parametrize("fmt", FORMATS)
def test_name_that_is_not_utf8(fmt: str) -> None:
    data = dump_bytes(model(), format=fmt)
    broken = data.replace(b"\1\0\0\0y\0", b"\1\0\0\0\xff\0")
    assert broken != data
    graph = loads(broken).graph
    assert ascii(graph.outputs[0].name) == r"'\udcff'"
    assert dump_bytes(graph, format=fmt) == broken


def test_inputs_that_are_not_utf8_keep_the_order_of_their_bytes() -> None:
    """Testcases store tensors in the order of the names' bytes, and 0xff comes behind every letter."""
    graph = Graph()
    for name in ("\udcff", "z", "\udcc3\udcc3", "é"):
        graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=[name], tensors=[StoredTensor(F32, (1,), name)])
    graph.outputs = graph.oprs[0].outputs
    found = [v.name or "" for v in loads(dump_bytes(graph)).graph.inputs]
    assert [os.fsencode(n) for n in found] == [b"z", b"\xc3\xa9", b"\xc3\xc3", b"\xff"]


@pytest.mark.parametrize("kind", ["SharedDeviceTensorWithFormat", "MultipleDeviceTensorWithFormatHolder"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_tensor_formats(kind: str, fmt: str) -> None:
    graph = Graph()
    wanted = [
        TensorFormat(1),
        TensorFormat(2, align_axis=3),
        TensorFormat(3, size_nbits=4, align_size_in_bits=8),
    ]
    groups = [[f] for f in wanted] if kind.startswith("Shared") else [wanted]
    for group in groups:
        held = [StoredTensor(F32, (1,), None, encode(np.ones(1, "f4"), F32), format=f) for f in group]
        graph.outputs += graph.add(kind, n_outputs=len(group), tensors=held)
    found = loads(dump_bytes(graph, format=fmt)).graph
    assert [t.format for o in found.oprs for t in o.tensors] == wanted
    if fmt == "FBS":
        blobs = [b for o in found.oprs for b in o.dumped.blobs]
        assert blobs[-1] == b"\2\0\0\0\4\10"
        assert blobs[-2] == b"\1\0\0\0\3"
        assert blobs[-3] == b"\0\0\0\0"
        assert len(blobs) == 3 + kind.startswith("Multiple")


# Low nibble first, every innermost row padded to a whole byte: seen in dumps of MegEngine 1.13.0.
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(
    ("dtype", "values", "raw"),
    [
        (DType("QuantizedS4", 0.5), [[-8, 7, -1], [0, 1, 2]], b"\x78\x0f\x10\x02"),
        (DType("Quantized4Asymm", 0.5, 8), [[15, 0, 9], [1, 2, 3]], b"\x0f\x09\x21\x03"),
        (DType("IntB1"), [-1, -1, 1, 1, 1, -1, 1], b"\x5c"),
        (DType("IntB2"), [-3, -1, 1, 3, 1, -1, 3], b"\xe4\x36"),
        (DType("IntB4"), [-15, -1, 1, 15, 1, -1, 15], b"\x70\xf8\x78\x0f"),
    ],
)
def test_low_bit_packing(fmt: str, dtype: DType, values: list[Any], raw: bytes) -> None:
    array = np.array(values, dtype.np)
    graph = Graph()
    graph.outputs = graph.add(
        "ImmutableTensor", tensors=[StoredTensor(dtype, array.shape, None, encode(array, dtype))]
    )
    tensor = loads(dump_bytes(graph, format=fmt)).graph.oprs[0].tensors[0]
    assert tensor.data is not None
    assert tensor.data.tobytes() == raw
    assert tensor.value().tolist() == values


@pytest.mark.parametrize("fmt", FORMATS)
def test_testcase_of_another_model(fmt: str) -> None:
    bundle = loads(container([dump_bytes(model(), format=fmt), case(X, fmt, z=X)]))
    with pytest.raises(FormatError, match="testcase 0 holds 2 tensors, expected 1, one for each input: x"):
        bundle.testcases[0]


def test_testcase_that_computes() -> None:
    bundle = loads(container([dump_bytes(model()), dump_bytes(model())]))
    with pytest.raises(
        FormatError, match="testcase 0 holds the operator Elemwise; only stored tensors are allowed"
    ):
        list(bundle.testcases)


def test_testcases_follow_the_byte_order_of_names() -> None:
    """Names are sorted as bytes, upper case before lower case, as std::map sorts them."""
    graph = Graph()
    for name in ("b", "Z", "a:expect", "é", "a"):
        graph.outputs += graph.add(
            "Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1,), name)]
        )
    order = ["Z", "a", "a:expect", "b", "é"]
    values = {n: np.full(1, i, np.float32) for i, n in enumerate(order)}
    data = container([dump_bytes(graph), dump_bytes(case_graph(Testcase(values), order))])
    bundle = loads(data)
    assert [v.name for v in bundle.graph.inputs] == order
    found = bundle.testcases[0]
    assert {k: float(v[0]) for k, v in found.arrays.items()} == {n: float(i) for i, n in enumerate(order)}
    assert list(found.expects) == ["a"]
    assert list(found.inputs) == ["Z", "a", "b", "é"]


def test_nested_container() -> None:
    inner = container([dump_bytes(model())])
    with pytest.raises(FormatError, match=r"expected a MegEngine dump .*mgbtest0.* \(at byte 12\)"):
        loads(container([inner]))


def checked(names: list[str], outputs: list[str]) -> Graph:
    graph = Graph()
    for name, out in zip(names, outputs, strict=True):
        (e,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1,), name)])
        e.name = name
        (x,) = graph.add(
            "ImmutableTensor", tensors=[StoredTensor(F32, (1,), None, encode(np.zeros(1, "f4"), F32))]
        )
        x.name = out
        graph.outputs += graph.add("AssertEqual", AssertEqual(maxerr=0.5), inputs=[e, x, x])
    return graph


def test_checks_are_named_after_what_they_expect() -> None:
    bundle = Bundle(checked(["y:expect", "z:expect", "w"], ["a", "b", "c"]))
    assert [(c.name, c.maxerr) for c in bundle.checks] == [("y", 0.5), ("z", 0.5), ("c", 0.5)]
    assert [v.name for v in bundle.inputs] == ["w"]
    assert {n: v.name for n, v in bundle.outputs.items()} == {"y": "a", "z": "b", "c": "c"}


def test_equal_check_names_are_numbered() -> None:
    bundle = Bundle(checked(["u", "v", "w", "t"], ["y", "y", "y#2", "y"]))
    assert [c.name for c in bundle.checks] == ["y", "y#2", "y#2#2", "y#3"]


def test_checks_behind_a_conversion() -> None:
    graph = checked(["y:expect"], ["a"])
    for _ in range(3):
        graph.outputs = graph.add("Identity", inputs=graph.outputs)
    bundle = Bundle(graph)
    assert [c.name for c in bundle.checks] == ["y"]
    assert list(bundle.outputs) == ["y"]
