"""Where ONNX's operators mean something else than MegEngine's of the same name; values worked out by hand."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError, LoadRunError, UnsupportedError
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


def test_nan_stays_among_several() -> None:
    """Numpy's maximum of all, infinities and other shapes among them, and an input that is nowhere NaN."""
    feeds = {"a": F([[NAN], [np.inf]]), "b": F([1, -np.inf, NAN]), "c": F(-2), "d": F([[5, 6, 7]])}
    for op, numpy in (("Max", np.maximum), ("Min", np.minimum)):
        (y,) = run(op, feeds)
        np.testing.assert_array_equal(y, functools.reduce(numpy, feeds.values()))


def test_ties_keep_their_order() -> None:
    x = F([[3, 1, 3, 3]])
    k = np.array([3], np.int64)
    for largest, want in ((1, [0, 2, 3]), (0, [1, 0, 2])):
        _, at = run("TopK", {"x": x, "k": k}, 2, constants={"k": k}, largest=largest)
        assert at.tolist() == [want]
    assert run("ArgMax", {"x": x}, axis=1, keepdims=0)[0].tolist() == [0]
    assert run("ArgMax", {"x": x}, axis=1, keepdims=0, select_last_index=1)[0].tolist() == [3]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_top_k_of_the_least_and_the_greatest_integer(dtype: str) -> None:
    bits = np.iinfo(dtype)
    x, k = np.array([bits.min, bits.max, 3, bits.max - 1, bits.min + 1], dtype), np.array([5])
    for largest, want in ((1, [1, 3, 2, 4, 0]), (0, [0, 4, 2, 3, 1])):
        values, at = run("TopK", {"x": x, "k": k}, 2, constants={"k": k}, largest=largest)
        assert at.tolist() == want
        np.testing.assert_array_equal(values, x[want])


def test_reductions_of_large_numbers() -> None:
    x = F([[3.4e38, 0], [-3.4e38, -3.4e38]])
    np.testing.assert_allclose(
        run("ReduceLogSumExp", {"x": x}, axes=[1], keepdims=0)[0], F([3.4e38, -3.4e38])
    )
    whole = np.array([[2**30, 2**30, 2**30]], np.int32)
    assert run("ReduceMean", {"x": whole}, axes=[1])[0].tolist() == [[2**30]]
    # 2**30 * sqrt(3), which float32 cannot hold.
    assert run("ReduceL2", {"x": whole}, axes=[1])[0].tolist() == [[1859775393]]
    # What int32 cannot hold is its last number, as ONNX Runtime has it: 2**30 * 2, and 2**31 - 1 + log(2).
    whole = np.array([[2**30] * 4, [2**31 - 1] * 2 + [0] * 2], np.int32)
    for op, row in (("ReduceL2", 0), ("ReduceLogSumExp", 1)):
        assert run(op, {"x": whole}, axes=[1], keepdims=0)[0][row] == 2**31 - 1


def test_zeros_are_quantized_with_a_scale_of_1() -> None:
    y, scale, zero = run("DynamicQuantizeLinear", {"x": F([0, 0])}, 3, opset=11)
    assert (y.tolist(), scale.item(), zero.item()) == ([0, 0], 1, 0)


def test_what_a_query_may_not_see_is_not_added() -> None:
    """As in ONNX Runtime: a causal query does not see the NaN that its mask has for later keys."""
    q = F([[[[0], [0]]]])
    v = F([[[[1], [3]]]])
    (y,) = run(
        "Attention",
        {"q": q, "k": q, "v": v, "m": F([[0, NAN], [0, 0]])},
        opset=23,
        is_causal=1,
    )
    assert y.tolist() == [[[[1], [2]]]]


def test_gemm_of_float16_is_scaled_before_it_is_rounded() -> None:
    feeds = {"x": np.float16([[300, 300]]), "w": np.float16([[300], [300]]), "b": np.float16([-100])}
    assert run("Gemm", feeds, alpha=0.25, beta=10.0)[0].tolist() == [[44000]]


def test_a_cell_alone_between_aligned_corners_is_refused() -> None:
    """PyTorch places it at 0, ONNX Runtime at 1, ONNX divides by 0."""
    feeds = {"t": np.zeros((1, 2, 3), F), "s": np.int64([1, 1, 1, 2])}
    assert run("AffineGrid", feeds, constants={"s": feeds["s"]}, opset=20)[0].shape == (1, 1, 2, 2)
    with pytest.raises(EngineError, match="1 to ONNX Runtime"):
        run("AffineGrid", feeds, constants={"s": feeds["s"]}, opset=20, align_corners=1)


