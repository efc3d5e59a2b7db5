"""What is written, byte by byte: no package but numpy is needed to see it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
from loadrun.base.errors import UnsupportedError
from loadrun.graph.params import Cumsum, ROIAlign, ROIAlignMode
from loadrun.onnx import export
from loadrun.onnx.encode import (
    GraphMessage,
    ModelMessage,
    NodeMessage,
    TensorMessage,
    ValueMessage,
    encode,
    encode_tensor,
)
from loadrun.onnx.tensors import ElemType
from loadrun.testing import GraphBuilder
from tests.support.small_models import unary

Field = tuple[int, int, "int | bytes"]


def fields(data: bytes) -> Iterator[Field]:
    """Number, wire type and value of every field of a message, as the protobuf encoding guide has them."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        wire = key & 7
        if wire == 0:
            yield key >> 3, wire, varint()
            continue
        size = {1: 8, 5: 4}.get(wire) or varint()
        yield key >> 3, wire, data[at : at + size]
        at += size
    assert at == len(data)


def all_of(data: bytes, number: int) -> list[bytes]:
    return [v for n, _, v in fields(data) if n == number and isinstance(v, bytes)]


def one(data: bytes, number: int) -> int | bytes:
    (found,) = (v for n, _, v in fields(data) if n == number)
    return found


def test_numbers_and_names() -> None:
    # TensorProto: dims = 1, data_type = 2, name = 8, raw_data = 9; 300 is ac 02 as a varint.
    tensor = TensorMessage("w", ElemType.INT8, (300,), np.arange(300).astype("i1"))
    data = b"".join(encode_tensor(tensor))
    assert data[:8] == b"\x08\xac\x02\x10\x03\x42\x01w"
    assert data[8:11] == b"\x4a\xac\x02"
    assert np.frombuffer(data[11:], "i1").tolist() == np.arange(300).astype("i1").tolist()


def test_negative_numbers_take_ten_bytes() -> None:
    node = NodeMessage("Gather", ["x", "i"], ["y"], {"axis": -1})
    data = b"".join(encode(ModelMessage(GraphMessage("g", [node]), {"": 11}, 8, producer="")))
    (attribute,) = all_of(all_of(all_of(data, 7)[0], 1)[0], 5)
    # AttributeProto: name = 1, i = 3, type = 20 (INT = 2).
    assert attribute == b"\x0a\x04axis\x18" + b"\xff" * 9 + b"\x01\xa0\x01\x02"


def test_attributes_of_every_kind() -> None:
    given = {
        "f": 1.5,
        "s": "text",
        "ints": [1, 2],
        "floats": [0.5],
        "strings": ["a", "b"],
        "t": TensorMessage.of("", np.zeros(1, "f4")),
        "g": GraphMessage("sub"),
        "empty": [],
    }
    node = NodeMessage("X", ["a", ""], ["b"], given, domain="other")
    data = b"".join(encode(ModelMessage(GraphMessage("g", [node]), {"": 18}, 8)))
    written = all_of(all_of(data, 7)[0], 1)[0]
    assert all_of(written, 1) == [b"a", b""]
    assert one(written, 7) == b"other"
    kinds = {str(one(a, 1), "ascii"): one(a, 20) for a in all_of(written, 5)}  # type: ignore[arg-type]
    # AttributeType: FLOAT 1, STRING 3, TENSOR 4, GRAPH 5, FLOATS 6, INTS 7, STRINGS 8.
    assert kinds == {"f": 1, "s": 3, "ints": 7, "floats": 6, "strings": 8, "t": 4, "g": 5, "empty": 7}


def test_sizes_are_numbers_or_names() -> None:
    value = ValueMessage("x", ElemType.FLOAT, ("batch", 3, None))
    graph = GraphMessage("g", inputs=[value])
    data = b"".join(encode(ModelMessage(graph, {"": 18}, 8)))
    info = all_of(all_of(data, 7)[0], 11)[0]
    tensor = all_of(all_of(info, 2)[0], 1)[0]
    dims = all_of(all_of(tensor, 2)[0], 1)
    # Dimension: dim_value = 1, dim_param = 2.
    assert dims == [b"\x12\x05batch", b"\x08\x03", b""]


def test_an_exported_function() -> None:
    made = export(lambda x, y: F.relu(x + y), (np.ones((2, 3), "f4"), np.ones(3, "f4")))
    graph = all_of(made.data, 7)[0]
    assert [one(n, 4) for n in all_of(graph, 1)] == [b"Add", b"Relu"]
    assert [one(v, 1) for v in all_of(graph, 11)] == [b"x", b"y"]
    assert one(made.data, 1) == 8
    assert one(all_of(made.data, 8)[0], 2) == 18
    nodes = all_of(graph, 1)
    assert all_of(nodes[0], 1) == [b"x", b"y"]
    assert all_of(nodes[1], 2) == [one(all_of(graph, 12)[0], 1)]


