"""Recurrent cells and stacks of them, one time step after the other."""

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ...graph.params import RNNCellNonlineMode
from ..elemwise.formulas import Formula, relu, sigmoid
from ..registry import Call

Step = Callable[[Array, Sequence[Array]], tuple[Array, ...]]
_ACTIVATE: dict[RNNCellNonlineMode, Formula] = {
    RNNCellNonlineMode.IDENTITY: lambda x: x,
    RNNCellNonlineMode.RELU: relu,
    RNNCellNonlineMode.TANH: np.tanh,
}


def _gates(x: Array, w_ih: Array, b_ih: Array, h: Array, w_hh: Array, b_hh: Array) -> Array:
    return x @ w_ih.T + b_ih.reshape(-1) + h @ w_hh.T + b_hh.reshape(-1)


def _lstm_step(
    gates: Array, states: Sequence[Array], sigmoid: Callable[[Array], Array] = sigmoid
) -> tuple[Array, ...]:
    """Give new hidden and cell states; the gates are in the order input, forget, cell, output."""
    i, f, g, o = np.split(gates, 4, 1)
    cell = sigmoid(f) * states[1] + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


def rnn_cell(c: Call, *inputs: Array) -> Array:
    """Step a simple cell: ``act(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh)``."""
    return _ACTIVATE[c.get(P.RNNCell).nonlineMode](_gates(*inputs))


def lstm_cell(c: Call, *inputs: Array, sigmoid: Callable[[Array], Array] = sigmoid) -> tuple[Array, ...]:
    """Step an LSTM cell; the third output is the gates, whose memory is [4, N, hidden], as in MegEngine."""
    gates = _gates(*inputs[:6])
    kept = gates.reshape(gates.shape[0], 4, -1).swapaxes(0, 1).reshape(gates.shape)
    return *_lstm_step(gates, (inputs[3], inputs[6]), sigmoid), kept


def rnn(c: Call, x: Array, h: Array, weights: Array) -> tuple[Array, ...] | None:
    """Run layers of simple cells over all time steps."""
    p = c.get(P.RNN)
    return _stack(p, 1, x, (h,), weights, lambda gates, _: (np.asarray(_ACTIVATE[p.nonlineMode](gates)),))


def lstm(c: Call, x: Array, h: Array, cell: Array, weights: Array) -> tuple[Array, ...] | None:
    """Run layers of LSTM cells over all time steps."""
    return _stack(c.get(P.LSTM), 4, x, (h, cell), weights, _lstm_step)


def _stack(
    p: P.RNN | P.LSTM, gates: int, x: Array, states: tuple[Array, ...], weights: Array, step: Step
) -> tuple[Array, ...] | None:
    """Give the last layer's states, the last states of all cells, and the reserve.

    The reserve holds all states in the order in which they are computed, then zeros: MegEngine takes a number of bytes
    for one of elements.
    """
    if not len(x):
        return None
    width, directions = gates * p.hidden_size, 2 if p.bidirectional else 1
    flat = weights.reshape(-1)
    history: list[Array] = []
    last: list[tuple[Array, ...]] = []
    for layer in range(p.num_layers):
        sides = []
        for d in range(directions):
            parts = [(width, x.shape[2]), (width, p.hidden_size)] + [(width,)] * (2 * p.bias)
            ends = np.cumsum([prod(shape) for shape in parts])
            taken = np.split(flat[: ends[-1]], ends[:-1])
            w_ih, w_hh, *biases = (a.reshape(shape) for a, shape in zip(taken, parts, strict=True))
            flat, now, out = flat[ends[-1] :], tuple(s[layer * directions + d] for s in states), []
            zero = np.zeros(width)
            b_ih, b_hh = biases or (zero, zero)
            for at in x[::-1] if d else x:
                now = step(_gates(at, w_ih, b_ih, now[0], w_hh, b_hh), now)
                out.append(now[0])
                history.extend(now)
            last.append(now)
            sides.append(np.stack(out[::-1] if d else out))
        x = np.concatenate(sides, 2)
    kept = np.concatenate(history, None)
    reserve = np.concatenate((kept, np.zeros(kept.size * (np.float32().itemsize - 1))))
    return x, *(np.stack(s) for s in zip(*last, strict=True)), reserve