def test_large_scores_of_float16_are_infinite() -> None:
    """A softmax of 180000 and -180000 is one of infinities there, as in ONNX Runtime; not in float32."""
    v = np.arange(8).reshape(1, 1, 2, 4)
    for kind, lost in ((np.float16, True), (np.float32, False)):
        q = np.full((1, 1, 1, 4), 300, kind)
        (y,) = run("Attention", {"q": q, "k": np.concatenate([q, -q], 2), "v": v.astype(kind)}, opset=23)
        assert np.isnan(y).all() == lost


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint16])
def test_what_is_beyond_a_type_is_quantized_to_its_ends(kind: Any, tmp_path: Path) -> None:
    feeds = {"x": F([3e38, INF, -INF, 2.5, -1, 1e6]), "s": F(1), "z": np.array(3, kind)}
    data = built("QuantizeLinear", feeds, opset=21)
    limits = np.iinfo(kind)
    want = [limits.max, limits.max, limits.min, 5, 2, limits.max]
    file = tmp_path / "q.mge"
    loadrun.save(loadrun.load(data).for_data(feeds), file)
    for model in (data, file):
        (result,) = loadrun.run(loadrun.load(model), feeds)
        assert result["y0"].tolist() == want


def test_blocks_of_a_vector_are_quantized() -> None:
    feeds = {"x": F([1, 2, 3, 4]), "s": F([1, 0.5]), "z": np.uint8([0, 9])}
    assert run("QuantizeLinear", feeds, opset=21, axis=0, block_size=2)[0].tolist() == [1, 2, 15, 17]
    feeds = {"x": np.uint8([1, 2, 15, 17]), "s": F([1, 0.5]), "z": np.uint8([0, 9])}
    assert run("DequantizeLinear", feeds, opset=21, axis=0, block_size=2)[0].tolist() == [1, 2, 3, 4]


def test_the_quotient_has_the_type_of_the_scale() -> None:
    """1000 / 0.30005 is 3332.8, to float16 3332; before opset 23 ONNX Runtime divides float16 in float32."""
    half = {"x": np.float16([1000]), "s": np.float16(0.3), "z": np.uint16(0)}
    assert run("QuantizeLinear", half, opset=21)[0].tolist() == [3333]
    assert run("QuantizeLinear", half, opset=23)[0].tolist() == [3332]
    assert run("QuantizeLinear", half, opset=23, precision=T.FLOAT)[0].tolist() == [3333]
    # 1.3506 / 0.30005 is 4.5012, to float16 4.5; there are 4 bits, too.
    few = {"x": np.float16([1.3505859375, -1.3505859375]), "s": np.float16(0.3)}
    assert run("QuantizeLinear", few, opset=21, output_dtype=T.INT4)[0].tolist() == [5, -5]
    assert run("QuantizeLinear", few, opset=23, output_dtype=T.INT4)[0].tolist() == [4, -4]
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    # 200 / 0.30078 is 664.9, to bfloat16 664.
    brain = {"x": np.array([200], bfloat16), "s": np.array(0.3, bfloat16), "z": np.uint16(0)}
    assert run("QuantizeLinear", brain, opset=21)[0].tolist() == [664]


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
    want = {"ReduceSum": 0, "ReduceProd": 1, "ReduceMax": -INF, "ReduceMin": INF, "ReduceMean": 0}
    for op, value in want.items():
        (y,) = run(op, {"x": x, "a": axes}, constants={"a": axes}, opset=20, keepdims=0)
        assert y.tolist() == [value, value], op
    for kind, op, last in (
        (np.float64, "ReduceSum", 0),
        (np.float64, "ReduceProd", 1),
        (np.float64, "ReduceMin", INF),
    ):
        (y,) = run(op, {"x": x.astype(kind)}, opset=20, keepdims=0)
        assert (y.dtype, y.tolist()) == (kind, last), op
    for whole in (np.int32, np.int64, np.uint64):
        info = np.iinfo(whole)
        for op, last in (("ReduceMax", info.min), ("ReduceMin", info.max)):
            (y,) = run(op, {"x": x.astype(whole)}, opset=20, keepdims=0)
            assert (y.dtype, y.tolist()) == (whole, last), op


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
    far = {**feeds, "t": np.array([-(2**63)], np.int64)}
    assert run("Slice", far, constants={k: v for k, v in far.items() if k != "x"})[0].tolist() == [4]


def test_values_that_decide_the_graph_are_taken_from_what_is_fed_at_given_sizes_too() -> None:
    x = np.arange(12, dtype=F).reshape(3, 4)
    axes, size = np.array([1], np.int64), np.array([2, -1], np.int64)
    sized = {"input_shapes": {"x": (3, 4), "a": (1,)}}
    runner = loadrun.Runner(loadrun.load(built("ReduceSum", {"x": x, "a": axes}, keepdims=0), **sized))
    assert runner.run({"x": x, "a": axes})["y0"].tolist() == [6, 22, 38]
    assert runner.run({"x": x, "a": 0 * axes})["y0"].tolist() == [12, 15, 18, 21]
    reshaped = loadrun.Runner(loadrun.load(built("Reshape", {"x": x, "s": size})))
    assert [reshaped.run({"x": x, "s": s})["y0"].shape for s in (size, size[::-1])] == [(2, 6), (6, 2)]
    boxes = {
        "b": F([[[0, 0, 1, 1], [0, 0, 1, 0.9]]]),
        "s": F([[[0.5, 0.6]]]),
        "m": np.array([5]),
        "i": F([0.5]),
    }
    assert run("NonMaxSuppression", boxes)[0].tolist() == [[0, 0, 1]]


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


