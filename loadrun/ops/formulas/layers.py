"""Attention, softmax, normalizations and recurrent layers."""

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ...graph.params import (
    MultiHeadAttnAttnMaskType as Mask,
    MultiHeadAttnTensorCombinationType as Extra,
    RNNCellNonlineMode,
)
from ..elemwise.formulas import Formula, relu, sigmoid
from ..registry import Call


def softmax(c: Call, x: Array) -> Array | None:
    """Normalize exponentials along an axis."""
    return softmax_of(x, c.get(P.Softmax).axis) if x.size else None


def softmax_of(x: Array, axis: int) -> Array:
    """Compute ``exp(x) / sum(exp(x))`` along an axis.

    >>> softmax_of(np.log([1.0, 3.0]), 0).round(12).tolist()
    [0.25, 0.75]
    """
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _f32(x: float) -> float:
    """Round a parameter to float32, as the file stores it."""
    return float(np.float32(x))


def _normalized(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    """Give ``(x - mean) / sqrt(variance + eps)``, mean and variance, which keep the axes with size 1."""
    mean = x.mean(axes, keepdims=True)
    variance = np.square(x - mean).mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps), mean, variance


def layer_norm(c: Call, x: Array, *affine: Array) -> tuple[Array, Array, Array] | None:
    """Normalize over the last axes."""
    p = c.get(P.LayerNorm)
    return _over(x, x.ndim - p.normalized_dim, x.ndim, _f32(p.eps), affine if p.affine else ())


def general_norm(c: Call, x: Array, *affine: Array) -> tuple[Array, Array, Array] | None:
    """Normalize over the axes from `axis_start` to `axis_end`."""
    p = c.get(P.GeneralNorm)
    return _over(x, p.axis_start, p.axis_end, _f32(p.eps), affine if p.affine else ())


def _over(
    x: Array, start: int, end: int, eps: float, affine: tuple[Array, ...]
) -> tuple[Array, Array, Array] | None:
    """Normalize over neighbouring axes; mean and inverse deviation come without them."""
    if not x.size:
        return None
    y, mean, variance = _normalized(x, tuple(range(start, end)), eps)
    rest = (*x.shape[:start], *x.shape[end:]) or (1,)
    if affine:
        weight, bias = (a.reshape(*a.shape, *(1,) * (x.ndim - end)) for a in affine)
        y = y * weight + bias
    return y, mean.reshape(rest), (1 / np.sqrt(variance + eps)).reshape(rest)


def group_norm(c: Call, x: Array, *affine: Array) -> tuple[Array, Array, Array] | None:
    """Normalize groups of channels of NCHW images; InstanceNorm has one channel a group."""
    p = c.get(P.GroupNorm)
    if not x.size:
        return None
    n, channels = x.shape[:2]
    groups = channels if c.opr.type == "InstanceNorm" else p.group
    y, mean, variance = _normalized(x.reshape(n, groups, -1), (2,), _f32(p.eps))
    y = y.reshape(x.shape)
    if p.affine:
        weight, bias = (a.reshape(-1, 1, 1) for a in affine)
        y = y * weight + bias
    return y, mean[..., 0], variance[..., 0]


def batch_norm(c: Call, x: Array, scale: Array, bias: Array, *running: Array) -> tuple[Array, ...] | None:
    """Normalize with the running statistics or, in training, with those of the batch."""
    p = c.get(P.BN)
    if p.fwd_mode == P.BNFwdMode.INFERENCE:
        mean, variance = running
        moved: tuple[Array, ...] = ()
    else:
        axes = tuple(i for i, n in enumerate(scale.shape) if n == 1)
        count = x.size // max(1, scale.size)
        if count < 2:
            return None
        _, mean, variance = _normalized(x, axes, 0)
        # The running variance is unbiased: divided by one less.
        batch = mean, variance * count / (count - 1)
        moved = tuple((1 - p.avg_factor) * a + p.avg_factor * b for a, b in zip(running, batch, strict=False))
    rstd = 1 / np.sqrt(variance + _f32(p.epsilon))
    return *moved, mean, rstd, np.empty(0, np.uint8), (x - mean) * rstd * scale + bias


