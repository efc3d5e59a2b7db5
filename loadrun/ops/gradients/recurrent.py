"""Gradients of recurrent layers: back through time, from states that are computed again.

MegEngine's CPU kernels give wrong numbers for LSTM (they mix up the cell and the output gate) and for batches of
more than one in both directions; here they are the gradients of what the forward operators compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...graph import Opr
from ...graph import params as P
from ...graph.dtypes import Array
from ..registry import Call, Shape
from ..rnn import Weights, split_weights
from .common import gradient

__all__: list[str] = []

Step = Callable[[Array, list[Array]], tuple[list[Array], Array]]
"""Makes new states, hidden first, and what the way back needs, from gate values [N, gates] and old states."""
Back = Callable[[Array, list[Array], list[Array]], tuple[Array, list[Array]]]
"""Gives the gradients of the gate values and of the old states after the hidden one, from what `Step` kept, the old
states and the new states' gradients."""


def _flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return 6 * inputs[0][0] * inputs[0][1] * int(np.prod(outputs[-1]))


def _through(
    p: P.RNN | P.LSTM,
    gates: int,
    x: Array,
    states: Sequence[Array],
    weights: Array,
    dy: Array,
    last: Sequence[Array],
    step: Step,
    back: Back,
) -> tuple[Array, ...]:
    """Give the gradients by input, first states and weights, from those of the outputs and the last states."""
    cells = split_weights(p, weights, x.shape[2], gates)
    ways = 2 if p.bidirectional else 1
    layers = [x]
    kept = []
    for first in range(0, len(cells), ways):
        sides = [
            _forward(layers[-1][:: -1 if d else 1], [s[first + d] for s in states], cells[first + d], step)
            for d in range(ways)
        ]
        kept.append(sides)
        layers.append(np.concatenate([side[0][:: -1 if d else 1] for d, side in enumerate(sides)], 2))
    by_states = [np.empty(s.shape, np.float32) for s in states]
    by_weights: list[Array] = []
    for layer in range(len(kept) - 1, -1, -1):
        fed, total, parts = layers[layer], np.zeros(layers[layer].shape, np.float32), []
        for d, (cell, grad) in enumerate(zip(cells[layer * ways :], np.split(dy, ways, 2), strict=False)):
            turn = slice(None, None, -1 if d else 1)
            ends = [a[layer * ways + d] for a in last]
            by_gates, firsts = _backward(grad[turn], ends, cell, kept[layer][d][1], back)
            for to, a in zip(by_states, firsts, strict=True):
                to[layer * ways + d] = a
            rows = by_gates.reshape(-1, by_gates.shape[2])
            hidden = np.stack([before[0] for before, _ in kept[layer][d][1]]).reshape(len(rows), -1)
            total[turn] += (rows @ cell.of_input.T).reshape(fed.shape)
            parts += [rows.T @ fed[turn].reshape(len(rows), -1), rows.T @ hidden]
            parts += [rows.sum(0)] * (2 * p.bias)
        dy, by_weights = total, [a.reshape(-1) for a in parts] + by_weights
    return dy, *by_states, np.concatenate(by_weights).reshape(weights.shape)


def _forward(
    x: Array, now: list[Array], cell: Weights, step: Step
) -> tuple[Array, list[tuple[list[Array], Array]]]:
    """Run one cell over [time, N, size]; its hidden states, and the old states and what is kept of every step."""
    fed = x @ cell.of_input + (cell.biases[0] + cell.biases[1])
    kept = []
    for values in fed:
        before = now
        now, needed = step(values + before[0] @ cell.of_hidden, before)
        kept.append((before, needed, now[0]))
    return np.stack([a for _, _, a in kept]), [(before, needed) for before, needed, _ in kept]


def _backward(
    dy: Array, ends: list[Array], cell: Weights, kept: list[tuple[list[Array], Array]], back: Back
) -> tuple[Array, list[Array]]:
    """Go back through time; the gradients of all gate values [time, N, gates] and of the first states."""
    by_gates: list[Array] = []
    after = ends
    for grad, (before, needed) in zip(dy[::-1], reversed(kept), strict=True):
        values, rest = back(needed, before, [grad + after[0], *after[1:]])
        by_gates.append(values)
        after = [values @ cell.of_hidden.T, *rest]
    return np.stack(by_gates[::-1]), after


@gradient("RNNBackward", (0, 2, 5), of="RNNForward", by=(0, 2, 5), results={1: 0, 3: 0, 4: 1}, flops=_flops)
def rnn_backward(
    c: Call, x: Array, y: Array, h: Array, dy: Array, dh: Array, weights: Array, reserve: Array
) -> tuple[Array, ...]:
    """Give the gradients by input, first states and weights of layers of simple cells."""
    p = c.get(P.RNN)

    def step(values: Array, states: list[Array]) -> tuple[list[Array], Array]:
        if p.nonlineMode == P.RNNCellNonlineMode.RELU:
            values = np.maximum(values, 0)
        elif p.nonlineMode == P.RNNCellNonlineMode.TANH:
            values = np.tanh(values)
        return [values], values

    def back(new: Array, states: list[Array], grads: list[Array]) -> tuple[Array, list[Array]]:
        if p.nonlineMode == P.RNNCellNonlineMode.RELU:
            return np.where(new > 0, grads[0], np.float32(0)), []
        return grads[0] * (1 - new * new) if p.nonlineMode == P.RNNCellNonlineMode.TANH else grads[0], []

    return _through(p, 1, x, [h], weights, dy, [dh], step, back)


@gradient(
    "LSTMBackward",
    (0, 2, 3, 7),
    of="LSTMForward",
    by=(0, 2, 3, 7),
    results={1: 0, 4: 0, 5: 1, 6: 2},
    flops=_flops,
)
def lstm_backward(
    c: Call,
    x: Array,
    y: Array,
    h: Array,
    cell: Array,
    dy: Array,
    dh: Array,
    dc: Array,
    weights: Array,
    reserve: Array,
) -> tuple[Array, ...]:
    """Give the gradients by input, first hidden and cell states and weights of LSTM layers."""

    def step(values: Array, states: list[Array]) -> tuple[list[Array], Array]:
        i, f, g, o = np.split(values, 4, 1)
        i, f, o = (1 / (1 + np.exp(-a)) for a in (i, f, o))
        g = np.tanh(g)
        new = f * states[1] + i * g
        return [o * np.tanh(new), new], np.stack((i, f, g, o, np.tanh(new)))

    def back(needed: Array, states: list[Array], grads: list[Array]) -> tuple[Array, list[Array]]:
        i, f, g, o, out = needed
        by_cell = grads[1] + grads[0] * o * (1 - out * out)
        parts = (
            by_cell * g * i * (1 - i),
            by_cell * states[1] * f * (1 - f),
            by_cell * i * (1 - g * g),
            grads[0] * out * o * (1 - o),
        )
        return np.concatenate(parts, 1), [by_cell * f]

    return _through(c.get(P.LSTM), 4, x, [h, cell], weights, dy, [dh, dc], step, back)