def test_bits_of_double_as_an_integer() -> None:
    """A sign of 0, 0x3ff, and no fraction."""
    (y,) = run("BitCast", {"x": np.float64([1])}, opset=26, to=7)
    assert (y.dtype, y.tolist()) == (np.int64, [0x3FF << 52])


def test_expected_values_without_elements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(built("NonZero", {"x": np.zeros((2, 3), F)}))
    folder = tmp_path / "m.test_data_set_0"
    folder.mkdir()
    stored = onnx.numpy_helper.from_array
    (folder / "output_0.pb").write_bytes(stored(np.zeros((2, 0), np.int64)).SerializeToString())
    for x, code, said in (
        (np.zeros((2, 3), F), 0, "no elements; the shapes agree"),
        (np.eye(2, 3, dtype=F), 1, "expected [2, 0], got [2, 2]"),
    ):
        (folder / "input_0.pb").write_bytes(stored(x).SerializeToString())
        assert main([str(tmp_path / "m.onnx")]) == code
        assert said in capsys.readouterr().out


def resized(x: Any, scales: list[float], opset: int = 18, **attributes: Any) -> Any:
    """Resize along the last axis, as constants say."""
    shape = (1,) * (4 - x.ndim) + x.shape
    feeds = {"x": x.reshape(shape), "s": F([1, 1, *scales])}
    if opset > 10:
        feeds = {"x": feeds["x"], "r": F([]), "s": feeds["s"]}
    constants = {k: v for k, v in feeds.items() if k != "x"}
    return run("Resize", feeds, constants=constants, opset=opset, **attributes)[0].squeeze((0, 1))


def test_sizes_and_ties_of_resize_are_computed_in_float32() -> None:
    x = np.arange(20, dtype=F).reshape(1, 20)
    assert resized(x, [1, 1.3]).shape == (1, 26)
    floor = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    # 1 / float32(1 / 7) is below 7.
    assert resized(x[:, :14], [1, 1 / 7], **floor).tolist() == [[0, 6]]
    # Before version 11 positions are rounded up where an axis shrinks, else down.
    assert resized(x[:, :5], [1, 0.6], opset=10, mode="nearest").tolist() == [[0, 2, 4]]
    assert resized(x[:, :3], [1, 1.5], opset=10, mode="nearest").tolist() == [[0, 0, 1, 2]]


def test_halves_of_positions_are_ties_within_a_millionth() -> None:
    # From ONNX Runtime 1.32: 2.4999998 and 6.4999995 are halves.
    x = np.arange(22, dtype=F).reshape(1, 22)
    symmetric = {"coordinate_transformation_mode": "half_pixel_symmetric", "opset": 19}
    up, down = [[3, 7, 11, 15, 19]], [[2, 6, 10, 14, 18]]
    assert resized(x, [1, 0.25], nearest_mode="round_prefer_ceil", **symmetric).tolist() == up
    assert resized(x, [1, 0.25], nearest_mode="round_prefer_floor", **symmetric).tolist() == down


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_what_keeps_its_shape_is_copied_whatever_the_scale(mode: str) -> None:
    # As in ONNX Runtime; against aliasing, this holds for each axis.
    x = np.arange(16, dtype=F).reshape(4, 4) ** 2
    assert (resized(x, [1.1, 1.2], mode=mode) == x).all()
    if mode != "nearest":
        want = resized(x, [1, 2], mode=mode, antialias=1)
        assert (resized(x, [1.1, 2], mode=mode, antialias=1) == want).all()