def lrn(c: Call, x: Array) -> Array:
    """Divide by a power of the sum of squares over the channels around each one (NCHW)."""
    p = c.get(P.LRN)
    half = min(p.n // 2, x.shape[1])
    square = np.pad(x * x, ((0, 0), (half, half), (0, 0), (0, 0)))
    total = np.lib.stride_tricks.sliding_window_view(square, 2 * half + 1, 1).sum(-1)
    return np.asarray(x * (_f32(p.k) + _f32(p.alpha) * total) ** -_f32(p.beta))


def projections(p: P.MultiHeadAttn, flat: Array) -> dict[str, tuple[Array | None, Array | float]]:
    """Cut the flat weight into matrix and bias of query, key, value and output: all matrices, then all biases."""
    flat, at = flat.reshape(-1), 0
    back = p.vproj_size or p.v_size * p.num_heads
    sides = (
        ("q", p.embeding_size, p.qproj_size, p.qbias),
        ("k", p.k_size, p.kproj_size, p.kbias),
        ("v", p.v_size, p.vproj_size, p.vbias),
        ("o", back, p.oproj_size, p.obias),
    )
    matrices: dict[str, Array | None] = {}
    weights: dict[str, tuple[Array | None, Array | float]] = {}
    for side, rows, size, _ in sides:
        matrices[side] = flat[at : at + rows * size].reshape(rows, size) if size else None
        at += rows * size
    for side, _, size, biased in sides:
        count = size * biased
        weights[side] = matrices[side], flat[at : at + count] if count else 0.0
        at += count
    return weights


def _projected(x: Array, by: tuple[Array | None, Array | float]) -> Array:
    return x if by[0] is None else x @ by[0] + by[1]


def _heads_of(x: Array, projected: bool, heads: int) -> Array:
    """Give [N, heads, length, size]; what was not projected serves every head."""
    n, length, size = x.shape
    if not projected:
        return np.broadcast_to(x[:, None], (n, heads, length, size))
    return x.reshape(n, length, heads, size // heads).swapaxes(1, 2)


def _longer(x: Array, row: Array | None, zero: bool) -> Array:
    """Append a given row and one of zeros to the keys or values of every sample."""
    n, _, size = x.shape
    more = [] if row is None else [np.broadcast_to(row, (n, 1, size))]
    return np.concatenate([x, *more, *[np.zeros_like(x[:, :1])] * zero], 1)


def _added_mask(p: P.MultiHeadAttn, mask: Array | None, scores: Array) -> Array | float:
    """Give what is added to the scores; without an input the default mask hides later keys."""
    if p.attn_mask_type not in (Mask.DEFAULT_MASK, Mask.USER_DEFINED_MASK):
        return 0.0
    if mask is None:
        return np.triu(np.full_like(scores[0, 0], -np.inf), 1)
    return mask if mask.ndim == 2 else mask.reshape(scores.shape)


def attention(
    c: Call, query: Array, key: Array, value: Array, weight: Array, *extra: Array
) -> tuple[Array, ...] | None:
    """Attend to keys and values; dropout in training has no formula."""
    made = attended(c, query, key, value, weight, *extra)
    if made is None or not query.size or not key.size:
        return None
    p = c.get(P.MultiHeadAttn)
    size = p.vproj_size // p.num_heads or p.v_size
    return *made, np.zeros(0, np.uint8), np.zeros(_reserve(p, query, key, size))


def attended(
    c: Call,
    query: Array,
    key: Array,
    value: Array,
    weight: Array,
    *extra: Array,
    softmax: Callable[[Array, int], Array] = softmax_of,
) -> tuple[Array, Array] | None:
    """Give the output and the weights of the keys; None for dropout in training, or a mask that is missing."""
    p = c.get(P.MultiHeadAttn)
    kind = p.tensor_combination_type
    mask = extra[0] if kind in (Extra.ONLY_MASK, Extra.ALL) else None
    if (p.training and (p.attn_prob or p.out_prob)) or (
        p.attn_mask_type == Mask.USER_DEFINED_MASK and mask is None
    ):
        return None
    rows = extra[-2:] if kind in (Extra.ONLY_BIASKV, Extra.ALL) else (None, None)
    by = projections(p, weight)
    k, v = (
        _longer(_projected(x, by[s]), r, p.add_zero_attn)
        for x, s, r in zip((key, value), "kv", rows, strict=True)
    )
    q, k, v = (
        _heads_of(x, size > 0, p.num_heads)
        for x, size in ((_projected(query, by["q"]), p.qproj_size), (k, p.kproj_size), (v, p.vproj_size))
    )
    scores = q @ k.swapaxes(2, 3) * float(np.float32(p.sm_scaler))
    attn = softmax(scores + _added_mask(p, mask, scores), 3)
    out = (attn @ v).swapaxes(1, 2)
    n, length, heads, size = out.shape
    out = _projected(out.reshape(n, length, heads * size), by["o"])
    return out, attn.reshape(n * heads, length, -1)


def _reserve(p: P.MultiHeadAttn, query: Array, key: Array, value: int) -> int:
    """Count the elements that MegEngine keeps for the gradient, and one to align them."""
    many, rows = p.num_heads > 1, len(query) * p.num_heads
    pieces = (
        rows * query.shape[1] * (p.qproj_size // p.num_heads or p.embeding_size) * (many or p.qproj_size > 0),
        rows * key.shape[1] * (p.kproj_size // p.num_heads or p.k_size) * (many or p.kproj_size > 0),
        rows * key.shape[1] * value * (many or p.vproj_size > 0),
        rows * query.shape[1] * value * (p.oproj_size > 0),
    )
    return sum(pieces) + 1 if any(pieces) else 0


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
