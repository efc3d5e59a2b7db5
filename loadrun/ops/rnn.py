"""Recurrent networks: RNN and LSTM cells, and whole stacks of layers (MegEngine dnn naive rnn, lstm and their cells).

The four gates of an LSTM are in the order input, forget, cell, output along the 4 * hidden axis. float16 is
computed in float32 and rounded after each operation; matrix products are summed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from ..graph import Opr
from ..graph.dtypes import Array, DType
from ..graph.params import LSTM, RNN, RNNCell, RNNCellNonlineMode
from .numeric.special import round_half
from .registry import Call, Shape, ShapeCall, alike, kernel

Rounding = Callable[[Array], Array]
Step = Callable[[Array, list[Array]], list[Array]]


class Weights(NamedTuple):
    """One cell's weights: input [in, gates], hidden [hidden, gates], and both biases [gates] (zero if absent)."""

    of_input: Array
    of_hidden: Array
    biases: tuple[Array, Array]


def _as_is(x: Array) -> Array:
    return x


def _as_half(x: Array) -> Array:
    return round_half(x).astype(np.float32)


def _rounding(dtype: DType) -> Rounding:
    return _as_half if dtype.name == "Float16" else _as_is


def _sigmoid(x: Array) -> Array:
    """Apply the sigmoid in place."""
    # NumPy 2.4 negates every fourth element wrongly where both arrays are strided, as a gate of one unit is.
    np.exp(np.multiply(x, np.float32(-1), out=x), out=x)
    x += 1
    return np.reciprocal(x, out=x)


def _nonlinear(mode: RNNCellNonlineMode, x: Array) -> Array:
    """Apply the nonlinearity in place."""
    if mode == RNNCellNonlineMode.RELU:
        return np.maximum(x, 0, out=x)
    return np.tanh(x, out=x) if mode == RNNCellNonlineMode.TANH else x


def _lstm_step(gates: Array, c: Array, r: Rounding) -> tuple[Array, Array]:
    """Compute the new hidden and cell state from the gates [N, 4 * hidden], which are overwritten."""
    n = c.shape[1]
    i, f, g, o = (gates[:, k * n : (k + 1) * n] for k in range(4))
    _sigmoid(gates[:, : 2 * n])
    np.tanh(g, out=g)
    _sigmoid(o)
    if r is not _as_is:
        gates[...] = r(gates)
    new = f * c
    new += np.multiply(i, g, out=i)
    new = r(new)
    return r(o * r(np.tanh(new))), new


# ---- single cells


def _cell_check(shapes: Sequence[Shape], gates: int) -> None:
    """Check and return the shapes of x, w_ih, b_ih, h, w_hh, b_hh and, for an LSTM, c."""
    x, w_ih, b_ih, h, w_hh, b_hh = shapes[:6]
    if len(x) != 2 or len(h) != 2 or h[0] != x[0]:
        raise ValueError(f"input and state must be [batch, size] of one batch, found {list(x)} and {list(h)}")
    hidden = h[1]
    wants = [(gates * hidden, x[1]), (gates * hidden, hidden)]
    if [w_ih, w_hh] != wants:
        raise ValueError(
            f"weights must be {list(wants[0])} and {list(wants[1])}, found {list(w_ih)} and {list(w_hh)}"
        )
    for b in (b_ih, b_hh):
        if prod(b) != gates * hidden or b[-1:] != (gates * hidden,):
            raise ValueError(f"biases must have {gates * hidden} elements, found {list(b)}")
    if shapes[6:] and shapes[6] != h:
        raise ValueError(
            f"the cell state must have the hidden state's shape {list(h)}, found {list(shapes[6])}"
        )


def _cell_gates(r: Rounding, x: Array, w_ih: Array, b_ih: Array, h: Array, w_hh: Array, b_hh: Array) -> Array:
    x, w_ih, b_ih, h, w_hh, b_hh = (a.astype(np.float32, copy=False) for a in (x, w_ih, b_ih, h, w_hh, b_hh))
    gates = r(r(h @ w_hh.T) + r(x @ w_ih.T))
    return r(r(gates + b_ih.reshape(-1)) + b_hh.reshape(-1))


def _rnn_cell_shape(s: ShapeCall) -> Sequence[Shape | None]:
    shapes = [s.shape(i) for i in range(6)]
    _cell_check(shapes, 1)
    return (shapes[3],)


def _cell_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return 2 * inputs[0][0] * (prod(inputs[1]) + prod(inputs[4]))


