"""Recurrent layers: LSTM and RNN as MegEngine's operators, GRU and projections step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...graph import params as P
from ...layers import emit as e
from ...layers import nn as F
from ...layers.emit import M
from ...layers.shared import nn as build
from ...tensors import Tensor
from ...tensors.access import static_shape
from ..call import FxCall
from ..registry import UnsupportedCallError, aten
from ..values import as_array, as_tensor

_Weights = Sequence[Sequence[Any]]


def _cells(params: Sequence[Any], layers: int, both: bool) -> list[list[Tensor]]:
    """Group the weights of every layer and direction: input, hidden, the two biases and the projection if any."""
    count = layers * (2 if both else 1)
    each = len(params) // count
    return [[as_tensor(p) for p in params[i * each : (i + 1) * each]] for i in range(count)]


def _flat(cells: _Weights) -> Tensor:
    """Pack all weights side by side, as MegEngine's operators take them."""
    return e.concat([e.flat(w) for cell in cells for w in cell], 0)


def _time_and_batch_swapped(x: Any) -> Any:
    return e.permute(as_tensor(x), (1, 0, 2))


def _checked(
    biased: bool, layers: int, dropout: float, train: bool, both: bool, batch_first: bool
) -> tuple[bool, int, bool, bool]:
    """Return what matters of the options of a recurrent layer; dropout does not."""
    if train and dropout:
        raise UnsupportedCallError("dropout between layers in training; call .eval() first")
    return biased, layers, both, batch_first


def _laid_out(call: FxCall, batch_first: bool, x: Any, *states: Any) -> tuple[Any, ...]:
    """Return whether there is no batch, the input (steps, N, features) and the states (layers, N, hidden)."""
    x, *tensors = map(as_tensor, (x, *states))
    if len(call.shape_of(0)) == 2:
        return True, *(e.add_axes(v, [1]) for v in (x, *tensors))
    return False, _time_and_batch_swapped(x) if batch_first else x, *tensors


@aten("aten.lstm.input")
def lstm(call: FxCall, x: Any, states: Any, params: Any, *how: Any) -> Any:
    """Apply MegEngine's LSTM."""
    biased, layers, both, batch_first = _checked(*how)
    single, x, h, c = _laid_out(call, batch_first, x, *states)
    cells = _cells(params, layers, both)
    if len(cells[0]) > (4 if biased else 2):
        length = _length(call, batch_first, single, "an LSTM with projections")
        y, *states = _unrolled(x, (h, c), cells, 2 if both else 1, length, _projected_step)
        return _given_back(y, states, single, batch_first)
    hidden = int(static_shape(cells[0][1])[1])
    y, *states = build.layers(x, (h, c), _flat(cells), hidden, count=layers, both=both, biased=biased)
    return _given_back(y, states, single, batch_first)


def _given_back(y: Tensor, states: Sequence[Tensor], single: bool, batch_first: bool) -> Any:
    if single:
        return (e.drop_axes(y, [1]), *(e.drop_axes(s, [1]) for s in states))
    return (_time_and_batch_swapped(y) if batch_first else y, *states)


@aten("aten.rnn_tanh.input", "aten.rnn_relu.input")
def rnn(call: FxCall, x: Any, state: Any, params: Any, *how: Any) -> Any:
    """Apply MegEngine's RNN."""
    biased, layers, both, batch_first = _checked(*how)
    single, x, h = _laid_out(call, batch_first, x, state)
    cells = _cells(params, layers, both)
    kind = P.RNNCellNonlineMode.TANH if "tanh" in str(call.node.target) else P.RNNCellNonlineMode.RELU
    hidden = int(static_shape(cells[0][1])[1])
    y, *states = build.layers(
        x, (h,), _flat(cells), hidden, count=layers, both=both, biased=biased, mode=kind
    )
    return _given_back(y, states, single, batch_first)


