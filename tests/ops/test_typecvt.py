"""Type conversion and quantizing against Python arithmetic and numbers recorded from MegEngine 1.13."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from loadrun.base.errors import EngineError
from loadrun.graph.dtypes import Array, DType, encode
from loadrun.ops.catalog import TypeParam
from loadrun.ops.numeric.quant import dequantize, quantize, requantize, round_away, saturate
from loadrun.ops.typecvt import convert
from loadrun.tensors import Tensor, quantized_dtypes
from loadrun.testing import run_operator as run

F32 = DType("Float32")
QUANTIZED = [
    DType("QuantizedS8", 0.1),
    DType("Quantized8Asymm", 0.07, 130),
    DType("QuantizedS32", 0.013),
    DType("QuantizedS16", 0.003),
    DType("QuantizedS4", 0.7),
    DType("Quantized4Asymm", 0.5, 6),
]


def c_round(x: float) -> float:
    return math.copysign(math.floor(abs(x) + 0.5), x)


@settings(deadline=None)
@given(st.lists(st.floats(-(2**40), 2**40, width=32), min_size=1, max_size=40))
def test_round_away_is_c_round(values: list[float]) -> None:
    x = np.array(values, "f4")
    # In double precision adding one half is exact for every float32.
    assert round_away(x).tolist() == [c_round(v) for v in x.tolist()]


def test_round_away_at_the_edges() -> None:
    x = np.array([0.49999997, -0.49999997, 8388607.5, 8388609.0, -16777217.0, np.inf, np.nan], "f4")
    np.testing.assert_array_equal(
        round_away(x), np.array([0, -0.0, 8388608, 8388609, -16777216, np.inf, np.nan], "f4")
    )
    assert round_away(np.array([2.5, -2.5], "f8")).tolist() == [3, -3]


@pytest.mark.parametrize("dtype", QUANTIZED, ids=str)
def test_quantize(dtype: DType) -> None:
    r = np.random.default_rng(0)
    x = (r.standard_normal(20_000) * dtype.scale * 300).astype("f4")
    got = quantize(x, dtype)
    assert got.dtype == dtype.np
    low, high = dtype.range
    exact = x.astype("f8") / np.float32(dtype.scale) + dtype.zero_point
    clear = np.abs(exact - np.floor(exact) - 0.5) > 1e-3
    want = np.clip(np.floor(exact + 0.5), low, high)
    np.testing.assert_array_equal(got[clear], want[clear])
    assert np.abs(got - want).max() <= 1


@pytest.mark.parametrize("dtype", QUANTIZED, ids=str)
def test_dequantize_inverts_quantize(dtype: DType) -> None:
    low, high = max(dtype.range[0], -5000), min(dtype.range[1], 5000)
    stored = np.arange(low, high + 1).astype(dtype.np)
    real = dequantize(stored, dtype)
    np.testing.assert_allclose(real, (np.arange(low, high + 1) - dtype.zero_point) * dtype.scale, rtol=1e-6)
    np.testing.assert_array_equal(quantize(real, dtype), stored)


def test_reciprocal_decides_ties() -> None:
    """29.25 / 0.3 in float32 is just below 97.5; times the float32 reciprocal of 0.3 it is not."""
    x = np.array([29.25], "f4")
    assert quantize(x, DType("QuantizedS8", 0.3)).tolist() == [98]
    assert quantize(x, DType("QuantizedS8", 0.3), divide=True).tolist() == [97]


def test_nan_becomes_the_lowest_value() -> None:
    for dtype in QUANTIZED:
        assert quantize(np.array([np.nan], "f4"), dtype).tolist() == [dtype.range[0]]
    assert saturate(np.array([np.inf, -np.inf], "f4"), DType("QuantizedS32", 1)).tolist() == [
        2147483520,
        -(2**31),
    ]
    assert saturate(np.array([1, 0, -1], "f4"), DType("QuantizedS1", 1)).tolist() == [1, 0, 0]


def test_one_bit_is_zero_or_one_in_a_byte() -> None:
    # What MegEngine 1.13 gives, at once and from a dump, and how it stores such a constant.
    qint1 = DType("QuantizedS1", 0.5)
    x = np.array([-3, -0.5, -0.25, -0.2, 0, 0.2, 0.25, 0.3, 0.6, 2, np.nan, np.inf, -np.inf], "f4")
    stored = quantize(x, qint1)
    assert stored.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0]
    assert encode(stored, qint1).tobytes() == bytes([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0])
    tensor = Tensor(x[:10]).astype(quantized_dtypes.qint1(0.5))
    assert tensor.astype("float32").tolist() == [0, 0, 0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5]
    assert tensor.astype(quantized_dtypes.qint8(0.25)).numpy().tolist() == [0, 0, 0, 0, 0, 0, 2, 2, 2, 2]


@pytest.mark.parametrize("source", QUANTIZED, ids=str)
@pytest.mark.parametrize("target", QUANTIZED, ids=str)
def test_requantize_goes_through_the_real_value(source: DType, target: DType) -> None:
    low, high = max(source.range[0], -3000), min(source.range[1], 3000)
    stored = np.arange(low, high + 1).astype(source.np)
    real = (stored.astype("f8") - source.zero_point) * source.scale
    exact = real / target.scale + target.zero_point
    clear = np.abs(exact - np.floor(exact) - 0.5) > 1e-3
    want = np.clip(np.floor(exact + 0.5), *target.range)
    np.testing.assert_array_equal(requantize(stored, source, target)[clear], want[clear])


# float32 to each type, recorded from MegEngine 1.13.
RECORDED_INPUT = [math.nan, math.inf, -math.inf, 0.5, -1.5, 128.0, 300.7, -300.7, 70000.5, 3e9, -3e9]
RECORDED = {
    "Int8": [0, 0, 0, 0, -1, -128, 44, -44, 112, 0, 0],
    "Uint8": [0, 0, 0, 0, 255, 128, 44, 212, 112, 0, 0],
    "Int16": [0, 0, 0, 0, -1, 128, 300, -300, 4464, 0, 0],
    "Int32": [-(2**31)] * 3 + [0, -1, 128, 300, -300, 70000, -(2**31), -(2**31)],
    "Bool": [True] * 11,
}


@pytest.mark.parametrize("name", RECORDED)
def test_floats_as_integers(name: str) -> None:
    x = np.array(RECORDED_INPUT, "f4")
    (got,) = run("TypeCvtV2", TypeParam(dtype=DType(name)), x)
    assert got.tolist() == RECORDED[name]


def test_integers_wrap() -> None:
    x = np.array([300, -129, 65535, -(2**31)], "i4")
    for name, want in {
        "Int8": [44, 127, -1, 0],
        "Uint16": [300, 65407, 65535, 0],
        "Bool": [True] * 4,
    }.items():
        assert run("TypeCvtV2", TypeParam(dtype=DType(name)), x)[0].tolist() == want


def test_float16_ties_round_away_and_large_values_overflow() -> None:
    x = np.array([2049.0, 65519.0, 65520.0, -65520.0, np.nan], "f4")
    (got,) = run("TypeCvtV2", TypeParam(dtype=DType("Float16")), x)
    np.testing.assert_array_equal(got, np.array([2050, 65504, np.inf, -np.inf, np.nan], "f2"))


def test_bfloat16_is_float32_of_less_precision() -> None:
    x = np.array([1.0039062, 3.1415927], "f4")
    (got,) = run("TypeCvtV2", TypeParam(dtype=DType("BFloat16")), x)
    assert got.dtype == np.float32
    assert got.tolist() == [1.0, 3.140625]


def test_quantized_numbers_truncate_as_integers() -> None:
    q = DType("QuantizedS8", 0.3)
    (got,) = run("TypeCvtV2", TypeParam(dtype=DType("Int32")), np.array([6, -6, 127], "i1"), dtypes={0: q})
    assert got.tolist() == [1, -1, 38]


def test_too_large_for_quantized_int32() -> None:
    x = np.array([1e10, -1e10, 5.0], "f4")
    q = DType("QuantizedS32", 1e-3)
    assert convert(x, F32, q).tolist() == [-(2**31), -(2**31), 5000]
    assert convert(np.array([2**31 - 1], "i4"), DType("Int32"), q).tolist() == [2**31 - 1]


def test_same_dtype_is_the_same_array() -> None:
    x = np.zeros(3, "f4")
    assert convert(x, F32, F32) is x


@pytest.mark.parametrize(
    ("source", "target"),
    [("Bool", DType("QuantizedS8", 0.1)), ("Uint16", DType("Quantized8Asymm", 0.1, 3)), ("Complex64", F32)],
)
def test_refused(source: str, target: DType) -> None:
    x = np.zeros(3, DType(source).np)
    with pytest.raises(EngineError, match=f"cannot convert {source} to {target.name}"):
        run("TypeCvtV2", TypeParam(dtype=target), x)


@pytest.mark.parametrize("layout", ["transposed", "unaligned", "empty"])
def test_layouts(layout: str) -> None:
    base = np.linspace(-3, 3, 24, dtype="f4").reshape(4, 6)
    x: Array
    if layout == "transposed":
        x = base.T
    elif layout == "unaligned":
        x = np.frombuffer(b"\0" + base.tobytes(), np.uint8)[1:].view("f4").reshape(4, 6)
    else:
        x = base[:0]
    q = DType("QuantizedS8", 0.1)
    np.testing.assert_array_equal(quantize(x, q), quantize(np.ascontiguousarray(x), q))
    np.testing.assert_array_equal(requantize(quantize(x, q), q, QUANTIZED[2]).shape, x.shape)


def test_large_arrays_in_pieces() -> None:
    r = np.random.default_rng(1)
    x = (r.standard_normal((3, 7, 40_000)) * 9).astype("f4")
    q = DType("Quantized8Asymm", 0.11, 100)
    whole = quantize(x, q)
    np.testing.assert_array_equal(whole[1, 2], quantize(x[1, 2, :].copy(), q))
    np.testing.assert_array_equal(whole[:, :, ::100], quantize(x[:, :, ::100], q))
