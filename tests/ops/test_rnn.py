"""Recurrent operators against recorded numbers of MegEngine 1.13 and a plain float64 loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import EngineError
from loadrun.graph import Opr
from loadrun.graph.dtypes import DType
from loadrun.graph.params import LSTM, RNN, Record, RNNCell, RNNCellNonlineMode
from loadrun.ops.registry import Call, implementation
from tests.support.nn_cases import load, record_of, run

CASES = load("rnn")
TOLERANCE = {"float32": 2e-6, "float16": 3e-3}


@pytest.mark.parametrize("name", CASES)
def test_recorded(name: str) -> None:
    case = CASES[name]
    kind, params = record_of(case)
    outs = run(kind, (params,), *case["ins"])
    stack = kind in ("RNNForward", "LSTMForward")
    for i, (got, want) in enumerate(zip(outs, case["outs"], strict=True)):
        assert got.dtype == want.dtype
        assert got.shape == want.shape, i
        if stack and i == len(outs) - 1:
            # Only the states in front were written, the rest of MegEngine's reserve is what was in memory.
            used = want.size // want.itemsize
            got, want = got[:used], want[:used]
        tol = TOLERANCE[case["dtype"]]
        np.testing.assert_allclose(
            got.astype("f8"), want.astype("f8"), rtol=tol, atol=tol, err_msg=f"output {i}"
        )


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(("bias", "hidden"), [(False, 5), (True, 5), (True, 1), (True, 2)])
def test_lstm_in_float64(both: bool, bias: bool, hidden: int) -> None:
    """Weights drawn one by one and then packed; gates i, f, g, o."""
    rng = np.random.default_rng(0)
    t, n, size, layers, d = 4, 2, 3, 2, 1 + both
    x = rng.standard_normal((t, n, size))
    h0, c0 = (rng.standard_normal((layers * d, n, hidden)) for _ in range(2))
    packed = []
    want, last_h, last_c = x, [], []
    for layer in range(layers):
        outs = []
        for k in range(d):
            w_ih = rng.standard_normal((4, hidden, want.shape[2]))
            w_hh = rng.standard_normal((4, hidden, hidden))
            b = rng.standard_normal((2, 4, hidden)) * bias
            packed += [w_ih, w_hh] + [b] * bias
            h, c = h0[layer * d + k], c0[layer * d + k]
            out = np.empty((t, n, hidden))
            for step in range(t)[:: -1 if k else 1]:
                i, f, g, o = (want[step] @ w_ih[j].T + h @ w_hh[j].T + b[:, j].sum(0) for j in range(4))
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
                out[step] = h
            last_h.append(h)
            last_c.append(c)
            outs.append(out)
        want = np.concatenate(outs, 2)
    flat = np.concatenate([p.ravel() for p in packed]).astype("f4").reshape(4 * hidden, -1)
    p = LSTM(num_layers=layers, bidirectional=both, bias=bias, hidden_size=hidden)
    y, h, c, reserve = run("LSTMForward", (p,), x.astype("f4"), h0.astype("f4"), c0.astype("f4"), flat)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(h, last_h, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(c, last_c, rtol=1e-4, atol=1e-5)
    assert reserve.shape == (2 * layers * d * t * n * hidden * 4,)


def test_rnn_by_hand() -> None:
    """h = relu(2 x + 3 h + 0.5 + 0.25), two steps of one unit."""
    x = np.array([1, -4], "f4").reshape(2, 1, 1)
    p = RNN(hidden_size=1, nonlineMode=RNNCellNonlineMode.RELU)
    weights = np.array([[2, 3, 0.5, 0.25]], "f4")
    y, h, reserve = run("RNNForward", (p,), x, np.ones((1, 1, 1), "f4"), weights)
    assert y.ravel().tolist() == [5.75, 10]
    assert h.ravel().tolist() == [10]
    assert reserve.tolist() == [5.75, 10, 0, 0, 0, 0, 0, 0]


def test_constant_weights_are_kept_apart_by_input_size() -> None:
    c = Call(
        Opr("RNNForward", (RNN(hidden_size=1, bias=False),)), (DType("Float32"),) * 3, (DType("Float32"),) * 3
    )
    c.const = (False, False, True)
    weights = np.array([[2, 3]], "f4")
    kernel = implementation("RNNForward").kernel
    first = [a.copy() for a in kernel(c, np.ones((3, 1, 1), "f4"), np.ones((1, 1, 1), "f4"), weights)]
    again = kernel(c, np.ones((3, 1, 1), "f4"), np.ones((1, 1, 1), "f4"), weights)
    assert c.memo
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="the weights must have 3 elements"):
        kernel(c, np.ones((3, 1, 2), "f4"), np.ones((1, 1, 1), "f4"), weights)


@pytest.mark.parametrize(("t", "n"), [(0, 2), (2, 0)])
def test_arrays_without_elements(t: int, n: int) -> None:
    x, h = np.ones((t, n, 3), "f4"), np.ones((1, n, 2), "f4")
    y, last, reserve = run("RNNForward", (RNN(hidden_size=2, bias=False),), x, h, np.ones((2, 5), "f4"))
    assert y.shape == (t, n, 2)
    assert last.tolist() == h.tolist()
    assert reserve.size == 0


def cell(gates: int, **changed: tuple[int, ...]) -> list[tuple[int, ...]]:
    shapes = {"x": (2, 3), "w_ih": (4 * gates, 3), "b_ih": (4 * gates,), "h": (2, 4), "w_hh": (4 * gates, 4)}
    shapes["b_hh"] = (4 * gates,)
    if gates == 4:
        shapes["c"] = (2, 4)
    return list({**shapes, **changed}.values())


@pytest.mark.parametrize(
    ("kind", "params", "shapes", "text"),
    [
        ("RNNCellForward", RNNCell(), cell(1, x=(2, 4)), "weights must be [4, 4] and [4, 4], found [4, 3]"),
        ("RNNCellForward", RNNCell(), cell(1, h=(3, 4)), "of one batch, found [2, 3] and [3, 4]"),
        ("RNNCellForward", RNNCell(), cell(1, b_hh=(3,)), "biases must have 4 elements, found [3]"),
        ("LSTMCellForward", RNNCell(), cell(4, w_hh=(4, 4)), "weights must be [16, 3] and [16, 4]"),
        ("LSTMCellForward", RNNCell(), cell(4, c=(2, 3)), "hidden state's shape [2, 4], found [2, 3]"),
        ("RNNForward", RNN(hidden_size=2), [(3, 1), (1, 1, 2), (2, 7)], "the input must be [time, batch, size]"),
        ("RNNForward", RNN(hidden_size=2), [(3, 1, 3), (2, 1, 2), (2, 7)], "= [1, 1, 2], found [2, 1, 2]"),
        ("RNNForward", RNN(hidden_size=2), [(3, 1, 3), (1, 1, 2), (2, 6)], "must have 14 elements, found 12 [2, 6]"),
        ("RNNForward", RNN(hidden_size=0), [(3, 1, 3), (1, 1, 0), (2, 6)], "1 layers of 0 hidden units"),
        ("LSTMForward", LSTM(num_layers=0, hidden_size=2), [(3, 1, 3), (0, 1, 2), (0, 1, 2), (8, 5)], "0 layers of 2"),
        ("RNNForward", RNN(num_layers=2**31, hidden_size=2**31), [(3, 1, 3), (1, 1, 2), (2, 7)], "found [1, 1, 2]"),
    ],
)  # fmt: skip
def test_refusals(kind: str, params: Record, shapes: list[tuple[int, ...]], text: str) -> None:
    with pytest.raises(EngineError) as e:
        run(kind, (params,), *(np.ones(s, "f4") for s in shapes))
    assert text in str(e.value)


def test_refused_dtypes() -> None:
    arrays = [np.ones(s, "f4") for s in cell(1)]
    with pytest.raises(EngineError, match="one dtype, Float32 or Float16 or Float64, found Float32, Float16"):
        run("RNNCellForward", (RNNCell(),), arrays[0], *(a.astype("f2") for a in arrays[1:]))
    with pytest.raises(EngineError, match="found BFloat16"):
        run("RNNCellForward", (RNNCell(),), *arrays, dtype="BFloat16")
