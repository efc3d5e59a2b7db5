"""com.microsoft's operators for which ONNX Runtime has no kernel on processors: against float64, or another form."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np
import pytest

import loadrun
from tests.onnx.contrib_cases import Case, f, u8, z

pytest.importorskip("onnx", reason="onnx is not installed")


def only(
    op: str, attributes: dict[str, Any], *inputs: np.ndarray | None, domain: str = "com.microsoft"
) -> np.ndarray:
    """What loadrun makes of one node."""
    from tests.onnx.contrib_models import proto  # needs onnx

    bundle = loadrun.load(proto(Case(op, list(inputs), attributes, domain=domain)))
    (result,) = loadrun.run(bundle, {f"i{i}": v for i, v in enumerate(inputs) if v is not None})
    assert result.message is None
    return np.asarray(result["o0"])


def softmax(x: np.ndarray) -> np.ndarray:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def test_packed_heads_are_those_apart() -> None:
    q, k, v = f(2, 3, 8), f(2, 3, 8), f(2, 3, 8)
    apart = only("MultiHeadAttention", {"num_heads": 2}, q, k, v)
    parts = [x.reshape(2, 3, 2, 1, 4) for x in (q, k, v)]
    whole = only("MultiHeadAttention", {"num_heads": 2}, np.concatenate(parts, 3))
    pair = only("MultiHeadAttention", {"num_heads": 2}, q, np.concatenate(parts[1:], 3))
    np.testing.assert_array_equal(whole, apart)
    np.testing.assert_array_equal(pair, apart)


def test_bias_softmax() -> None:
    x = f(2, 3, 4)
    for bias in (f(1, 3, 4), f(2, 1, 4), f(4)):
        got = only("BiasSoftmax", {"axis": 2, "is_inner_broadcast": 0}, x, bias)
        np.testing.assert_allclose(got, softmax(x.astype(float) + bias), atol=1e-6)
    flat = softmax((x.astype(float) + bias).reshape(2, 12)).reshape(2, 3, 4)
    np.testing.assert_allclose(
        only("BiasSoftmax", {"axis": 1, "is_inner_broadcast": 0}, x, bias), flat, atol=1e-6
    )


def test_bias_and_residual() -> None:
    x, bias, skip = f(2, 3, 8), f(8), f(2, 3, 8)
    np.testing.assert_array_equal(only("BiasAdd", {}, x, bias, skip), x + bias + skip)
    np.testing.assert_array_equal(only("BiasDropout", {}, x, bias, skip), x + bias + skip)
    whole = x.astype(float) + bias
    want = whole[..., :4] * gelu(whole[..., 4:])
    np.testing.assert_allclose(only("BiasSplitGelu", {}, x, bias), want, atol=1e-6)
    w = f(8, 5)
    want = gelu_tanh(x.astype(float) @ w + f(5) * 0)
    np.testing.assert_allclose(only("GemmFastGelu", {}, x, w), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("last", [0, 1])
def test_group_norm(last: int) -> None:
    x, gamma, beta = f(2, 6, 3, 4), f(6), f(6)
    groups = x.astype(float).reshape(2, 3, 2 * 3 * 4)
    middle, spread = groups.mean(-1, keepdims=True), groups.var(-1, keepdims=True)
    y = ((groups - middle) / np.sqrt(spread + 1e-5)).reshape(x.shape)
    y = y * gamma[:, None, None] + beta[:, None, None]
    attributes = {"groups": 3, "channels_last": last, "activation": 1}
    given = x.transpose(0, 2, 3, 1) if last else x
    got = only("GroupNorm", attributes, np.ascontiguousarray(given), gamma, beta)
    want = y / (1 + np.exp(-y))
    np.testing.assert_allclose(got, want.transpose(0, 2, 3, 1) if last else want, rtol=1e-5, atol=2e-6)
    with_skip = only(
        "SkipGroupNorm", attributes, np.zeros_like(given), gamma, beta, np.ascontiguousarray(given)
    )
    np.testing.assert_array_equal(with_skip, got)


def test_convolution_with_channels_last() -> None:
    x, w, b = f(1, 3, 6, 6), f(4, 3, 3, 3), f(4)
    plain = only("Conv", {"pads": [1, 1, 1, 1]}, x, w, b, domain="")
    given = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    turned = plain.transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(only("NhwcConv", {"pads": [1, 1, 1, 1]}, given, w, b), turned)
    got = only("NhwcFusedConv", {"pads": [1, 1, 1, 1], "activation": "Relu"}, given, w, b)
    np.testing.assert_array_equal(got, np.maximum(turned, 0))


def test_complex_products() -> None:
    a, b = f(3, 4, 2), f(3, 4, 2)
    one, two = (x[..., 0] + 1j * x[..., 1] for x in (a, b))
    for op, want in (("ComplexMul", one * two), ("ComplexMulConj", one * two.conj())):
        got = only(op, {}, a, b)
        np.testing.assert_allclose(got, np.stack([want.real, want.imag], -1), rtol=1e-5, atol=1e-6)


def test_whole_numbers() -> None:
    a, b = u8(2, 3), u8(2, 3)
    want = (a.astype(int) - 7) * (b.astype(int) - 200)
    np.testing.assert_array_equal(only("MulInteger", {}, a, z(7), b, z(200)), want)
    nothing = np.array([1, 2], np.float32)
    for value, every, nan, inf in ((0, 1, 1, 1), (np.nan, 0, 0, 1), (-np.inf, 0, 1, 0)):
        x = np.array([3, value], np.float32)
        assert [
            bool(only("IsAllFinite", flags, nothing, x).all())
            for flags in ({}, {"isnan_only": 1}, {"isinf_only": 1})
        ] == [bool(v) for v in (every, nan, inf)]


def test_what_cannot_be_expressed_is_named() -> None:
    with pytest.raises(
        loadrun.UnsupportedError, match=r"the operator Tokenizer of the domain com\.microsoft"
    ):
        only("Tokenizer", {}, f(2, 3))
    with pytest.raises(loadrun.UnsupportedError, match="slices of 9 at steps of 1 along 3 elements"):
        only("UnfoldTensor", {"size": 9, "dim": 1}, f(2, 3))