@kernel(
    "RNNCellForward", dtype=alike("Float32", "Float16", "Float64"), shape=_rnn_cell_shape, flops=_cell_flops
)
def rnn_cell(c: Call, *ins: Array) -> Array:
    """Compute ``act(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh)``, of shape [batch, hidden]."""
    _cell_check([a.shape for a in ins], 1)
    r = _rounding(c.inputs[0])
    out = _nonlinear(c.get(RNNCell).nonlineMode, _cell_gates(r, *ins))
    return out if r is _as_is else round_half(out)


def _lstm_cell_shape(s: ShapeCall) -> Sequence[Shape | None]:
    shapes = [s.shape(i) for i in range(7)]
    _cell_check(shapes, 4)
    n, hidden = shapes[3]
    return (n, hidden), (n, hidden), (n, 4 * hidden)


@kernel(
    "LSTMCellForward", dtype=alike("Float32", "Float16", "Float64"), shape=_lstm_cell_shape, flops=_cell_flops
)
def lstm_cell(c: Call, *ins: Array) -> tuple[Array, Array, Array]:
    """Run one LSTM step.

    Returns:
        new hidden and cell state [batch, hidden], and the gates before their activation: of shape
        [batch, 4 * hidden], while their memory is [4, batch, hidden], as MegEngine leaves it.
    """
    _cell_check([a.shape for a in ins], 4)
    r = _rounding(c.inputs[0])
    gates = _cell_gates(r, *ins[:6])
    n, hidden = ins[3].shape
    before = np.ascontiguousarray(gates.reshape(n, 4, hidden).transpose(1, 0, 2)).reshape(n, 4 * hidden)
    outs = (*_lstm_step(gates, ins[6].astype(np.float32, copy=False), r), before)
    return outs if r is _as_is else tuple(map(round_half, outs))  # type: ignore[return-value]


# ---- layers


def _stack_check(p: RNN | LSTM, shapes: Sequence[Shape], gates: int) -> None:
    """Check and return the shapes of x, h, (c) and weights."""
    x, *states, weights = shapes
    directions = 2 if p.bidirectional else 1
    if len(x) != 3:
        raise ValueError(f"the input must be [time, batch, size], found {list(x)}")
    if p.num_layers < 1 or p.hidden_size < 1:
        raise ValueError(f"{p.num_layers} layers of {p.hidden_size} hidden units are not possible")
    want = (p.num_layers * directions, x[1], p.hidden_size)
    for state in states:
        if state != want:
            raise ValueError(
                f"states must be [layers * directions, batch, hidden] = {list(want)}, found {list(state)}"
            )
    rows = directions * (x[2] + p.hidden_size)
    rows += (p.num_layers - 1) * directions * (directions + 1) * p.hidden_size
    rows += 2 * directions * p.num_layers if p.bias else 0
    count = prod(weights)
    if count != rows * gates * p.hidden_size:
        raise ValueError(
            f"the weights must have {rows * gates * p.hidden_size} elements, found {count} {list(weights)}"
        )


def _split_weights(p: RNN | LSTM, flat: Array, size: int, gates: int) -> list[Weights]:
    """Split the weights of every cell from their flat concatenation: layer by layer, forward before reverse."""
    width = gates * p.hidden_size
    directions = 2 if p.bidirectional else 1
    flat = flat.reshape(-1).astype(np.float32, copy=False)
    at = 0

    def take(*shape: int) -> Array:
        nonlocal at
        part = flat[at : at + prod(shape)].reshape(shape)
        at += part.size
        return part

    cells = []
    none = np.zeros(width, np.float32)
    for layer in range(p.num_layers):
        for _ in range(directions):
            w_ih = take(width, directions * p.hidden_size if layer else size)
            w_hh = take(width, p.hidden_size)
            biases = (take(width), take(width)) if p.bias else (none, none)
            cells.append(Weights(w_ih.T, np.ascontiguousarray(w_hh.T), biases))
    return cells