@aten("aten.gru.input")
def gru(call: FxCall, x: Any, state: Any, params: Any, *how: Any) -> Any:
    """Unroll a gated recurrent unit: MegEngine has none, so every step is in the graph."""
    _, layers, both, batch_first = _checked(*how)
    single, x, h = _laid_out(call, batch_first, x, state)
    length = _length(call, batch_first, single, "a GRU")
    cells = _cells(params, layers, both)
    y, last = _unrolled(x, (h,), cells, 2 if both else 1, length, _gru_step)
    return _given_back(y, (last,), single, batch_first)


def _length(call: FxCall, batch_first: bool, single: bool, what: str) -> int:
    shape = call.shape_of(0)
    places = shape[1:2] if batch_first and not single else shape[:1]
    return call.static(places, f"the number of steps of {what}")[0]


def _unrolled(
    x: Tensor,
    states: Sequence[Tensor],
    cells: _Weights,
    directions: int,
    length: int,
    step: Callable[[Any, Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]],
) -> list[Tensor]:
    """Record every step of all layers.

    Args:
        x: (steps, N, features).
        states: (layers * directions, N, ...) each.
        cells: the weights of each layer and direction.
        directions: 2 if every layer goes through the steps backwards, too.
        length: the number of steps.
        step: the next states of the gates that the input adds to, the states, and the weights but that of the input.

    Returns:
        the first state at every step, of both directions side by side, then the last states.
    """
    layer = x
    last: list[list[Tensor]] = [[] for _ in states]
    for first in range(0, len(cells), directions):
        outs = []
        for d in range(directions):
            weight, *rest = cells[first + d]
            fed = as_array(F.linear(layer, weight, rest[1] if len(rest) > 2 else None))
            now: Sequence[Tensor] = [as_tensor(as_array(s)[first + d]) for s in states]
            kept: dict[int, Tensor] = {}
            for t in range(length - 1, -1, -1) if d else range(length):
                now = step(fed[t], now, rest)
                kept[t] = e.add_axes(now[0], [0])
            for ends, value in zip(last, now, strict=True):
                ends.append(e.add_axes(as_tensor(value), [0]))
            outs.append(e.concat([kept[t] for t in range(length)], 0))
        layer = e.concat(outs, 2)
    return [layer, *(e.concat(ends, 0) for ends in last)]


def _projected_step(fed: Any, states: Sequence[Tensor], rest: Sequence[Tensor]) -> list[Tensor]:
    """Compute the new states of an LSTM from the input's gates (N, 4 * hidden): input, forget, cell, output."""
    h, c = states
    gates = fed + as_array(F.linear(h, rest[0], rest[2] if len(rest) > 2 else None))
    n = int(static_shape(rest[-1])[1])
    i, f, g, o = (as_tensor(gates[..., k * n : (k + 1) * n]) for k in range(4))
    new = as_array(F.sigmoid(f)) * as_array(c) + as_array(F.sigmoid(i)) * as_array(F.tanh(g))
    return [F.linear(as_tensor(as_array(F.sigmoid(o)) * np.tanh(new)), rest[-1], None), as_tensor(new)]


def _gru_step(fed: Any, states: Sequence[Tensor], rest: Sequence[Tensor]) -> list[Tensor]:
    """Compute the new state from the input's gates (N, 3 * hidden): reset, update, new."""
    gates = as_array(F.linear(states[0], rest[0], rest[2] if len(rest) > 1 else None))
    n = int(static_shape(rest[0])[1])
    input_gates, carried = ([as_tensor(v[..., i * n : (i + 1) * n]) for i in (1, 0, 2)] for v in (fed, gates))
    update, reset = (F.sigmoid(e.elem(M.ADD, input_gates[i], carried[i])) for i in (0, 1))
    fresh = F.tanh(e.elem(M.ADD, input_gates[2], e.elem(M.MUL, reset, carried[2])))
    return [e.elem(M.ADD, fresh, e.elem(M.MUL, update, e.elem(M.SUB, states[0], fresh)))]
