"""RNN and LSTM as MegEngine's operators for whole layers, which run sequences of any length."""

from __future__ import annotations

import numpy as np

from ...build import emit as e
from ...build.layers.recurrent import layers
from ...graph import params as P
from ...graph.dtypes import Array
from ...tensors import Tensor, const
from ...tensors.access import dtype_of, static_shape
from ..call import NodeCall
from . import cast, const_like, transposed

__all__ = ["direction_of", "whole_layer"]

_DEFAULTS = {"LSTM": ["sigmoid", "tanh", "tanh"], "RNN": ["tanh"]}
_ORDER = {"LSTM": [0, 2, 3, 1], "RNN": [0]}
"""ONNX's gates input, output, forget, cell in MegEngine's order input, forget, cell, output."""
_MODES = {
    "tanh": P.RNNCellNonlineMode.TANH,
    "relu": P.RNNCellNonlineMode.RELU,
    "affine": P.RNNCellNonlineMode.IDENTITY,
}


def direction_of(c: NodeCall) -> str:
    """Return the direction of a recurrent layer."""
    return c.choice("direction", "forward", "reverse", "bidirectional")


def whole_layer(c: NodeCall) -> tuple[Tensor, ...] | None:
    """Lower a layer to one operator: all outputs, or None if MegEngine's operator is not the same.

    It is not for float64, weights that depend on data, sequences of several lengths, clipped gates, peepholes, coupled
    gates and other activations.
    """
    mode = _mode(c)
    weights = [c.value(i).constant() if c.has(i) else None for i in (1, 2, 3)]
    if mode is None or weights[0] is None or weights[1] is None or (c.has(3) and weights[2] is None):
        return None
    x = cast(c.t(0), "float32")
    if c.flag("layout"):
        x = transposed(x, (1, 0, 2))
    if 0 in static_shape(x):
        return None
    backward = direction_of(c) == "reverse"
    if backward:
        x = _reversed_in_time(x)
    count, hidden = weights[0].shape[0], weights[1].shape[2]
    flat = _flattened(c.op, weights[0], weights[1], weights[2])
    states = [_state(c, i, x, count, hidden) for i in ((5, 6) if c.op == "LSTM" else (5,))]
    y, *lasts = layers(x, states, flat, hidden, both=count == 2, biased=weights[2] is not None, mode=mode)
    if backward:
        y = _reversed_in_time(y)
    length, batch, _ = y.shape
    y = e.permute(e.reshape(y, (length, batch, count, hidden)), (0, 2, 1, 3))
    if c.flag("layout"):
        y = transposed(y, (2, 0, 1, 3))
        lasts = [transposed(s, (1, 0, 2)) for s in lasts]
    return tuple(cast(v, dtype_of(c.t(0))) for v in (y, *lasts))


def _mode(c: NodeCall) -> P.RNNCellNonlineMode | None:
    """Return the activation of a plain RNN, TANH for a plain LSTM; None for anything else."""
    if c.op not in _DEFAULTS or dtype_of(c.t(0)).is_wide:
        return None
    if c.has(4) or c.has(7) or c.flag("input_forget") or "clip" in c.attributes:
        return None
    default = _DEFAULTS[c.op]
    names = [n.lower() for n in c.texts("activations") or default]
    parts = {tuple(names[i : i + len(default)]) for i in range(0, len(names), len(default))}
    if len(parts) != 1:
        return None
    (only,) = parts
    if c.op == "LSTM":
        return P.RNNCellNonlineMode.TANH if list(only) == default else None
    if only == ("affine",):
        straight = set(c.floats("activation_alpha") or []) == {1.0}
        if not straight or set(c.floats("activation_beta") or [0.0]) != {0.0}:
            return None
    return _MODES.get(only[0])


def _flattened(op: str, w: Array, r: Array, b: Array | None) -> Tensor:
    """Flatten the weights of all directions one after another, as MegEngine's operator takes them."""
    order = _ORDER[op]
    hidden = r.shape[2]

    def gates(value: Array) -> Array:
        parts = value.astype(np.float32).reshape(len(order), hidden, -1)
        return parts[order].reshape(-1)

    parts = []
    for d in range(w.shape[0]):
        parts += [gates(w[d]), gates(r[d])]
        if b is not None:
            parts += [gates(half) for half in np.split(b[d], 2)]
    whole = np.concatenate(parts)
    return const(whole.reshape(len(order) * hidden, -1))


def _state(c: NodeCall, i: int, x: Tensor, count: int, hidden: int) -> Tensor:
    if not c.has(i):
        return e.full(const_like(0.0, x), (count, x.shape[1], hidden))
    states = cast(c.t(i), "float32")
    return transposed(states, (1, 0, 2)) if c.flag("layout") else states


def _reversed_in_time(x: Tensor) -> Tensor:
    """Reverse the steps."""
    return e.subtensor(x, [(0, None, None, -1, None)])