def test_weights_are_raw_bytes(tmp_path: Path) -> None:
    weight = np.arange(6, dtype="f4").reshape(3, 2)
    made = export(lambda x: F.matmul(x, weight), np.ones((1, 3), "f4"), tmp_path / "m.onnx")
    graph = all_of((tmp_path / "m.onnx").read_bytes(), 7)[0]
    assert (tmp_path / "m.onnx").read_bytes() == made.data
    stored = {one(t, 9) for t in all_of(graph, 5)}
    assert weight.tobytes() in stored


def test_testcases_are_tensor_messages(tmp_path: Path) -> None:
    made = export("fixtures/nets/mlp.mge", f=tmp_path / "mlp.onnx")
    assert made.test_data_sets == 3
    case = made.source.testcases[1]
    folder = tmp_path / "mlp.test_data_set_1"
    data = (folder / "input_0.pb").read_bytes()
    assert [v for n, _, v in fields(data) if n == 1] == list(case.inputs["data"].shape)
    assert one(data, 8) == b"data"
    assert one(data, 9) == case.inputs["data"].tobytes()
    assert one((folder / "output_0.pb").read_bytes(), 9) == case.expects["out"].tobytes()


def test_data_sets_of_an_earlier_export_go(tmp_path: Path) -> None:
    bundle = loadrun.load("fixtures/nets/mlp.mge")
    assert export(bundle, f=tmp_path / "m.onnx").test_data_sets == 3
    (tmp_path / "m.test_data_set_0" / "output_1.pb").write_bytes(b"of an output that this model has not")
    (tmp_path / "m.test_data_set_2" / "notes.txt").write_text("somebody's own")
    (tmp_path / "m.test_data_set_x").mkdir()
    bundle.testcases = [bundle.testcases[0]]
    assert export(bundle, f=tmp_path / "m.onnx").test_data_sets == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        *("m.onnx", "m.test_data_set_0", "m.test_data_set_2", "m.test_data_set_x"),
    ]
    left = sorted(p.name for p in (tmp_path / "m.test_data_set_0").iterdir())
    assert left == ["checks.json", "input_0.pb", "output_0.pb"]


def test_models_in_one_folder_keep_their_data_apart(tmp_path: Path) -> None:
    mlp, logits = loadrun.load("fixtures/nets/mlp.mge"), loadrun.load("fixtures/nets/mlp.v1.mge")
    logits.testcases = [logits.testcases[2]]
    # A model of the zoo's layout lies there as well.
    export(mlp, f=tmp_path / "model.onnx")
    for i in range(3):
        (tmp_path / f"model.test_data_set_{i}").rename(tmp_path / f"test_data_set_{i}")
    assert export(mlp, f=tmp_path / "a.b.onnx").test_data_sets == 3
    assert export(logits, f=tmp_path / "a.onnx").test_data_sets == 1
    found = {n: loadrun.load(tmp_path / f"{n}.onnx").testcases for n in ("model", "a.b", "a")}
    assert {n: len(cases) for n, cases in found.items()} == {"model": 3, "a.b": 3, "a": 1}
    for i in range(3):
        for name in ("model", "a.b"):
            assert found[name][i].inputs["data"].tolist() == mlp.testcases[i].inputs["data"].tolist()
    assert found["a"][0].inputs["data"].tolist() == logits.testcases[0].inputs["data"].tolist()


def test_names_that_are_no_utf8_are_written_as_escapes(tmp_path: Path) -> None:
    """A name of a dump may be any bytes; protobuf's texts are UTF-8."""
    bundle = loadrun.Bundle(unary())
    bundle.inputs[0].name = bundle.inputs[0].owner.tensors[0].name = "a\udcff"
    export(bundle, f=tmp_path / "m.onnx")
    assert [v.name for v in loadrun.load(tmp_path / "m.onnx").inputs] == ["a\\xff"]


def test_an_operator_that_contradicts_itself_is_refused_by_name(tmp_path: Path) -> None:
    graph = unary()
    graph.outputs = graph.add("CumsumV1", Cumsum(axis=9), inputs=graph.outputs)
    bundle = loadrun.Bundle(graph)
    with pytest.raises(UnsupportedError, match=r"CumsumV1 .* it cannot be computed: there is no axis 9"):
        export(bundle, f=tmp_path / "m.onnx")


def test_bins_without_samples_are_refused() -> None:
    builder = GraphBuilder()
    x, rois = builder.input("x", 1, 2, 6, 6), builder.input("rois", 1, 5)
    param = ROIAlign(
        mode=ROIAlignMode.AVERAGE, pooled_height=2, pooled_width=2, sample_height=0, sample_width=2
    )
    y = builder.add("ROIAlignV1", param, inputs=[x, rois], n_outputs=2)
    with pytest.raises(UnsupportedError, match=r"ROIAlignV1 .*bins have no samples"):
        export(loadrun.Bundle(builder.done(y)))
