"""Definitions of ONNX's layers against results of torch, formulas in float64, and numbers computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from loadrun.graph.composite import NodeTypes
from loadrun.graph.dtypes import DType
from loadrun.onnx.operators import find
from loadrun.ops.numeric.stream import Stream

RNG = np.random.default_rng(11)


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def definition(op: str, opset: int = 18, domain: str = "") -> Callable[..., Any]:
    return find(domain, op, opset).function


def types(kind: str = "Float32", *wanted: bool) -> NodeTypes:
    return NodeTypes((DType(kind),) * 8, (DType(kind),), 18, wanted or (True,))


def test_convolution_over_four_axes_with_uneven_pads() -> None:
    x, w = f(2, 4, 3, 4, 3, 4), f(6, 2, 2, 1, 2, 3)
    pads = [1, 0, 0, 1, 0, 1, 1, 0]
    got = definition("Conv")(x, w, group=2, pads=pads, strides=[1, 2, 1, 1], dilations=[1, 1, 2, 1])
    whole = np.pad(x.astype(float), [(0, 0), (0, 0), *zip(pads[:4], pads[4:], strict=True)])
    want = np.zeros((2, 6, 3, 3, 2, 3))
    for n, o, a, b, c, d in product(*map(range, want.shape)):
        seen = whole[n, o // 3 * 2 :][:2, a : a + 2, 2 * b : 2 * b + 1, c : c + 3 : 2, d : d + 3]
        want[n, o, a, b, c, d] = (seen * w[o]).sum()
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_pooling_pads_to_the_same_size_without_dilations_alone(op: str) -> None:
    """ONNX Runtime and shape inference have other sizes there."""
    window = {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_UPPER"}
    out = definition(op, 22)(f(1, 1, 9), dilations=[1], **window)
    assert np.shape(out[0] if isinstance(out, tuple) else out) == (1, 1, 5)
    with pytest.raises(ValueError, match="no dilations"):
        definition(op, 22)(f(1, 1, 9), dilations=[2], **window)


def test_a_softcap_below_zero_caps_nothing() -> None:
    """As in ONNX Runtime and in onnx.reference."""
    q, k, v = f(1, 1, 2, 4), f(1, 1, 3, 4), f(1, 1, 3, 5)
    scores = np.exp((q.astype(float) @ k.astype(float).swapaxes(-1, -2)) / 2)
    want = scores / scores.sum(-1, keepdims=True) @ v
    got = definition("Attention", 23)(q, k, v, softcap=-0.5, types=types())
    np.testing.assert_allclose(got[0] if isinstance(got, tuple) else got, want, atol=1e-6)


@pytest.mark.parametrize("strides", [[1, 1], [2, 3]])
def test_transposed_convolution_adds_windows_up(strides: list[int]) -> None:
    x, w = f(1, 2, 3, 4), f(2, 3, 3, 2)
    want = np.zeros((1, 3, 2 * strides[0] + 3, 3 * strides[1] + 2))
    for i, j, a, b in product(range(3), range(4), range(3), range(2)):
        want[0, :, i * strides[0] + a, j * strides[1] + b] += x[0, :, i, j].astype(float) @ w[:, :, a, b]
    got = definition("ConvTranspose")(x, w, strides=strides, pads=[1, 0, 0, 1])
    np.testing.assert_allclose(got, want[:, :, 1:, :-1], atol=1e-5)


def test_integer_sums_beyond_float32_are_exact() -> None:
    x, w = np.full((1, 300, 1), 255, np.uint8), np.full((1, 300, 1), -127, np.int8)
    x[0, 0] = 254
    assert definition("ConvInteger")(x, w).item() == -127 * (299 * 255 + 254)
    assert definition("MatMulInteger")(x[:, :, 0], w[0]).item() == -127 * (299 * 255 + 254)


def test_places_of_maxima_count_the_first_of_equal_ones() -> None:
    x = np.array([[[[1, 5, 5], [5, 2, 0]]]], np.float32)
    pool = definition("MaxPool")
    y, at = pool(x, kernel_shape=[2, 2], types=types("Float32", True, True))
    assert (y.tolist(), at.tolist()) == ([[[[5, 5]]]], [[[[1, 1]]]])
    _, at = pool(x, kernel_shape=[2, 2], storage_order=1, types=types("Float32", True, True))
    assert at.tolist() == [[[[2, 2]]]]


def test_what_stands_beyond_the_pads_never_counts() -> None:
    x = np.arange(1, 6, dtype=np.float32).reshape(1, 1, 5)
    window: dict[str, Any] = {"kernel_shape": [3], "strides": [3], "pads": [1, 0], "ceil_mode": 1}
    pool = definition("AveragePool")
    assert pool(x, **window).tolist() == [[[1.5, 4]]]
    assert pool(x, **window, count_include_pad=1).tolist() == [[[1, 4]]]


@pytest.mark.parametrize(("op", "gates", "order"), [("LSTM", 4, [0, 3, 1, 2]), ("GRU", 3, [1, 0, 2])])
def test_recurrent_layers_are_those_of_torch(op: str, gates: int, order: list[int]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    layer = getattr(torch.nn, op)(3, 5, bidirectional=True)
    x, parts = f(6, 2, 3), []
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        both = [getattr(layer, name + end).detach().numpy() for end in ("", "_reverse")]
        parts.append(np.stack([np.concatenate([np.split(v, gates)[i] for i in order]) for v in both]))
    more = {"linear_before_reset": 1} if op == "GRU" else {}
    biases = np.concatenate(parts[2:], 1)
    y, *_ = definition(op)(x, *parts[:2], biases, direction="bidirectional", **more)
    want = layer(torch.tensor(x))[0].detach().numpy().reshape(6, 2, 2, 5)
    np.testing.assert_allclose(y.swapaxes(1, 2), want, atol=1e-6)


def test_inputs_that_are_not_computed_are_refused() -> None:
    x, past = f(1, 2, 4), np.array([1], np.int32)
    with pytest.raises(ValueError, match="its past_sequence_length is not supported"):
        definition("MultiHeadAttention", 1, "com.microsoft")(
            x, x, x, *[None] * 5, past, num_heads=2, types=types()
        )


def test_random_numbers_have_their_distribution() -> None:
    p = np.full((100, 100), 0.25, np.float32)
    drawn = definition("Bernoulli")(p, stream=Stream(3), types=types("Bool"))
    assert abs(drawn.mean() - 0.25) < 0.02