@pytest.mark.parametrize("kind", ["u1", "i1", "u4", "i4", "u8", "i8"])
@pytest.mark.parametrize("name", ["and", "or", "xor"])
def test_bits_of_every_integer(kind: str, name: str) -> None:
    ends = np.iinfo(kind)
    x = np.array([0, 1, 0b1010, ends.max, ends.min, ends.max // 3], kind)
    feeds = {"x": x[:, None], "y": x}
    want = getattr(np, f"bitwise_{name}")(*feeds.values())
    assert (run(f"Bitwise{name.capitalize()}", feeds, opset=18)[0] == want).all()


def test_elu_of_float16_takes_an_alpha_of_float32() -> None:
    # From ONNX Runtime 1.32.
    x = np.array([300, -3e4, 5], np.float16)
    assert run("Elu", {"x": x}, alpha=1e5)[0].tolist() == [300, -np.inf, 5]


def test_integers_are_resized_without_their_fractions() -> None:
    x = np.array([[0, 3], [-4, 5]], np.int32)
    assert resized(x, [1, 2], mode="linear").tolist() == [[0, 0, 2, 3], [-4, -1, 2, 5]]
    assert resized(x, [2, 1], mode="linear").tolist() == [[0, 3], [-1, 3], [-3, 4], [-4, 5]]
    with pytest.raises(EngineError, match="cast to float before"):
        resized(x, [0.5, 0.5], mode="linear", antialias=1)
    # Of three dimensions all are mixed, whose rounding shows: 17.99999 (from ONNX Runtime 1.32).
    feeds = {"x": np.array([[[224, 20, 14]]], np.int32), "r": F([]), "s": F([1, 1, 3])}
    ways = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    (y,) = run("Resize", feeds, constants={k: feeds[k] for k in "rs"}, **ways)
    assert y.tolist() == [[[224, 156, 88, 20, 17, 16, 14, 14, 14]]]


def test_corners_are_aligned_at_sizes_that_are_no_whole_numbers() -> None:
    x = F([[0, 1, 2, 3]])
    corners = {"coordinate_transformation_mode": "align_corners", "mode": "linear"}
    np.testing.assert_allclose(resized(x, [1, 1.75], **corners), [np.arange(7) / 2], rtol=1e-6)
    # From ONNX Runtime 1.32: the two elements of 2.4 are aligned.
    np.testing.assert_allclose(resized(x, [1, 0.6], **corners), [[0, 3]], rtol=1e-6)


def test_the_region_of_interest_leaves_axes_alone_that_keep_their_size() -> None:
    feeds = {"x": F([[0, 1, 2], [3, 4, 5]]), "r": F([0.5, 0, 1, 1]), "s": F([1, 2])}
    constants = {"r": feeds["r"], "s": feeds["s"]}
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear", "opset": 18}
    (y,) = run("Resize", feeds, constants=constants, **crop)
    np.testing.assert_allclose(y, np.linspace([0, 3], [2, 5], 6).T, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "given", "missing"),
    [
        ("Affine", {}, "alpha"),
        ("ThresholdedRelu", {}, "alpha"),
        ("ScaledTanh", {"activation_alpha": [1.0]}, "beta"),
    ],
)
def test_activations_whose_numbers_runtimes_do_not_agree_on(name: str, given: Any, missing: str) -> None:
    x, w = np.ones((2, 1, 1), F), np.ones((1, 1, 1), F)
    with pytest.raises(EngineError, match=f"its activation {name} has no activation_{missing}"):
        run("RNN", {"x": x, "w": w, "r": w}, hidden_size=1, activations=[name], opset=14, **given)


def test_the_cell_of_an_lstm_is_not_bounded() -> None:
    w = F([1, 1, 1, 1]).reshape(1, 4, 1)
    feeds = {"x": F([1, 1, 1]).reshape(3, 1, 1), "w": w, "r": 0 * w}
    y, _, cell = run("LSTM", feeds, 3, hidden_size=1, clip=0.5, opset=14)
    gate, new, c = 1 / (1 + np.exp(-0.5)), np.tanh(0.5), 0.0
    for row in y.reshape(-1):
        c = gate * c + gate * new
        np.testing.assert_allclose(row, gate * np.tanh(c), rtol=1e-5)
    assert c > 0.5
    np.testing.assert_allclose(cell.reshape(-1), [c], rtol=1e-5)


def test_recurrent_layers_of_halves() -> None:
    x, w = np.ones((1, 1, 1), np.float16), np.ones((1, 3, 1), np.float16)
    (y,) = run("GRU", {"x": x, "w": w, "r": w, "b": np.zeros((1, 6), np.float16)}, hidden_size=1, opset=14)
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.item(), np.tanh(1) / (1 + np.e), rtol=1e-3)


def test_recurrent_layers_of_double_keep_its_precision() -> None:
    x, w = np.float64([1.0, 2.0]).reshape(2, 1, 1), np.float64([[[0.3]]])
    y, _ = run("RNN", {"x": x, "w": w, "r": w}, 2, hidden_size=1, opset=14)
    first = np.tanh(0.3)
    np.testing.assert_allclose(y.reshape(-1), [first, np.tanh(0.6 + 0.3 * first)], rtol=1e-14)


def test_values_are_not_unpooled_into_another_shape() -> None:
    feeds = {"x": F([[[5]]]), "i": np.array([[[1]]], np.int64), "s": np.array([1, 1, 3], np.int64)}
    assert run("MaxUnpool", {k: feeds[k] for k in "xi"}, kernel_shape=[2], strides=[2])[0].tolist() == [
        [[0, 5]]
    ]
    with pytest.raises(UnsupportedError, match=r"its output_shape asks for \[3\] where \[2\] follow"):
        run("MaxUnpool", feeds, constants={"s": feeds["s"]}, kernel_shape=[2], strides=[2])


def test_activations_of_the_largest_numbers() -> None:
    for kind, most in ((np.float32, 3.4e38), (np.float64, 1.7e308)):
        x = np.array([most, -most, 3, -3, 1.5, INF], kind)
        # From 3 on the number itself; 1.5 * 4.5 / 6.
        want = np.array([most, 0, 3, 0, 1.125, INF], kind)
        np.testing.assert_array_equal(run("HardSwish", {"x": x})[0], want)


