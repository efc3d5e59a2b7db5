"""Floating-point types of 8 and 4 bits: numbers as ml_dtypes, with which the package onnx computes, has them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError
from loadrun.onnx import truth

onnx = pytest.importorskip("onnx", reason="models are built with the package onnx")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="the reference of small floats")
helper, T = onnx.helper, onnx.TensorProto
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from onnx.numpy_helper import saturate_cast, to_float8e8m0

TYPES = {
    17: ml_dtypes.float8_e4m3fn,
    18: ml_dtypes.float8_e4m3fnuz,
    19: ml_dtypes.float8_e5m2,
    20: ml_dtypes.float8_e5m2fnuz,
    23: ml_dtypes.float4_e2m1fn,
    24: ml_dtypes.float8_e8m0fnu,
}
Array = np.ndarray[Any, Any]


def cast_to(kind: int, x: Array, **attributes: Any) -> Array:
    node = helper.make_node("Cast", ["x"], ["y"], to=kind, **attributes)
    info = helper.make_tensor_value_info
    given = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph([node], "g", [info("x", given, x.shape)], [info("y", kind, x.shape)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    return loadrun.run(loadrun.load(model.SerializeToString()), {"x": x})[0]["y"]


def many() -> Array:
    """All float16 numbers, many of float32, and what lies beside the limits; without -0, which becomes 0."""
    half = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    bits = np.random.default_rng(0).integers(0, 2**32, 50_000, dtype=np.uint64).astype(np.uint32)
    limits = [448, 464, 464.1, 480, 57344, 61440, 61441, 240, 248, 248.1, 5, 5.1, 1e-45]
    found = np.concatenate([half, bits.view(np.float32), np.float32(limits)])
    return found[(found != 0) | ~np.signbit(found)]


def same(got: Array, want: Array) -> None:
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("kind", [17, 18, 19, 20])
def test_rounding_to_8_bits(kind: int, saturate: int) -> None:
    x = many()
    with np.errstate(all="ignore"):
        want = saturate_cast(x, TYPES[kind]) if saturate else x.astype(TYPES[kind])
    same(cast_to(kind, x, saturate=saturate), want.astype(np.float32))


def test_doubles_are_rounded_too() -> None:
    x = np.array([465.75, -0.3, 1e-9, 100])
    assert cast_to(17, x).tolist() == [448, -0.3125, 0, 96]
    assert cast_to(19, x).tolist() == [448, -0.3125, 0, 96]
    assert cast_to(23, x).tolist() == [6, -0.5, 0, 6]


@pytest.mark.parametrize(
    ("kind", "want"),
    [(22, [-1, 1, 2, 3, -8, 0, -3, -8, 7]), (21, [15, 1, 2, 3, 8, 0, 13, 8, 7])],
)
@pytest.mark.parametrize("given", [np.float16, np.float32, np.float64])
def test_floats_are_rounded_to_4_bit_integers(kind: int, want: list[int], given: Any) -> None:
    """Halves away from zero, then wrapped: what ONNX Runtime 1.32 gives."""
    x = np.array([-0.5, 0.5, 1.5, 2.5, 7.5, 15.5, -2.5, -7.7, -8.5], given)
    assert cast_to(kind, x).astype(int).tolist() == want


def test_rounding_to_4_bits() -> None:
    x = many()
    x = x[~np.isnan(x)]
    same(cast_to(23, x), x.astype(TYPES[23]).astype(np.float32))
    assert cast_to(23, np.float32([np.nan])).tolist() == [0]


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_rounding_to_powers_of_two(mode: str, saturate: int) -> None:
    x = many()
    want = to_float8e8m0(x, bool(saturate), mode).astype(np.float32)
    same(cast_to(24, x, saturate=saturate, round_mode=mode), want)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("raw", [False, True])
def test_stored_codes(kind: int, raw: bool) -> None:
    codes = np.arange(16 if kind == 23 else 256, dtype=np.uint8)
    want = codes.view(TYPES[kind]).astype(np.float32)
    packed = codes[::2] | codes[1::2] << 4 if kind == 23 else codes
    held = {"raw_data": packed.tobytes()} if raw else {"int32_data": packed.tolist()}
    stored = onnx.TensorProto(name="w", data_type=kind, dims=[len(codes)], **held)
    nodes = [helper.make_node("Cast", ["w"], ["f"], to=1), helper.make_node("Add", ["x", "f"], ["y"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", 1, [1])], [info("y", 1, codes.shape)], [stored])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    (result,) = loadrun.run(loadrun.load(model.SerializeToString()), {"x": np.float32([0])})
    np.testing.assert_array_equal(result["y"], want)


def test_quantizing_to_8_bits_and_back() -> None:
    x = np.float32([0.0, 1.0, 2.1, 1e5, -200.0, 3.3])
    scale = np.float32(2)
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    stored = [
        onnx.numpy_helper.from_array(scale, "s"),
        onnx.TensorProto(name="z", data_type=17, dims=[], raw_data=b"\0"),
    ]
    graph = helper.make_graph(nodes, "g", [info("x", 1, [6])], [info("y", 1, [6])], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    (result,) = loadrun.run(loadrun.load(model.SerializeToString()), {"x": x})
    want = saturate_cast(x / scale, TYPES[17]).astype(np.float32) * scale
    np.testing.assert_array_equal(result["y"], want)
    assert result["y"].tolist() == [0.0, 1.0, 2.0, 896.0, -192.0, 3.25]


@pytest.mark.parametrize("coming", [True, False])
def test_onnx_runtime_is_not_fed_codes(coming: bool, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    kinds = (T.FLOAT, T.FLOAT8E4M3FN) if coming else (T.FLOAT8E4M3FN, T.FLOAT)
    ends = [helper.make_tensor_value_info(n, k, [2]) for n, k in zip("xy", kinds, strict=True)]
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=kinds[1])]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 21)]
    )
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(EngineError, match=r"is a tensor\(float8e4m3fn\)"):
        truth.runtime(str(tmp_path / "m.onnx"))({"x": np.ones(2, "f4")})
