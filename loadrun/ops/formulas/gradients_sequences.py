"""Gradients of recurrent layers and of attention."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ...graph.params import MultiHeadAttnTensorCombinationType as Extra
from ...graph.params import RNNCellNonlineMode
from ..elemwise.formulas import relu, sigmoid
from ..registry import Call
from .attention import added_mask, heads_of, projections
from .norm import softmax_of

__all__ = ["attention", "lstm", "rnn"]


class _Step(NamedTuple):
    """One step of a cell: what it read, the new states (hidden first), and the way back from their gradients.

    `back` gives the gradients of the gates' values and of the old states after the hidden one.
    """

    x: Array
    hidden: Array
    states: tuple[Array, ...]
    back: Callable[[tuple[Array, ...]], tuple[Array, tuple[Array, ...]]]


Cell = Callable[
    [Array, tuple[Array, ...]], tuple[tuple[Array, ...], Callable[..., tuple[Array, tuple[Array, ...]]]]
]


def rnn(
    c: Call, x: Array, y: Array, h: Array, dy: Array, dh: Array, weights: Array, reserve: Array
) -> tuple[Array, ...] | None:
    """Go back through the time of simple cells."""
    mode = c.get(P.RNN).nonlineMode

    def cell(
        gates: Array, states: tuple[Array, ...]
    ) -> tuple[tuple[Array, ...], Callable[..., tuple[Array, tuple[Array, ...]]]]:
        if mode == RNNCellNonlineMode.IDENTITY:
            return (gates,), lambda grads: (grads[0], ())
        if mode == RNNCellNonlineMode.RELU:
            return (np.asarray(relu(gates)),), lambda grads: (grads[0] * (gates > 0), ())
        return (np.tanh(gates),), lambda grads: (grads[0] / np.cosh(gates) ** 2, ())

    return _stack(c.get(P.RNN), 1, x, (h,), weights, dy, (dh,), cell)


def lstm(
    c: Call,
    x: Array,
    y: Array,
    h: Array,
    memory: Array,
    dy: Array,
    dh: Array,
    dc: Array,
    weights: Array,
    reserve: Array,
) -> tuple[Array, ...] | None:
    """Go back through the time of LSTM cells."""

    def cell(
        gates: Array, states: tuple[Array, ...]
    ) -> tuple[tuple[Array, ...], Callable[..., tuple[Array, tuple[Array, ...]]]]:
        i, f, g, o = np.split(gates, 4, 1)
        opened = [np.asarray(sigmoid(a)) for a in (i, f, o)]
        fresh = np.tanh(g)
        new = opened[1] * states[1] + opened[0] * fresh

        def back(grads: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
            by_new = grads[1] + grads[0] * opened[2] / np.cosh(new) ** 2
            by = (by_new * fresh, by_new * states[1], grads[0] * np.tanh(new))
            by_i, by_f, by_o = (g * s * (1 - s) for g, s in zip(by, opened, strict=True))
            by_gates = np.concatenate((by_i, by_f, by_new * opened[0] / np.cosh(g) ** 2, by_o), 1)
            return by_gates, (by_new * opened[1],)

        return (opened[2] * np.tanh(new), new), back

    return _stack(c.get(P.LSTM), 4, x, (h, memory), weights, dy, (dh, dc), cell)


def _stack(
    p: P.RNN | P.LSTM,
    gates: int,
    x: Array,
    states: tuple[Array, ...],
    weights: Array,
    dy: Array,
    last: tuple[Array, ...],
    cell: Cell,
) -> tuple[Array, ...] | None:
    """Give gradients by input, first states and weights."""
    if not len(x):
        return None
    width, ways = gates * p.hidden_size, 2 if p.bidirectional else 1
    flat = weights.reshape(-1)
    layers: list[list[tuple[Array, Array, list[_Step]]]] = []
    for layer in range(p.num_layers):
        sides = []
        for d in range(ways):
            shapes = [(width, x.shape[2]), (width, p.hidden_size)] + [(width,)] * (2 * p.bias)
            ends = np.cumsum([prod(s) for s in shapes])
            w_ih, w_hh, *biases = (
                a.reshape(s) for a, s in zip(np.split(flat[: ends[-1]], ends[:-1]), shapes, strict=True)
            )
            flat, now, steps = flat[ends[-1] :], tuple(s[layer * ways + d] for s in states), []
            for at in x[::-1] if d else x:
                new, back = cell(at @ w_ih.T + now[0] @ w_hh.T + sum(biases), now)
                steps.append(_Step(at, now[0], new, back))
                now = new
            sides.append((w_ih, w_hh, steps))
        layers.append(sides)
        outs = [[s.states[0] for s in steps] for _, _, steps in sides]
        x = np.concatenate([np.stack(out[::-1] if d else out) for d, out in enumerate(outs)], 2)
    by_weights: list[Array] = []
    by_states: list[tuple[Array, ...]] = []
    for layer in range(p.num_layers - 1, -1, -1):
        backs = [
            _cell_back(layers[layer][d], grad, tuple(a[layer * ways + d] for a in last), d == 1, p.bias)
            for d, grad in enumerate(np.split(dy, ways, 2))
        ]
        dy = np.sum([b[0] for b in backs], 0)
        by_states = [b[1] for b in backs] + by_states
        by_weights = [b[2] for b in backs] + by_weights
    state_grads = (np.stack(s) for s in zip(*by_states, strict=True))
    return dy, *state_grads, np.concatenate(by_weights).reshape(weights.shape)


def _cell_back(
    side: tuple[Array, Array, list[_Step]], dy: Array, grads: tuple[Array, ...], turned: bool, bias: bool
) -> tuple[Array, tuple[Array, ...], Array]:
    """Give gradients by a cell's inputs, its first states and its weights, in one flat array."""
    w_ih, w_hh, steps = side
    by_ih, by_hh, by_bias = np.zeros(w_ih.shape), np.zeros(w_hh.shape), np.zeros(len(w_ih))
    by_x = []
    for step, out in zip(reversed(steps), dy if turned else dy[::-1], strict=True):
        gates, rest = step.back((grads[0] + out, *grads[1:]))
        by_ih += np.einsum("ng,ni->gi", gates, step.x)
        by_hh += np.einsum("ng,nh->gh", gates, step.hidden)
        by_bias += gates.sum(0)
        by_x.append(gates @ w_ih)
        grads = (gates @ w_hh, *rest)
    flat = [by_ih.reshape(-1), by_hh.reshape(-1), *[by_bias] * (2 * bias)]
    return np.stack(by_x if turned else by_x[::-1]), grads, np.concatenate(flat)


