"""Normalization against recorded numbers of MegEngine 1.13 and plain float64 formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import EngineError
from loadrun.graph.dtypes import DType, round_bfloat16
from loadrun.graph.params import (
    BN,
    LRN,
    BNFwdMode,
    BNParamDim,
    Format,
    GeneralNorm,
    GroupNorm,
    LayerNorm,
    Record,
    Softmax,
)
from loadrun.ops.numeric.special import round_half, sum_rounded
from tests.support.nn_cases import load, record_of, run

CASES = load("norm")
TOLERANCE = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
Array = np.ndarray[Any, Any]


def real(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


@pytest.mark.parametrize("name", CASES)
def test_recorded(name: str) -> None:
    case = CASES[name]
    kind, params = record_of(case)
    outs = run(kind, (params,), *case["ins"], dtype="BFloat16" if case["dtype"] == "bfloat16" else None)
    # MegEngine leaves the first two outputs of an inference BatchNorm unwritten.
    undefined = 2 if case["params"].get("fwd_mode") == "INFERENCE" else 0
    for i, (got, want) in enumerate(zip(outs, case["outs"], strict=True)):
        assert got.dtype == want.dtype
        assert got.shape == want.shape, i
        if i >= undefined:
            tol = TOLERANCE[case["dtype"]]
            np.testing.assert_allclose(
                got.astype("f8"), want.astype("f8"), rtol=tol, atol=tol, err_msg=f"output {i}"
            )


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("softmax") and "32" not in n])
def test_half_softmax_is_exact(name: str) -> None:
    """The order of roundings is MegEngine's, so (nearly) every bit is; numpy's exp may differ in the last one."""
    case = CASES[name]
    kind, params = record_of(case)
    (got,) = run(kind, (params,), *case["ins"], dtype="BFloat16" if "bfloat" in name else None)
    assert np.mean(got == case["outs"][0]) > 0.98


def test_softmax_rows_and_columns() -> None:
    x = real(5, 7, 300) * 10
    for axis in range(-3, 3):
        (got,) = run("Softmax", (Softmax(axis=axis),), x)
        e = np.exp(x.astype("f8") - x.max(axis, keepdims=True))
        np.testing.assert_allclose(got, e / e.sum(axis, keepdims=True), rtol=1e-5, atol=1e-12)
    (flipped,) = run("Softmax", (Softmax(axis=1),), np.asfortranarray(x))
    (plain,) = run("Softmax", (Softmax(axis=1),), x)
    np.testing.assert_allclose(flipped, plain, rtol=1e-6)


def test_softmax_of_very_low_values() -> None:
    """MegEngine gives NaN here, because its maximum starts at zero."""
    (got,) = run(
        "Softmax", (Softmax(axis=-1),), np.array([[-200, -200, -200, -200], [-1e9, -1e9, -1e9, 0]], "f4")
    )
    np.testing.assert_array_equal(got, np.array([[0.25] * 4, [0, 0, 0, 1]], "f4"))
    (got,) = run("Softmax", (Softmax(axis=-1),), np.array([[-math.inf, 0, 0]], "f4"))
    np.testing.assert_array_equal(got, np.array([[0, 0.5, 0.5]], "f4"))
    (got,) = run("Softmax", (Softmax(axis=-1),), np.array([[math.nan, 0, 0]], "f4"))
    assert np.isnan(got).all()


def test_large_rows_are_normalized_in_blocks() -> None:
    x = real(400, 1000)
    w, b = real(1000, seed=1), real(1000, seed=2)
    y, mean, rstd = run("LayerNorm", (LayerNorm(normalized_dim=1, normalized_size=1000),), x, w, b)
    d = x.astype("f8")
    var = d.var(1)
    np.testing.assert_allclose(mean, d.mean(1), atol=1e-6)
    np.testing.assert_allclose(rstd, 1 / np.sqrt(var + 1e-5), rtol=1e-5)
    want = (d - d.mean(1)[:, None]) / np.sqrt(var + 1e-5)[:, None] * w + b
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
    (s,) = run("Softmax", (Softmax(axis=1),), x)
    np.testing.assert_allclose(s.sum(1), 1, rtol=1e-5)


def test_general_norm_of_everything_has_a_mean_of_one_element() -> None:
    x = np.array([[1, 2], [3, 6]], "f4")
    y, mean, rstd = run("GeneralNorm", (GeneralNorm(affine=False, eps=0.5, axis_start=0, axis_end=2),), x)
    assert mean.tolist() == [3.0]
    assert rstd.tolist() == [0.5]
    assert y.tolist() == [[-1, -0.5], [0, 1.5]]


def test_group_norm_gives_the_variance() -> None:
    x = np.array([1, 3, 10, 30], "f4").reshape(1, 4, 1, 1)
    p = GroupNorm(affine=False, eps=0.0, group=2)
    y, mean, var = run("GroupNorm", (p,), x)
    assert y.ravel().tolist() == [-1, 1, -1, 1]
    assert mean.tolist() == [[2, 20]]
    assert var.tolist() == [[1, 100]]
    y, mean, var = run("InstanceNorm", (p.replace(eps=1.0),), x)
    assert y.ravel().tolist() == [0] * 4
    assert mean.tolist() == [[1, 3, 10, 30]]
    assert var.tolist() == [[0] * 4]


def test_batch_norm_by_hand() -> None:
    x = np.array([0, 2, 4, 10], "f4").reshape(2, 2, 1, 1)
    c = lambda *v: np.array(v, "f4").reshape(1, -1, 1, 1)  # noqa: E731
    p = BN(param_dim=BNParamDim.DIM_1C11, epsilon=0.0, avg_factor=0.5)
    new_mean, new_var, mean, rstd, reserve, y = run(
        "BatchNormV1", (p,), x, c(1, 2), c(0, 1), c(0, 0), c(0, 2)
    )
    assert mean.ravel().tolist() == [2, 6]
    assert rstd.ravel().tolist() == [0.5, 0.25]
    assert new_mean.ravel().tolist() == [1, 3]
    # The running variance takes the unbiased one of the batch: 8 and 32.
    assert new_var.ravel().tolist() == [4, 17]
    assert reserve.shape == (0,)
    assert y.ravel().tolist() == [-1, -1, 1, 3]
    outs = run("BatchNormV1", (p,), x, c(1, 2), c(0, 1))
    assert len(outs) == 4
    assert outs[3].tolist() == y.tolist()
    p = p.replace(fwd_mode=BNFwdMode.INFERENCE)
    outs = run("BatchNormV1", (p,), x, c(1, 2), c(0, 1), c(1, 1), c(4, 1))
    assert outs[3].ravel().tolist() == [-0.5, 3, 1.5, 19]


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 3, 1, 1), (1, 1, 4, 5), (1, 3, 4, 5), (1, 1, 1, 5)])
@pytest.mark.parametrize("mode", BNFwdMode)
def test_batch_norm_axes(shape: tuple[int, ...], mode: BNFwdMode) -> None:
    x = real(6, 3, 4, 5)
    s, b, m = (real(*shape, seed=i) for i in (1, 2, 3))
    v = np.abs(real(*shape, seed=4)) + np.float32(0.5)
    *_, y = run("BatchNormV1", (BN(fwd_mode=mode, epsilon=1e-3),), x, s, b, m, v)
    d = x.astype("f8")
    if mode == BNFwdMode.TRAINING:
        axes = tuple(i for i, n in enumerate(shape) if n == 1)
        m, v = d.mean(axes, keepdims=True), d.var(axes, keepdims=True)
    np.testing.assert_allclose(y, (d - m) / np.sqrt(v + 1e-3) * s + b, rtol=1e-5, atol=1e-5)


def test_batch_norm_of_float16_with_float32_parameters() -> None:
    x = real(2, 3, 4, 5).astype("f2")
    rest = [real(1, 3, 1, 1, seed=i) for i in (1, 2, 3)] + [np.full((1, 3, 1, 1), 2, "f4")]
    outs = run("BatchNormV1", (BN(fwd_mode=BNFwdMode.INFERENCE),), x, *rest)
    assert [o.dtype for o in outs] == [np.float32, np.float32, np.uint8, np.float16]


@pytest.mark.parametrize("n", [1, 3, 5, 7, 2**31 + 1])
def test_lrn_windows(n: int) -> None:
    x = real(2, 4, 3, 3) * 4
    (y,) = run("LRN", (LRN(n=n, k=2.0, alpha=0.1, beta=0.6),), x)
    d = x.astype("f8")
    want = np.empty_like(d)
    for i in range(4):
        window = d[:, max(0, i - n // 2) : i + n // 2 + 1]
        want[:, i] = d[:, i] * (2 + 0.1 * (window**2).sum(1)) ** -0.6
    np.testing.assert_allclose(y, want, rtol=2e-6)
    (half,) = run("LRN", (LRN(n=n, k=2.0, alpha=0.1, beta=0.6),), x.astype("f2"))
    np.testing.assert_allclose(half, want, rtol=2e-3)


EMPTY: list[tuple[str, Record, list[tuple[int, ...]]]] = [
    ("Softmax", Softmax(axis=1), [(0, 3)]),
    ("Softmax", Softmax(axis=1), [(3, 0)]),
    ("Softmax", Softmax(axis=0), [(0, 3)]),
    ("LayerNorm", LayerNorm(normalized_dim=1, normalized_size=3), [(0, 3), (3,), (3,)]),
    ("LayerNorm", LayerNorm(normalized_dim=1, normalized_size=0), [(2, 0), (0,), (0,)]),
    ("GeneralNorm", GeneralNorm(axis_start=1, axis_end=2), [(0, 3), (3,), (3,)]),
    ("GroupNorm", GroupNorm(group=2), [(0, 4, 2, 2), (4,), (4,)]),
    ("InstanceNorm", GroupNorm(affine=False), [(2, 4, 0, 2)]),
    ("BatchNormV1", BN(), [(0, 3, 2, 2)] + [(1, 3, 1, 1)] * 4),
    ("BatchNormV1", BN(fwd_mode=BNFwdMode.INFERENCE), [(2, 3, 0, 2)] + [(1, 3, 1, 1)] * 4),
    ("LRN", LRN(), [(0, 3, 2, 2)]),
    ("LRN", LRN(), [(1, 0, 2, 2)]),
]


@pytest.mark.parametrize(("kind", "params", "shapes"), EMPTY)
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_arrays_without_elements(
    kind: str, params: Record, shapes: list[tuple[int, ...]], dtype: str
) -> None:
    outs = run(kind, (params,), *(np.ones(s, dtype) for s in shapes))
    assert outs[-1 if kind == "BatchNormV1" else 0].shape == shapes[0]


BAD: list[tuple[str, Record, list[tuple[int, ...]], str]] = [
    ("Softmax", Softmax(axis=2), [(3, 4)], "no axis 2 in a tensor of 2 dimensions"),
    ("Softmax", Softmax(axis=-(2**31)), [(3, 4)], "no axis -2147483648 in a tensor of 2 dimensions"),
    (
        "LayerNorm",
        LayerNorm(normalized_dim=2, normalized_size=12),
        [(3, 4)] * 3,
        "must be at least 1 and below the 2",
    ),
    ("LayerNorm", LayerNorm(normalized_dim=0), [(3, 4)] * 3, "normalized_dim 0 must be at least 1"),
    (
        "LayerNorm",
        LayerNorm(normalized_dim=1, normalized_size=2**60),
        [(3, 4), (4,), (4,)],
        "the last dimensions [4] hold 4",
    ),
    (
        "LayerNorm",
        LayerNorm(normalized_dim=1, normalized_size=4),
        [(3, 4), (3,), (4,)],
        "the weight must have shape [4], found [3]",
    ),
    (
        "LayerNorm",
        LayerNorm(normalized_dim=1, normalized_size=4),
        [(3, 4)],
        "takes weight and bias, found 0 more inputs",
    ),
    (
        "GeneralNorm",
        GeneralNorm(axis_start=1, axis_end=1),
        [(3, 4)],
        "axes from 1 up to 1 cannot be normalized",
    ),
    (
        "GeneralNorm",
        GeneralNorm(axis_start=0, axis_end=99),
        [(3, 4)],
        "axes from 0 up to 99 cannot be normalized",
    ),
    (
        "GeneralNorm",
        GeneralNorm(axis_start=0, axis_end=1),
        [(3, 4), (3,), (4,)],
        "the bias must have shape [3], found [4]",
    ),
    (
        "GroupNorm",
        GroupNorm(group=0),
        [(1, 4, 2, 2), (4,), (4,)],
        "4 channels cannot be divided into 0 groups",
    ),
    (
        "GroupNorm",
        GroupNorm(group=3),
        [(1, 4, 2, 2), (4,), (4,)],
        "4 channels cannot be divided into 3 groups",
    ),
    ("GroupNorm", GroupNorm(group=2), [(1, 4, 2), (4,), (4,)], "must have 4 dimensions, found [1, 4, 2]"),
    (
        "GroupNorm",
        GroupNorm(group=2, format=Format.NHWC),
        [(1, 4, 2, 2), (4,), (4,)],
        "must be NCHW, not NHWC",
    ),
    (
        "GroupNorm",
        GroupNorm(group=2),
        [(1, 4, 2, 2), (2,), (4,)],
        "the weight must have shape [4], found [2]",
    ),
    ("InstanceNorm", GroupNorm(), [(1, 0, 2, 2), (0,), (0,)], "0 channels cannot be divided into 0 groups"),
    ("BatchNormV1", BN(), [(2, 3, 4, 4)] + [(1, 2, 1, 1)] * 4, "found [2, 3, 4, 4] and [1, 2, 1, 1]"),
    ("BatchNormV1", BN(), [(2, 3, 4, 4), (1, 3, 1, 1), (1, 1, 1, 1)], "the bias must have the scale's shape"),
    (
        "BatchNormV1",
        BN(fwd_mode=BNFwdMode.INFERENCE),
        [(2, 3, 4, 4), (1, 3, 1, 1), (1, 3, 1, 1)],
        "found 3 inputs",
    ),
    ("BatchNormV1", BN(), [(2, 3), (3,), (3,)], "must have 4 dimensions"),
    ("LRN", LRN(n=4), [(1, 4, 2, 2)], "the window of 4 channels must be odd"),
    ("LRN", LRN(), [(4, 2, 2)], "must have 4 dimensions, found [4, 2, 2]"),
]


@pytest.mark.parametrize(("kind", "params", "shapes", "text"), BAD)
def test_refusals(kind: str, params: Record, shapes: list[tuple[int, ...]], text: str) -> None:
    with pytest.raises(EngineError) as e:
        run(kind, (params,), *(np.ones(s, "f4") for s in shapes))
    assert text in str(e.value)


@pytest.mark.parametrize(
    ("kind", "params", "dtypes", "text"),
    [
        ("Softmax", Softmax(), ["i4"], "must be Float32, Float16 or BFloat16, not Int32"),
        (
            "LayerNorm",
            LayerNorm(),
            ["f4", "f2", "f2"],
            "weight and bias must be Float32 like the input, not Float16",
        ),
        (
            "BatchNormV1",
            BN(),
            ["f4", "f2", "f2"],
            "a Float32 input cannot be normalized with Float16 parameters",
        ),
        ("BatchNormV1", BN(), ["f4", "f4", "f2"], "must have one dtype, found Float32, Float16"),
        (
            "BatchNormV1",
            BN(),
            ["f4", "i4", "i4"],
            "the scale must be Float32, Float16 or BFloat16, not Int32",
        ),
        ("LRN", LRN(), ["u1"], "not Uint8"),
    ],
)
def test_refused_dtypes(kind: str, params: Record, dtypes: list[str], text: str) -> None:
    with pytest.raises(EngineError, match=text):
        run(kind, (params,), *(np.ones((1, 1, 1, 1), d) for d in dtypes))


def test_rounding_of_float16() -> None:
    """Ties go away from zero; every float16 stays itself. MegEngine: 1 + 2^-11 -> 1.001, 2^-25 -> 5.96e-08."""
    every = np.arange(65536, dtype="u2").view("f2")
    back = round_half(every.astype("f4"))
    assert np.array_equal(back[~np.isnan(back)], every[~np.isnan(every)])
    assert np.isnan(back).sum() == np.isnan(every).sum()
    ties = np.array([1 + 2**-11, -1 - 2**-11, 2**-25, 65519.996, 65520, -7e4], "f4")
    want = [1 + 2**-10, -1 - 2**-10, 2**-24, 65504, math.inf, -math.inf]
    assert round_half(ties).tolist() == want


@pytest.mark.parametrize(
    ("n", "total"), [(1000, 1000), (2048, 2048), (2100, 2152), (3000, 3952), (4096, 4096), (5000, 5904)]
)
def test_rounded_sums(n: int, total: int) -> None:
    """Sums of n float16 ones as MegEngine gave them."""
    assert sum_rounded(np.ones((1, n), "f4"), 1, DType("Float16")).tolist() == [[total]]
    assert sum_rounded(np.ones((n, 2), "f4"), 0, DType("Float16")).tolist() == [[total, total]]


def test_sums_of_bfloat16_stop_growing() -> None:
    total = np.float32(0)
    for _ in range(300):
        total = round_bfloat16(np.array([total + np.float32(1)]))[0]
    assert total == 256
    assert sum_rounded(np.ones((300, 1), "f4"), 0, DType("BFloat16")).tolist() == [[256]]