def test_signs() -> None:
    for kind in (np.float16, np.float32, np.float64):
        np.testing.assert_array_equal(run("Sign", {"x": np.array([NAN, -2, 0, 3], kind)})[0], [NAN, -1, 0, 1])
    for kind in (np.int8, np.int32, np.int64):
        assert run("Sign", {"x": np.array([5, -2, 0], kind)})[0].tolist() == [1, -1, 0]
    for kind in (np.uint8, np.uint16, np.uint64):
        assert run("Sign", {"x": np.array([5, 0], kind)})[0].tolist() == [1, 0]


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_positions_that_are_none_are_the_edge(mode: str) -> None:
    x = F([[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]])
    points = F([[INF, 0], [-INF, 0], [NAN, 1], [0, INF], [1e30, NAN], [0, 0]]).reshape(1, 1, 6, 2)
    for padding in ("zeros", "border", "reflection"):
        case = {"mode": mode, "padding_mode": padding, "align_corners": 1, "opset": 20}
        (y,) = run("GridSample", {"x": x, "g": points}, **case)
        np.testing.assert_allclose(y.reshape(-1), [4, 4, 7, 2, 1, 5], rtol=1e-6)


def test_nodes_may_stand_before_those_that_they_read() -> None:
    then = helper.make_graph(
        [helper.make_node("Neg", ["b"], ["c"])], "t", [], [helper.make_empty_tensor_value_info("c")]
    )
    other = helper.make_graph(
        [helper.make_node("Abs", ["b"], ["d"])], "o", [], [helper.make_empty_tensor_value_info("d")]
    )
    nodes = [
        helper.make_node("If", ["p"], ["y"], then_branch=then, else_branch=other),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node("Exp", ["x"], ["a"]),
    ]
    x, p = (helper.make_tensor_value_info(n, k, s) for n, k, s in (("x", T.FLOAT, ["n"]), ("p", T.BOOL, [])))
    graph = helper.make_graph(nodes, "g", [x, p], [helper.make_empty_tensor_value_info("y")])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    runner = loadrun.Runner(loadrun.load(data))
    for chosen, want in ((True, [-1, -np.e - 1]), (False, [1, np.e + 1])):
        found = runner.run({"x": F([0, 1]), "p": np.array(chosen)})["y"]
        np.testing.assert_allclose(found, want, 1e-6)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_empty_sequences_leave_zeros_behind(op: str) -> None:
    # ONNX Runtime's results, which ONNX leaves open.
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    feeds = {
        "x": np.ones((2, 3, 1), F),
        "w": np.ones((1, gates, 1), F),
        "r": np.ones((1, gates, 1), F),
        "b": np.zeros((1, 2 * gates), F),
        "lens": np.array([0, 1, 2], np.int32),
        "h": np.full((1, 3, 1), 5, F),
    }
    y, last, *_ = run(op, feeds, 2, hidden_size=1)
    assert y[:, 0, 0].tolist() == [[0], [0]]
    assert last[0, 0, 0] == 0
    assert last[0, 1:, 0].tolist() == [y[0, 0, 1, 0], y[1, 0, 2, 0]]


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        ({"strides": [3], "auto_pad": "SAME_UPPER"}, [1, 0, 0, 2, 0, 0, 3]),
        ({"strides": [3], "auto_pad": "SAME_LOWER"}, [1, 0, 0, 2, 0, 0, 3]),
        ({"strides": [3], "auto_pad": "SAME_UPPER", "output_shape": [8]}, [1, 0, 0, 2, 0, 0, 3, 0]),
        ({"strides": [3], "auto_pad": "SAME_UPPER", "output_padding": [1]}, [1, 0, 0, 2, 0, 0, 3, 0]),
    ],
)
def test_transposed_convolutions_whose_kernel_is_shorter_than_the_stride(
    attributes: Any, want: list[int]
) -> None:
    # The length of ONNX's shape inference and of ONNX Runtime: nothing is padded in front.
    (y,) = run("ConvTranspose", {"x": F([[[1, 2, 3]]]), "w": F([[[1]]])}, **attributes)
    assert y[0, 0].tolist() == want


def test_text_beside_numbers_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        onnx.helper.make_node("Neg", ["x"], ["y"]),
        onnx.helper.make_node("Cast", ["x"], ["t"], to=onnx.TensorProto.STRING),
    ]
    kinds = {"x": onnx.TensorProto.FLOAT, "y": onnx.TensorProto.FLOAT, "t": onnx.TensorProto.STRING}
    x, y, t = (onnx.helper.make_tensor_value_info(n, k, [2]) for n, k in kinds.items())
    made = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y, t]))
    onnx.save(made, tmp_path / "m.onnx")
    folder = tmp_path / "m.test_data_set_0"
    folder.mkdir()
    values = {"input_0": F([1, 2]), "output_0": F([-1, -2]), "output_1": np.array(["1", "9"], object)}
    for name, value in values.items():
        (folder / f"{name}.pb").write_bytes(onnx.numpy_helper.from_array(value).SerializeToString())
    assert main([str(tmp_path / "m.onnx")]) == 1
    assert "output t: 1 of 2 values differs" in capsys.readouterr().out