# ---- Attention


def attention(
    c: Call, diff: Array, query: Array, key: Array, value: Array, weight: Array, *rest: Array
) -> tuple[Array, ...] | None:
    """Go back through projection, mixing, softmax, scores and projections."""
    p = c.get(P.MultiHeadAttn)
    if (
        p.tensor_combination_type not in (Extra.NONE, Extra.ONLY_MASK)
        or p.add_zero_attn
        or not query.size * key.size
    ):
        return None
    *mask, _, kept, _ = rest
    by = projections(p, weight)
    sides = dict(zip("qkv", (query, key, value), strict=True))
    q, k, v = (
        heads_of(x if by[s][0] is None else x @ by[s][0] + by[s][1], by[s][0] is not None, p.num_heads)
        for s, x in sides.items()
    )
    scale = float(np.float32(p.sm_scaler))
    scores = np.einsum("nhqd,nhkd->nhqk", q, k) * scale
    y = softmax_of(scores + added_mask(p, mask[0] if mask else None, scores.shape), 3)
    first = _factors(p, kept, 0, y.shape, p.attn_prob)
    mixed = np.einsum("nhqk,nhkd->nqhd", y * first, v)
    mixed = mixed.reshape(*mixed.shape[:2], -1)
    grad = diff * _factors(p, kept, -(-y.size // 4) * 4, diff.shape, p.out_prob)
    side_grads: dict[str, tuple[Array, Array]] = {}

    def back(side: str, x: Array, g: Array) -> Array:
        """Note the gradients by a projection's matrix and bias; give that by its input."""
        matrix = by[side][0]
        if matrix is None:
            return g
        side_grads[side] = np.einsum("nli,nlo->io", x, g), g.sum((0, 1))
        return g @ matrix.T

    def joined(side: str, g: Array) -> Array:
        """Undo the split into heads."""
        if by[side][0] is None:
            return g.sum(1)
        return np.moveaxis(g, 1, 2).reshape(len(g), g.shape[2], -1)

    grad = heads_of(back("o", mixed, grad), True, p.num_heads)
    by_y = np.einsum("nhqd,nhkd->nhqk", grad, v) * first
    by_scores = (y * by_y - y * np.einsum("nhqk,nhqk->nhq", y, by_y)[..., None]) * scale
    outs = [
        back("q", query, joined("q", np.einsum("nhqk,nhkd->nhqd", by_scores, k))),
        back("k", key, joined("k", np.einsum("nhqk,nhqd->nhkd", by_scores, q))),
        back("v", value, joined("v", np.einsum("nhqk,nhqd->nhkd", y * first, grad))),
    ]
    biased = {"q": p.qbias, "k": p.kbias, "v": p.vbias, "o": p.obias}
    flat = [side_grads[s][0] for s in "qkvo" if s in side_grads] + [
        side_grads[s][1] for s in "qkvo" if s in side_grads and biased[s]
    ]
    return (
        *outs,
        np.concatenate([np.zeros(0), *(a.reshape(-1) for a in flat)]).reshape(weight.shape),
        *[np.zeros(0)] * 2,
    )


def _factors(
    p: P.MultiHeadAttn, kept: Array, start: int, shape: tuple[int, ...], prob: float
) -> Array | float:
    """Give what dropout multiplied with, from the bytes that it kept."""
    if not p.training:
        return 1.0
    taken = kept.reshape(-1)[start : start + prod(shape)].reshape(shape) != 0
    return taken / (1 - float(np.float32(prob)))