def _reserve_size(p: RNN | LSTM, x: Shape, states: int, dtype: DType) -> int:
    """Count the elements of the reserve: MegEngine takes its number of bytes for that."""
    directions = 2 if p.bidirectional else 1
    return states * p.num_layers * directions * x[0] * x[1] * p.hidden_size * (dtype.bits // 8)


def _run_stack(c: Call, p: RNN | LSTM, gates: int, ins: Sequence[Array], step: Step) -> tuple[Array, ...]:
    """Run all layers over all time steps; `step` makes new states from gate values and old states."""
    _stack_check(p, [a.shape for a in ins], gates)
    x, *states, weights = ins
    dtype = c.inputs[0]
    r = _rounding(dtype)
    cells: list[Weights] | None = c.memo.get(x.shape[2])
    if cells is None:
        cells = _split_weights(p, weights, x.shape[2], gates)
        if c.const and c.const[-1]:
            c.memo[x.shape[2]] = cells
    length, batch, _ = x.shape
    directions = 2 if p.bidirectional else 1
    hidden = p.hidden_size
    last = [np.empty(s.shape, np.float32) for s in states]
    reserve = np.zeros(_reserve_size(p, x.shape, len(states), dtype), x.dtype)
    steps = (len(cells), length, len(states), batch, hidden)
    kept = reserve[: prod(steps)].reshape(steps)
    layer = x.astype(np.float32, copy=False)
    for first in range(0, len(cells), directions):
        out = np.empty((length, batch, directions * hidden), np.float32)
        for d in range(directions):
            cell = cells[first + d]
            flat = layer.reshape(length * batch, layer.shape[2])
            fed = r((flat @ cell.of_input).reshape(length, batch, gates * hidden))
            if r is _as_is:
                fed += cell.biases[0] + cell.biases[1]
            now = [s[first + d].astype(np.float32, copy=False) for s in states]
            part = out[:, :, d * hidden : (d + 1) * hidden]
            for i in range(length):
                t = length - 1 - i if d else i
                values = r(now[0] @ cell.of_hidden)
                values += fed[t]
                if r is not _as_is:
                    values = r(r(r(values) + cell.biases[0]) + cell.biases[1])
                now = step(values, now)
                part[t] = now[0]
                for slot, state in zip(kept[first + d, i], now, strict=True):
                    slot[...] = state
            for final, state in zip(last, now, strict=True):
                final[first + d] = state
        layer = out
    return (*(a.astype(x.dtype, copy=False) for a in (layer, *last)), reserve)


def _stack_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return 2 * inputs[0][0] * inputs[0][1] * prod(inputs[-1])


def _rnn_shape(s: ShapeCall) -> Sequence[Shape | None]:
    p = s.get(RNN)
    x, h = s.shape(0), s.shape(1)
    _stack_check(p, [x, h, s.shape(2)], 1)
    directions = 2 if p.bidirectional else 1
    return (*x[:2], directions * p.hidden_size), h, (_reserve_size(p, x, 1, s.inputs[0]),)


@kernel("RNNForward", dtype=alike("Float32", "Float16", "Float64"), shape=_rnn_shape, flops=_stack_flops)
def rnn(c: Call, x: Array, h: Array, weights: Array) -> tuple[Array, ...]:
    """Run layers of simple recurrent cells.

    Args:
        c: the call.
        x: [time, batch, size].
        h: first states [layers * directions, batch, hidden].
        weights: all weights one after the other (`_split_weights`).

    Returns:
        the last layer's states [time, batch, directions * hidden], the last states like `h`, and the reserve:
        all states in the order they are computed, then zeros.
    """
    p = c.get(RNN)
    r = _rounding(c.inputs[0])

    def step(values: Array, states: list[Array]) -> list[Array]:
        return [r(_nonlinear(p.nonlineMode, values))]

    return _run_stack(c, p, 1, (x, h, weights), step)


def _lstm_shape(s: ShapeCall) -> Sequence[Shape | None]:
    p = s.get(LSTM)
    x, h = s.shape(0), s.shape(1)
    _stack_check(p, [x, h, s.shape(2), s.shape(3)], 4)
    directions = 2 if p.bidirectional else 1
    return (*x[:2], directions * p.hidden_size), h, h, (_reserve_size(p, x, 2, s.inputs[0]),)


@kernel("LSTMForward", dtype=alike("Float32", "Float16", "Float64"), shape=_lstm_shape, flops=_stack_flops)
def lstm(c: Call, x: Array, h: Array, cell: Array, weights: Array) -> tuple[Array, ...]:
    """Run layers of LSTM cells; `proj_size` and `dropout` have no effect, as in MegEngine's CPU kernels.

    Args:
        c: the call.
        x: [time, batch, size].
        h: first hidden states [layers * directions, batch, hidden].
        cell: first cell states, alike.
        weights: all weights one after the other (`_split_weights`).

    Returns:
        the last layer's hidden states [time, batch, directions * hidden], last hidden and cell states, and the
        reserve: hidden and cell states in the order they are computed, then zeros.
    """
    r = _rounding(c.inputs[0])

    def step(values: Array, states: list[Array]) -> list[Array]:
        return list(_lstm_step(values, states[1], r))

    return _run_stack(c, c.get(LSTM), 4, (x, h, cell, weights), step)