def test_loops_whose_length_follows_from_sizes_in_floats() -> None:
    # As TensorFlow's recurrent layers are exported.
    body = helper.make_graph(
        [
            helper.make_node("Add", ["i", "one"], ["next"]),
            helper.make_node("Add", ["v", "v"], ["twice"]),
            helper.make_node("Cast", ["next"], ["at"], to=T.FLOAT),
            helper.make_node("Less", ["at", "count"], ["more"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", T.INT64, []),
            helper.make_tensor_value_info("going", T.BOOL, []),
            helper.make_tensor_value_info("i", T.INT64, [1]),
            helper.make_tensor_value_info("v", T.FLOAT, None),
        ],
        [helper.make_tensor_value_info(n, k, None) for n, k in (("more", 9), ("next", 7), ("twice", 1))],
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("Cast", ["n"], ["count"], to=T.FLOAT),
        helper.make_node("Less", ["zero", "count"], ["some"]),
        helper.make_node("Loop", ["", "some", "begin", "x"], ["last", "y"], body=body),
    ]
    constants = {"zero": F([0]), "one": np.array([1]), "begin": np.array([0])}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", T.FLOAT, None)],
        [onnx.numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    runner = loadrun.Runner(loadrun.load(model.SerializeToString()))
    for n in (2, 3, 0):
        assert runner.run({"x": np.ones(n, F)})["y"].tolist() == [2**n] * n


@pytest.mark.parametrize(("opset", "mask"), [(7, F([0, 0])), (10, [False, False]), (12, [True, True])])
def test_masks_of_dropout_in_inference(opset: int, mask: Any) -> None:
    """As ONNX Runtime fills them: before version 12 with zeros, before version 10 in the type of the data."""
    x = F([[1, 2]])
    y, given = run("Dropout", {"x": x}, outputs=2, opset=opset)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(given, [mask], strict=False)
    assert given.dtype == np.asarray(mask).dtype


def test_a_loop_counts_in_the_rank_that_its_body_declares() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Squeeze", ["turn"], ["number"]),
            helper.make_node("Concat", ["v", "turn"], ["longer"], axis=0),
            helper.make_node("Identity", ["going"], ["more"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", T.INT64, [1]),
            helper.make_tensor_value_info("going", T.BOOL, [1]),
            helper.make_tensor_value_info("v", T.INT64, None),
        ],
        [helper.make_tensor_value_info(n, k, None) for n, k in (("more", 9), ("longer", 7), ("number", 7))],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["most", "", "x"], ["y", "numbers"], body=body)],
        "g",
        [helper.make_tensor_value_info("x", T.INT64, [2])],
        [helper.make_tensor_value_info(n, T.INT64, None) for n in ("y", "numbers")],
        [onnx.numpy_helper.from_array(np.array(3), "most")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)])
    result = loadrun.Runner(loadrun.load(model.SerializeToString())).run({"x": np.array([7, 8])})
    assert result["y"].tolist() == [7, 8, 0, 1, 2]
    assert result["numbers"].tolist() == [0, 1, 2]


def test_a_sparse_tensor_that_is_listed_as_an_input_is_a_constant() -> None:
    where = onnx.numpy_helper.from_array(np.array([1, 5]), "")
    stored = helper.make_sparse_tensor(onnx.numpy_helper.from_array(F([3, 4]), "w"), where, [2, 3])
    infos = [helper.make_tensor_value_info(n, T.FLOAT, [2, 3]) for n in "wxy"]
    add = helper.make_node("Add", ["w", "x"], ["y"])
    graph = helper.make_graph([add], "g", infos[:2], infos[2:], sparse_initializer=[stored])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    bundle = loadrun.load(model.SerializeToString())
    assert [v.name for v in bundle.inputs] == ["x"]
    y = loadrun.Runner(bundle).run({"x": np.ones((2, 3), F)})["y"]
    assert y.tolist() == [[1, 4, 1], [1, 1, 5]]


@pytest.mark.parametrize(("op", "found"), [("LayerNormalization", 1), ("SimplifiedLayerNormalization", 0)])
def test_a_normalization_has_the_type_of_its_scale(op: str, found: int) -> None:
    """As in ONNX Runtime, whose operators these were before ONNX had them."""
    x = np.array([[1, 2, 4, 8]], np.float16)
    (y,) = run(op, {"x": x, "scale": np.ones(4, F)}, opset=12, epsilon=0.0)
    wide = x.astype(np.float64)
    wide = wide - found * wide.mean()
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, wide / np.sqrt((wide**2).mean()), rtol=1e-6)


