"""Sequences, optional values and text, which are known when a model is loaded; bits as other types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UnsupportedError, UsageError
from loadrun.cli import main

onnx = pytest.importorskip("onnx", reason="models are built with the package onnx")
helper, T = onnx.helper, onnx.TensorProto
F = np.float32
tensor = helper.make_tensor_value_info
Array = np.ndarray[Any, Any]


def model(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], opset: int = 20, stored: Any = ()
) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(stored))
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 4)]
    )
    return bytes(made.SerializeToString())


def sequence(name: str, kind: int = T.FLOAT) -> Any:
    return helper.make_value_info(
        name, helper.make_sequence_type_proto(helper.make_tensor_type_proto(kind, None))
    )


def test_the_values_of_a_sequence_are_outputs() -> None:
    data = model(
        [helper.make_node("SplitToSequence", ["x", "s"], ["seq"], axis=0)],
        [tensor("x", T.FLOAT, [5, 2])],
        [sequence("seq")],
        stored=[onnx.numpy_helper.from_array(np.array([2, 3]), "s")],
    )
    bundle = loadrun.load(data)
    x = np.arange(10, dtype=F).reshape(5, 2)
    (result,) = loadrun.run(bundle, {"x": x})
    np.testing.assert_array_equal(result["seq.0"], x[:2])
    np.testing.assert_array_equal(result["seq.1"], x[2:])


def test_testcases_of_sequences_of_other_lengths_need_files_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [helper.make_node("SplitToSequence", ["x"], ["seq"], axis=0)]
    (tmp_path / "m.onnx").write_bytes(model(nodes, [tensor("x", T.FLOAT, ["n", 2])], [sequence("seq")]))
    for i, n in enumerate((2, 1)):
        folder = tmp_path / f"test_data_set_{i}"
        folder.mkdir()
        x = np.arange(2 * n, dtype=F).reshape(n, 2)
        (folder / "input_0.pb").write_bytes(onnx.numpy_helper.from_array(x).SerializeToString())
        rows = onnx.numpy_helper.from_list([x[k : k + 1] for k in range(n)])
        (folder / "output_0.pb").write_bytes(rows.SerializeToString())
    assert main([str(tmp_path / "m.onnx")]) == 0
    assert main(["pack", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.mge")]) == 2
    assert "testcase 1 has no value for the output 'seq.1'" in capsys.readouterr().err


def test_a_sequence_is_given_as_a_list() -> None:
    data = model(
        [
            helper.make_node("ConcatFromSequence", ["seq"], ["c"], axis=0),
            helper.make_node("Add", ["c", "x"], ["y"]),
        ],
        [sequence("seq"), tensor("x", T.FLOAT, [1])],
        [tensor("y", T.FLOAT, [3])],
    )
    given = [F([1, 2]), F([3])]
    (result,) = loadrun.run(loadrun.load(data, constants={"seq": given}), {"x": F([10])})
    assert result["y"].tolist() == [11, 12, 13]
    with pytest.raises(
        UsageError, match="input 'seq' is a sequence, the constant for it ndarray, expected a list"
    ):
        loadrun.load(data, constants={"seq": F([1])})


@pytest.mark.parametrize("given", [None, 2.5])
def test_an_optional_value_is_given_or_not(given: float | None) -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(T.FLOAT, []))
    then = helper.make_graph(
        [helper.make_node("OptionalGetElement", ["o"], ["a"])], "t", [], [tensor("a", 1, None)]
    )
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "e", [], [tensor("b", 1, None)])
    nodes = [
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("If", ["has"], ["c"], then_branch=then, else_branch=other),
        helper.make_node("Add", ["c", "x"], ["y"]),
    ]
    data = model(
        nodes, [helper.make_value_info("o", kind), tensor("x", T.FLOAT, [2])], [tensor("y", 1, None)]
    )
    (result,) = loadrun.run(loadrun.load(data, constants={"o": given}), {"x": F([1, -3])})
    assert result["y"].tolist() == ([0, 0] if given is None else [3.5, -0.5])


def test_text_that_becomes_numbers() -> None:
    """What is joined, split, put into one case and looked up in tables."""
    nodes = [
        helper.make_node("StringConcat", ["a", "b"], ["joined"]),
        helper.make_node("StringSplit", ["joined"], ["parts", "counts"], delimiter="-"),
        helper.make_node("StringNormalizer", ["a"], ["large"], case_change_action="UPPER", stopwords=["y"]),
        helper.make_node("Equal", ["large", "word"], ["same"]),
        helper.make_node(
            "LabelEncoder",
            ["a"],
            ["label"],
            domain="ai.onnx.ml",
            keys_strings=["x-1", "z"],
            values_int64s=[7, 9],
            default_int64=-5,
        ),
        helper.make_node("Cast", ["counts"], ["n"], to=1),
        helper.make_node("Cast", ["label"], ["l"], to=1),
        helper.make_node("Cast", ["same"], ["s"], to=1),
        helper.make_node("Sum", ["n", "l", "x"], ["y"]),
        helper.make_node("Add", ["s", "x2"], ["z"]),
    ]
    inputs = [tensor("a", T.STRING, [3]), tensor("x", T.FLOAT, [3]), tensor("x2", T.FLOAT, [2])]
    stored = [
        helper.make_tensor("b", T.STRING, [1], [b"-q"]),
        helper.make_tensor("word", T.STRING, [2], [b"X-1", b"W"]),
    ]
    data = model(nodes, inputs, [tensor("y", 1, [3]), tensor("z", 1, [2])], stored=stored)
    zeros = {"x": F([0, 0, 0]), "x2": F([0, 0])}
    text = np.array(["x-1", "y", "z"], object)
    for constants, feeds in (({"a": text}, zeros), ({}, {"a": text, **zeros})):
        (result,) = loadrun.run(loadrun.load(data, constants=constants), feeds)
        # Parts of "x-1-q", "y-q", "z-q": 3, 2, 2; labels 7, -5, 9. Without "y", "X-1" and "Z" are left.
        assert result["y"].tolist() == [10, -3, 11]
        assert result["z"].tolist() == [1, 0]


def bit_cast(x: Array, kind: int, to: int) -> Array:
    nodes = [helper.make_node("BitCast", ["x"], ["y"], to=to)]
    data = model(nodes, [tensor("x", kind, x.shape)], [tensor("y", to, x.shape)], opset=26)
    return loadrun.run(loadrun.load(data), {"x": x})[0]["y"]


def test_bits_of_floats() -> None:
    few = [0, 1 << 31, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x3F7FFFFF]
    many = np.random.default_rng(0).integers(0, 1 << 32, 20_000, dtype=np.uint64)
    bits = np.concatenate([np.array(few, np.uint64), many]).astype(np.uint32).view(np.int32)
    numbers = bits.view(F)
    nan = np.isnan(numbers)
    assert 0 < nan.sum() < nan.size
    np.testing.assert_array_equal(bit_cast(numbers, T.FLOAT, T.INT32)[~nan], bits[~nan])
    back = bit_cast(bits, T.INT32, T.FLOAT)
    np.testing.assert_array_equal(back[~nan].view(np.int32), bits[~nan])
    assert np.isnan(back[nan]).all()
    assert np.isnan(bit_cast(numbers, T.FLOAT, T.INT32)[nan].view(F)).all()


def test_reasons_of_their_own() -> None:
    data = model(
        [helper.make_node("ImageDecoder", ["x"], ["y"])], [tensor("x", T.UINT8, [9])], [tensor("y", 2, None)]
    )
    with pytest.raises(UnsupportedError, match="ImageDecoder decodes images"):
        loadrun.load(data)
