"""Writing files: what cannot be written is refused, and a file is replaced whole or not at all."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import FormatError, LoadRunError
from loadrun.dump import Bundle, load, loads, save, writer
from loadrun.dump.writer import dump_bytes
from loadrun.graph import Graph, Header, StoredTensor, TensorFormat, Var
from loadrun.graph.dtypes import DType, encode
from loadrun.graph.params import Convolution, Dimshuffle, Elemwise, Host2DeviceCopy, Images2Neibs, Pooling
from loadrun.testcase import Testcase
from tests.support.dump_graphs import F32, case_graph, model


def stored(data: object, shape: tuple[int, ...] | None = (2,), dtype: DType = F32) -> Graph:
    graph = Graph()
    tensor = StoredTensor(dtype, shape, None, data)  # type: ignore[arg-type]
    graph.outputs = graph.add("ImmutableTensor", tensors=[tensor])
    return graph


def unknown_operator() -> Graph:
    graph = model()
    graph.oprs[2].type = "Nothing"
    return graph


def wrong_record() -> Graph:
    graph = model()
    graph.oprs[2].params = (Convolution(),)
    return graph


def later_variable() -> Graph:
    graph = model()
    graph.oprs[2].inputs[1] = graph.oprs[3].outputs[0]
    return graph


def foreign_output() -> Graph:
    graph = model()
    graph.outputs = [Var(0, graph.oprs[0], 0, "strange")]
    return graph


def no_outputs() -> Graph:
    graph = model()
    graph.outputs = []
    return graph


def wrong_output_count() -> Graph:
    graph = model()
    graph.oprs[3].outputs.append(Var(9, graph.oprs[3], 1))
    return graph


def too_large_number() -> Graph:
    graph = model()
    graph.oprs[3].dumped = graph.oprs[3].dumped._replace(priority=2**31)
    return graph


def negative_axis() -> Graph:
    graph = model()
    graph.oprs[0].tensors[0].shape = (-1, 3)
    return graph


def too_large_parameter() -> Graph:
    graph = Graph()
    (x,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1, 1, 4, 4), "x")])
    graph.outputs = graph.add("PoolingV1", Pooling(pad_h=2**32), inputs=[x])
    return graph


def too_large_axis() -> Graph:
    graph = model()
    order = Dimshuffle(pattern=(1, 2**31), ndim=2)
    graph.outputs = graph.add("Dimshuffle", order, inputs=[graph.inputs[0]])
    return graph


def lone_surrogate() -> Graph:
    graph = model()
    graph.oprs[3].name = "\ud800"
    return graph


def old_release_without_the_field() -> Graph:
    graph = Graph(header=Header("MGBS", 100200))
    (x,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1, 1, 4, 4), "x")])
    graph.outputs = graph.add("Images2Neibs", Images2Neibs(dilate_h=2), inputs=[x])
    return graph


@pytest.mark.parametrize("fmt", ["FBS_V2", "FBS"])
@pytest.mark.parametrize(
    ("make", "what"),
    [
        (unknown_operator, r"operator 2 \(Nothing\): no such operator is known"),
        (wrong_record, r"operator 2 \(Elemwise\) needs the record Elemwise, found Convolution"),
        (later_variable, r"operator 2 \(Elemwise\) reads a variable that no earlier operator produces"),
        (foreign_output, "the output 'strange' is not produced by any operator of the graph"),
        (no_outputs, "the graph has no outputs, so there is nothing to compute"),
        (wrong_output_count, r"operator 3 \(Elemwise\) has 2 outputs, but a file needs 1"),
        (too_large_number, "the graph holds a value that FBS(_V2)? cannot store"),
        (negative_axis, "the graph holds a value that FBS(_V2)? cannot store"),
        (
            too_large_parameter,
            r"FBS(_V2)? cannot store: PoolingV1 \(operator 1\): Pooling\.pad_h is 4294967296, which is no uint",
        ),
        (
            too_large_axis,
            r"FBS(_V2)? cannot store: Dimshuffle \(operator 4\): 2147483648 is not an integer from -2147483648 to",
        ),
        (lone_surrogate, "the graph holds a value that FBS(_V2)? cannot store"),
        (old_release_without_the_field, r"release 1\.2\.0 had no field Images2Neibs\.dilate_h"),
        (lambda: stored(np.zeros(7, np.uint8)), r"Float32 \[2\] takes 8 bytes, found uint8 \[7\]"),
        (lambda: stored(np.zeros(2, np.float32)), r"Float32 \[2\] takes 8 bytes, found float32 \[2\]"),
        (lambda: stored(np.zeros(8, np.float32)), r"Float32 \[2\] takes 8 bytes, found float32 \[8\]"),
        (lambda: stored(np.zeros((8, 1), np.uint8)), r"Float32 \[2\] takes 8 bytes, found uint8 \[8, 1\]"),
        (lambda: stored(np.zeros((2, 4), np.uint8)), r"Float32 \[2\] takes 8 bytes, found uint8 \[2, 4\]"),
        (
            lambda: stored(np.zeros(4, np.uint8), ()),
            "a tensor with a value needs a shape of at least one axis",
        ),
        (
            lambda: stored(np.zeros(4, np.uint8), None),
            "a tensor with a value needs a shape of at least one axis",
        ),
    ],
)
def test_what_cannot_be_written(make: Callable[[], Graph], what: str, fmt: str) -> None:
    with pytest.raises(FormatError, match=what):
        dump_bytes(make(), format=fmt)


def test_unknown_format() -> None:
    with pytest.raises(FormatError, match="format 'ONNX' is unknown; expected 'FBS_V2' or 'FBS'"):
        dump_bytes(model(), format="ONNX")


def test_testcase_without_an_input() -> None:
    with pytest.raises(FormatError, match="the testcase has no value for the input 'z'"):
        case_graph(Testcase({"x": np.zeros(1, "f4")}), ["x", "z"])


def test_models_of_2_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_BYTES", 300)
    with pytest.raises(
        FormatError, match="the tensors take 400 bytes, FBS_V2 allows 300 in all; use format 'FBS'"
    ):
        dump_bytes(stored(np.zeros(400, np.uint8), (100,)))
    with pytest.raises(FormatError, match=r"the model takes \d+ bytes, the format allows 300"):
        dump_bytes(model())
    assert loads(dump_bytes(stored(np.zeros(400, np.uint8), (100,)), format="FBS")).facts.size > 400
    monkeypatch.setattr(writer, "MAX_BYTES", 100)
    with pytest.raises(FormatError, match=r"the model takes \d+ bytes, the format allows 100"):
        dump_bytes(model(), format="FBS")


def test_saving_over_the_mapped_source(tmp_path: Path) -> None:
    path = tmp_path / "m.mge"
    save(stored(np.arange(8, dtype=np.uint8)), path)
    bundle = load(path)
    save(bundle, path, format="FBS")
    assert load(path).graph.header.format == "FBS"
    tensor = bundle.graph.oprs[0].tensors[0]
    assert tensor.data is not None
    assert tensor.data.tolist() == list(range(8)), "the old mapping still shows the old file"


def test_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.mge"
    save(model(), path)
    before = path.read_bytes()
    with pytest.raises(FormatError):
        save(unknown_operator(), path)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        save(model(names=False), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.mge"]


def test_failed_testcase_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no value for the input 'x'"):
        save(Bundle(model(), [Testcase({})]), tmp_path / "m.mge")
    assert os.listdir(tmp_path) == []


def test_mode_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.mge"
    mask = os.umask(0o027)
    try:
        save(model(), path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        save(model(), path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(mask)


def test_equal_strings_are_stored_once() -> None:
    graph = model()
    for opr in graph.oprs:
        opr.name = "the same rather long name of an operator"
    assert dump_bytes(graph).count(b"the same rather long name") == 1


def test_missing_records_take_their_defaults() -> None:
    graph = model()
    graph.oprs[3].params = ()
    assert loads(dump_bytes(graph)).graph.oprs[3].params == (Elemwise(),)


def test_testcase_values_keep_their_dtypes() -> None:
    dtype = DType("Quantized8Asymm", 0.5, 7)
    value = np.array([1, 2], np.uint8)
    graph = case_graph(Testcase({"x": value, "f": np.ones(1, "f2")}, {"x": dtype}), ["f", "x"])
    assert [t.dtype for o in graph.oprs for t in o.tensors] == [DType("Float16"), dtype]
    assert [o.dumped.comp_node for o in graph.oprs] == [(), ()]
    assert graph.oprs[0].tensors[0].comp_node == "cpux:0"


def test_scalars_get_an_axis() -> None:
    graph = case_graph(Testcase({"x": np.float32(3).reshape(())}), ["x"])
    assert graph.oprs[0].tensors[0].shape == (1,)
    assert loads(dump_bytes(graph)).graph.oprs[0].tensors[0].value().tolist() == [3.0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda g: setattr(g.oprs[0].tensors[0], "dtype", ["f4"]), "cannot store: 'list' object"),
        (lambda g: setattr(g.oprs[0].tensors[0], "format", TensorFormat(9)), "cannot store: 9"),
        (lambda g: setattr(g.oprs[0], "tensors", [None]), "cannot store: 'NoneType' object"),
    ],
)
def test_graphs_edited_into_nonsense(change: Callable[[Graph], None], why: str) -> None:
    graph = model()
    change(graph)
    with pytest.raises(FormatError, match=why):
        save(graph, io.BytesIO())


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (Testcase({"x": [1.0, 2.0]}), "the value of 'x' must be a numpy array, found list"),  # type: ignore[dict-item]
        (Testcase({"x": np.array(["a", "b"])}), "graphs have no dtype for numpy <U1"),
        ({"x": np.zeros(2, "f4")}, "testcase 0 must be a Testcase, found dict"),
    ],
)
def test_testcases_of_nonsense(case: Any, why: str) -> None:
    with pytest.raises(LoadRunError, match=why):
        save(model(), io.BytesIO(), testcases=[case])


def test_big_endian_values_are_stored_little_endian() -> None:
    assert encode(np.array([1], ">f4"), F32).tobytes() == b"\0\0\x80?"