@pytest.mark.parametrize("engine", ["reference", "numba"])
@pytest.mark.parametrize("batch", [1, 3])
def test_what_is_normalized_lies_in_any_order(batch: int, engine: str) -> None:
    """Channels that a transposition moved behind the positions, as image models normalize them."""
    if engine == "numba":
        pytest.importorskip("numba", reason="numba is not installed")
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 5, 2, 3] x, float[5] scale, float[5] bias) => (float[n, 2, 3, 5] y) {
        t = Transpose <perm = [0, 2, 3, 1]> (x)
        y = LayerNormalization <epsilon = 0.0> (t, scale, bias) }""")
    x = np.random.default_rng(0).normal(size=(batch, 5, 2, 3)).astype(F)
    scale, bias = F([1, 2, 3, 4, 5]), F([5, 4, 3, 2, 1])
    runner = loadrun.Runner(loadrun.load(model.SerializeToString()), engine)
    wide = x.astype(np.float64).transpose(0, 2, 3, 1)
    want = (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True) * scale + bias
    for _ in range(2):
        # The second run has a program of its own.
        found = runner.run({"x": x, "scale": scale, "bias": bias})["y"]
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_inputs_without_a_shape_take_any() -> None:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, None)],
        [helper.make_tensor_value_info("y", T.FLOAT, None)],
        [onnx.numpy_helper.from_array(F([[1, 2], [3, 4]]), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    bundle = loadrun.load(model.SerializeToString())
    assert [v.name for v in bundle.fed] == ["x"]
    runner = loadrun.Runner(bundle)
    for x, y in (([1, 1], [4, 6]), ([[2, 0]], [[2, 4]]), ([[[0, 1]]], [[[3, 4]]])):
        assert runner.run({"x": F(x)})["y"].tolist() == y


def test_data_may_expand_to_nothing() -> None:
    data = built("Expand", {"x": np.ones((1, 3), F), "to": np.array([2, 1, 1])})
    runner = loadrun.Runner(loadrun.load(data))
    for size, to, found in (
        ((1, 3), [2, 0, 1], (2, 0, 3)),
        ((1, 3), [2, 4, 3], (2, 4, 3)),
        ((1, 3), [1, 1, 1], (1, 1, 3)),
    ):
        assert runner.run({"x": np.ones(size, F), "to": np.array(to)})["y0"].shape == found
    with pytest.raises(LoadRunError, match=r"shapes \[1, 3\], \[1, 1, 2\] do not broadcast"):
        runner.run({"x": np.ones((1, 3), F), "to": np.array([1, 1, 2])})


def test_normalization_of_a_batch_without_channels() -> None:
    """One channel, as in ONNX's shape inference: statistics of one number each."""
    feeds = {"x": F([1, 3, 7]), **{k: F([v]) for k, v in (("s", 2), ("b", 1), ("m", 3), ("v", 4))}}
    (y,) = run("BatchNormalization", feeds, epsilon=0.0)
    assert y.tolist() == [-1, 1, 5]


def test_shrink_keeps_the_type_and_asks_for_low_values_first() -> None:
    (y,) = run("Shrink", {"x": np.array([-4, -1, 0, 2, 5], np.int8)}, lambd=1.5, bias=1.5)
    assert (y.dtype, y.tolist()) == (np.int8, [-2, 0, 0, 0, 3])
    (y,) = run("Shrink", {"x": F([-6, 0, 4, 5, 6])}, lambd=-5.0, bias=1.0)
    assert y.tolist() == [-5, 1, 5, 4, 5]


def test_no_axes_squeeze_all() -> None:
    """As in ONNX Runtime, an empty list is as none."""
    (y,) = run(
        "Squeeze", {"x": np.ones((3, 1, 2, 1), F), "axes": np.zeros(0, np.int64)}, constants={"axes": []}
    )
    assert y.shape == (3, 2)


@pytest.mark.parametrize(
    ("kind", "bounds", "count"),
    [
        (np.int32, (2**30 + 1, 2**30 + 4, 2), 2),
        (np.int64, (2**60, 2**60 + 3, 1), 3),
        (np.int16, (-30000, 30000, 20000), 3),
        # (8 - 1) / 0.7 is 10 and a little in float64, 10 in float32; 1 / (1 / 3) likewise on the other side.
        (F, (1, 8, 0.7), 11),
        (F, (-1, 4 / 3, 1 / 3), 7),
    ],
)
def test_ranges_are_counted_exactly(kind: type, bounds: tuple[float, ...], count: int) -> None:
    """ONNX Runtime's counts."""
    feeds = {n: np.array(v, kind) for n, v in zip("abc", bounds, strict=True)}
    (y,) = run("Range", feeds)
    assert (y.dtype, y.shape) == (kind, (count,))
    np.testing.assert_allclose(y, feeds["a"] + np.arange(count) * feeds["c"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("op", "axis", "opset"), [("Softmax", -4, 7), ("Softmax", 3, 7), ("Flatten", 4, 11)])
def test_axes_that_are_none(op: str, axis: int, opset: int) -> None:
    with pytest.raises(EngineError, match=f"axis {axis} does not exist in 3 axes"):
        run(op, {"x": np.ones((2, 3, 2), F)}, opset=opset, axis=axis)
    assert run("Flatten", {"x": np.ones((2, 3, 2), F)}, axis=3)[0].shape == (12, 1)


def test_random_operators_without_a_seed_draw_different_numbers() -> None:
    nodes = [
        helper.make_node("RandomUniform", [], ["a"], shape=[4]),
        helper.make_node("RandomUniform", [], ["b"], shape=[4]),
        helper.make_node("RandomUniform", [], ["c"], shape=[4], seed=0.5),
        helper.make_node("RandomUniform", [], ["d"], shape=[4], seed=0.5),
    ]
    outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "abcd"]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [], outputs), opset_imports=[helper.make_opsetid("", 17)]
    )
    runner = loadrun.Runner(loadrun.load(model))
    (a, b, c, d), again = ([o.value.tolist() for o in runner.run({}).outputs] for _ in range(2))
    assert a != b
    assert c == d != a
    assert again == [a, b, c, d]


