"""Where ONNX's operators mean something else than MegEngine's of the same name; values worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UnsupportedError
from loadrun.cli import main

onnx = pytest.importorskip("onnx", reason="models are built with the package onnx")
helper, T = onnx.helper, onnx.TensorProto

NAN, INF = np.nan, np.inf


def built(op: str, feeds: dict[str, Any], outputs: int = 1, opset: int = 17, **attributes: Any) -> bytes:
    inputs = []
    for name, v in feeds.items():
        kind = helper.np_dtype_to_tensor_dtype(v.dtype)
        inputs.append(helper.make_tensor_value_info(name, kind, v.shape))
    outs = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, list(feeds), outs, **attributes)
    results = [helper.make_tensor_value_info(o, T.UNDEFINED, None) for o in outs]
    graph = helper.make_graph([node], "g", inputs, results)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]).SerializeToString())


def run(
    op: str, feeds: dict[str, Any], outputs: int = 1, constants: Any = None, **attributes: Any
) -> list[Any]:
    data = built(op, feeds, outputs, **attributes)
    bundle = loadrun.load(data, constants=constants)
    (result,) = loadrun.run(bundle, {v.name or "": feeds[v.name or ""] for v in bundle.inputs})
    return [result[f"y{i}"] for i in range(outputs)]


F = np.float32


@pytest.mark.parametrize("size", [4, 200])
def test_nan_stays(size: int) -> None:
    x = np.resize(F([NAN, -1, 2, 0]), size)
    one = np.resize(F([1, 1, 1, NAN]), size)
    assert np.isnan(run("Relu", {"x": x})[0][:2]).tolist() == [True, False]
    for op in ("Max", "Min"):
        for a, b in ((x, one), (one, x)):
            (y,) = run(op, {"a": a, "b": b})
            assert np.isnan(y[:4]).tolist() == [True, False, False, True]
    (y,) = run("Clip", {"x": x, "lo": F(0), "hi": F(1)})
    assert np.isnan(y[0])
    assert y[1:4].tolist() == [0, 1, 0]
    (y,) = run("Clip", {"x": F([5]), "lo": F(3), "hi": F(1)})
    assert y.tolist() == [1]
    assert np.isnan(run("Sign", {"x": x})[0][0])


def test_ties_keep_their_order() -> None:
    x = F([[3, 1, 3, 3]])
    k = np.array([3], np.int64)
    for largest, want in ((1, [0, 2, 3]), (0, [1, 0, 2])):
        _, at = run("TopK", {"x": x, "k": k}, 2, constants={"k": k}, largest=largest)
        assert at.tolist() == [want]
    assert run("ArgMax", {"x": x}, axis=1, keepdims=0)[0].tolist() == [0]
    assert run("ArgMax", {"x": x}, axis=1, keepdims=0, select_last_index=1)[0].tolist() == [3]


def test_halves_round_to_even() -> None:
    assert run("Round", {"x": F([0.5, 1.5, 2.5, -0.5, -1.5])})[0].tolist() == [0, 2, 2, 0, -2]
    feeds = {"x": F([0.5, 1.5, 2.5, 999, -999]), "s": F(1), "z": np.uint8(128)}
    assert run("QuantizeLinear", feeds)[0].tolist() == [128, 130, 130, 255, 0]


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.int8])
def test_integers_divide_toward_zero(kind: Any) -> None:
    feeds = {"a": np.array([7, -7, 7, -7], kind), "b": np.array([2, 2, -2, -2], kind)}
    assert run("Div", feeds, opset=14)[0].tolist() == [3, -3, -3, 3]
    assert run("Mod", feeds, opset=14)[0].tolist() == [1, 1, -1, -1]
    assert run("Mod", feeds, opset=14, fmod=1)[0].tolist() == [1, -1, 1, -1]


def test_reductions_of_nothing() -> None:
    x = np.zeros((2, 0), F)
    axes = np.array([1], np.int64)
    want = {"ReduceSum": 0, "ReduceProd": 1, "ReduceMax": -INF, "ReduceMin": INF}
    for op, value in want.items():
        (y,) = run(op, {"x": x, "a": axes}, constants={"a": axes}, opset=20, keepdims=0)
        assert y.tolist() == [value, value], op


def test_expand_goes_both_ways_and_one_hot_counts_from_the_end() -> None:
    target = np.array([2, 1, 6], np.int64)
    (y,) = run("Expand", {"x": F([[1], [2], [3]]), "s": target}, constants={"s": target})
    assert y.shape == (2, 3, 6)
    feeds = {"i": np.array([-1, 5, 0], np.int64), "d": np.array(3, np.int64), "v": F([0, 1])}
    (y,) = run("OneHot", feeds, constants={"d": feeds["d"]})
    assert y.tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_softmax_of_old_versions_is_over_all_axes_from_one_on() -> None:
    x = np.arange(12, dtype=F).reshape(2, 3, 2)
    (old,) = run("Softmax", {"x": x}, opset=11)
    np.testing.assert_allclose(old.sum((1, 2)), [1, 1], rtol=1e-6)
    (new,) = run("Softmax", {"x": x}, opset=13)
    np.testing.assert_allclose(new.sum(-1), np.ones((2, 3)), rtol=1e-6)


def test_bounds_of_slices_are_no_numbers() -> None:
    feeds = {
        "x": np.arange(5, dtype=F),
        "s": np.array([2**63 - 1], np.int64),
        "e": np.array([-(2**63)], np.int64),
        "a": np.array([0], np.int64),
        "t": np.array([-2], np.int64),
    }
    constants = {k: v for k, v in feeds.items() if k != "x"}
    assert run("Slice", feeds, constants=constants)[0].tolist() == [4, 2, 0]


def test_what_must_be_known_is_asked_for_by_name() -> None:
    feeds = {"x": F([[1, 2]]), "axes": np.array([1], np.int64)}
    with pytest.raises(UnsupportedError, match=r'give it as constants=\{"axes": \.\.\.\}'):
        loadrun.load(built("ReduceSum", feeds))


def test_broadcasting_before_version_7() -> None:
    feeds = {"a": np.arange(6, dtype=F).reshape(2, 3), "b": F([10, 20])}
    (y,) = run("Add", feeds, opset=6, broadcast=1, axis=0)
    assert y.tolist() == [[10, 11, 12], [23, 24, 25]]


@pytest.mark.parametrize(
    ("before", "after", "to"),
    [("int8", "uint8", 2), ("uint8", "int8", 3), ("int16", "uint16", 4), ("uint16", "int16", 5)],
)
def test_all_bits_of_small_integers_as_another_type(before: str, after: str, to: int) -> None:
    x = np.arange(2 ** (8 * np.dtype(before).itemsize)).astype(before)
    (y,) = run("BitCast", {"x": x}, opset=26, to=to)
    assert y.dtype == after
    assert (y == x.view(after)).all()


def test_bits_that_cannot_be_expressed_are_refused_by_their_types() -> None:
    with pytest.raises(UnsupportedError, match="the bits of double as int64 cannot be expressed"):
        loadrun.load(built("BitCast", {"x": np.float64([1])}, opset=26, to=7))
    with pytest.raises(UnsupportedError, match="the bits of uint8 as bool cannot be expressed"):
        loadrun.load(built("BitCast", {"x": np.uint8([1])}, opset=26, to=9))


def test_expected_values_without_elements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(built("NonZero", {"x": np.zeros((2, 3), F)}))
    folder = tmp_path / "m.test_data_set_0"
    folder.mkdir()
    stored = onnx.numpy_helper.from_array
    (folder / "output_0.pb").write_bytes(stored(np.zeros((2, 0), np.int64)).SerializeToString())
    for x, code, said in (
        (np.zeros((2, 3), F), 3, "the value has no elements"),
        (np.eye(2, 3, dtype=F), 1, "expected [2, 0], got [2, 2]"),
    ):
        (folder / "input_0.pb").write_bytes(stored(x).SerializeToString())
        assert main([str(tmp_path / "m.onnx")]) == code
        assert said in capsys.readouterr().out
