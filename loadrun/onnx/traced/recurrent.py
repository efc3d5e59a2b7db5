"""RNN and LSTM as MegEngine's operators for whole layers."""

from collections.abc import Sequence
from typing import Any

from ...arrays.names import np
from ...graph import params as P
from ...graph.dtypes import Array
from ...layers.shared.nn import layers
from . import instead, operand, traced

__all__: list[str] = []

_ORDER = {2: [0, 2, 3, 1], 1: [0]}
"""ONNX's gates (input, output, forget, cell) in MegEngine's order (input, forget, cell, output), by states."""
_MODES = {"tanh": P.RNNCellNonlineMode.TANH, "relu": P.RNNCellNonlineMode.RELU}


@instead("RNN")
def rnn(x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, initial_h: Any = None, **how: Any) -> Any:
    mode = _only(how, ["tanh"])
    return _layer(x, w, r, b, lengths, [initial_h], _MODES.get(mode[0]) if mode else None, **how)


@instead("LSTM")
def lstm(
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    initial_h: Any = None,
    initial_c: Any = None,
    p: Any = None,
    *,
    input_forget: int = 0,
    **how: Any,
) -> Any:
    defaults = ["sigmoid", "tanh", "tanh"]
    plain = p is None and not input_forget and _only(how, defaults) == defaults
    return _layer(x, w, r, b, lengths, [initial_h, initial_c], _MODES["tanh"] if plain else None, **how)


def _only(how: dict[str, Any], default: list[str]) -> list[str]:
    """Return the activations of all directions, none where they differ."""
    names = [n.lower() for n in how.get("activations") or default]
    parts = {tuple(names[i : i + len(default)]) for i in range(0, len(names), len(default))}
    return list(*parts) if len(parts) == 1 else []


def _layer(
    x: Any,
    w: Any,
    r: Any,
    b: Any,
    lengths: Any,
    initial: Sequence[Any],
    mode: P.RNNCellNonlineMode | None,
    *,
    clip: float | None = None,
    direction: str = "forward",
    layout: int = 0,
    **others: Any,
) -> Any:
    """Run all steps by one operator; NotImplemented where that computes something else."""
    known = all(v is None or isinstance(v, np.ndarray) for v in (w, r, b))
    if (
        mode is None
        or not known
        or lengths is not None
        or clip is not None
        or not x.size
        or x.dtype != np.float32
    ):
        return NotImplemented
    x = traced(x)
    if layout:
        x, initial = np.swapaxes(x, 0, 1), [None if s is None else np.swapaxes(s, 0, 1) for s in initial]
    backward = direction == "reverse"
    x = x[::-1] if backward else x
    (length, batch, _), count, hidden = x.shape, len(w), r.shape[2]
    zeros = np.zeros((count, batch, hidden), np.float32)
    states = [operand(zeros if s is None else s) for s in initial]
    flat = operand(_flattened(_ORDER[len(initial)], w, r, b))
    y, *lasts = map(
        traced, layers(operand(x), states, flat, hidden, both=count == 2, biased=b is not None, mode=mode)
    )
    y = y[::-1] if backward else y
    y = np.expand_dims(y, 1) if count == 1 else np.swapaxes(y.reshape(length, batch, count, hidden), 1, 2)
    if layout:
        y, lasts = np.transpose(y, (2, 0, 1, 3)), [np.swapaxes(s, 0, 1) for s in lasts]
    return y, *lasts


def _flattened(order: list[int], w: Array, r: Array, b: Array | None) -> Array:
    """Return the weights of all directions one after another, as MegEngine's operator takes them."""
    hidden = r.shape[2]

    def gates(value: Array) -> Array:
        return value.astype(np.float32).reshape(len(order), hidden, -1)[order].reshape(-1)

    parts = []
    for d in range(len(w)):
        parts += [gates(w[d]), gates(r[d])]
        if b is not None:
            parts += [gates(half) for half in np.split(b[d], 2)]
    return np.concatenate(parts).reshape(len(order) * hidden, -1)