def test_a_loop_that_an_input_ends() -> None:
    data = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 16]>
        g (float[2] x, int64 n) => (float[2] y) <int64 most = {9223372036854775807}, bool go = {1}> {
            y, left = Loop (most, go, x, n) <body = b (int64 i, bool c, float[2] v, int64 k)
                => (bool more, float[2] w, int64 rest) <int64 one = {1}, int64 zero = {0}> {
                w = Add (v, v)
                rest = Sub (k, one)
                more = Greater (rest, zero)
            }>
        }""").SerializeToString()
    runner = loadrun.Runner(loadrun.load(data))
    for n in (1, 3, 2):
        assert runner.run({"x": F([1, -3]), "n": np.array(n)})["y"].tolist() == [2**n, -3 * 2**n]


def test_a_bias_has_a_number_for_each_channel() -> None:
    x, w = np.ones((1, 1, 3, 3), F), np.ones((2, 1, 3, 3), F)
    for op, b, other in (("Conv", w, 1), ("ConvTranspose", w.reshape(1, 2, 3, 3), 3)):
        with pytest.raises(UnsupportedError, match=rf"its bias is \[{other}\] for 2 channels"):
            run(op, {"x": x, "w": b, "b": np.ones(other, F)})


@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        ("DepthToSpace", [(1, 4, 1, 1)], {"mode": "x", "blocksize": 2}),
        ("Conv", [(1, 1, 3, 3), (1, 1, 3, 3)], {"auto_pad": "x"}),
        ("Conv", [(1, 1, 3, 3), (1, 1, 3, 3)], {"kernel_shape": [3, 2]}),
        ("ConvTranspose", [(1, 1, 3, 3), (1, 1, 3, 3)], {"auto_pad": "x"}),
        ("AveragePool", [(1, 1, 3, 3)], {"auto_pad": "x", "kernel_shape": [1, 1]}),
        ("Gelu", [(2,)], {"approximate": "x"}),
        ("LSTM", [(1, 1, 2), (1, 8, 2), (1, 8, 2)], {"direction": "x", "hidden_size": 2}),
        ("GRU", [(1, 1, 2), (1, 6, 2), (1, 6, 2)], {"direction": "x", "hidden_size": 2}),
        ("LpNormalization", [(2,)], {"p": 3}),
        ("NegativeLogLikelihoodLoss", [(2, 2), (2,)], {"reduction": "x"}),
    ],
)
def test_attributes_that_are_none_of_the_known(
    op: str, shapes: list[Any], attributes: dict[str, Any]
) -> None:
    feeds = {f"i{i}": np.zeros(s, F) for i, s in enumerate(shapes)}
    if "Loss" in op:
        feeds["i1"] = feeds["i1"].astype(np.int64)
    name = min(attributes, key=lambda n: n in ("blocksize", "hidden_size"))
    name = "auto_pad" if "auto_pad" in attributes else name
    with pytest.raises(EngineError, match=f"its {name} is .*, expected "):
        run(op, feeds, opset=20, **attributes)
    lengths = np.array([2, 2], np.int64)
    with pytest.raises(EngineError, match="its batch_axis is 0 and its time_axis -1, expected 0 and 1"):
        run("ReverseSequence", {"x": np.eye(2, dtype=F), "n": lengths}, batch_axis=0, time_axis=-1)


def test_a_loop_of_scalars_that_never_begins_gives_none() -> None:
    """A Range as ONNX's function has it; the body says nothing about the shape of what it collects."""
    data = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 16]>
        g (int64 n, int32 start) => (int32 last, int32[m] y) <bool go = {1}> {
            last, y = Loop (n, go, start) <body = b (int64 i, bool c, int32 v) => (bool more, int32[] w, int32[] z)
                <int32 step = {2}> {
                more = Identity (c)
                w = Add (v, step)
                z = Identity (v)
            }>
        }""")
    for info in data.graph.node[0].attribute[0].g.output[1:]:
        info.type.tensor_type.ClearField("shape")
    runner = loadrun.Runner(loadrun.load(data.SerializeToString()))
    for n, values in ((0, []), (2, [5, 7])):
        result = runner.run({"n": np.array(n), "start": np.array(5, np.int32)})
        assert (result["y"].dtype, result["y"].tolist(), result["last"].tolist()) == (
            np.int32,
            values,
            5 + 2 * n,
        )
