"""Recurrent networks: stacks of layers as ONNX's RNN and LSTM."""

from __future__ import annotations

import numpy as np

from ...graph import Opr
from ...graph.dtypes import Array
from ...graph.params import LSTM, RNN, RNNCellNonlineMode
from .emitter import UnsupportedOprError
from .writer import OnnxWriter, translation

_ORDER = {1: [0], 4: [0, 3, 1, 2]}
"""MegEngine's gates input, forget, cell, output in ONNX's order input, output, forget, cell."""

_Mode = RNNCellNonlineMode
_ACTIVATIONS = {_Mode.IDENTITY: "Affine", _Mode.RELU: "Relu", _Mode.TANH: "Tanh"}


def _layer_weights(p: RNN | LSTM, flat: Array, size: int, gates: int) -> list[tuple[Array, Array, Array]]:
    """Split MegEngine's flat weights into ONNX's W, R and B for every layer."""
    directions, hidden = 2 if p.bidirectional else 1, p.hidden_size
    flat, at = flat.reshape(-1).astype(np.float32), 0

    def take(*shape: int) -> Array:
        nonlocal at
        part = flat[at : at + int(np.prod(shape))].reshape(shape)
        at += part.size
        return part.reshape(gates, hidden, *shape[1:])[_ORDER[gates]].reshape(shape)

    layers = []
    width = gates * hidden
    for layer in range(p.num_layers):
        cells = []
        for _ in range(directions):
            of_input = take(width, directions * hidden if layer else size)
            of_hidden = take(width, hidden)
            biases = np.concatenate([take(width), take(width)]) if p.bias else np.zeros(2 * width, np.float32)
            cells.append((of_input, of_hidden, biases))
        stacked = [np.stack(part) for part in zip(*cells, strict=True)]
        layers.append((stacked[0], stacked[1], stacked[2]))
    return layers


@translation("RNNForward", "LSTMForward")
def stack(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit one RNN or LSTM per layer."""
    is_lstm = opr.type == "LSTMForward"
    p: RNN | LSTM = opr.get(LSTM) if is_lstm else opr.get(RNN)
    x, *states, weights = opr.inputs
    directions, gates = 2 if p.bidirectional else 1, 4 if is_lstm else 1
    flat = w.constant(weights, "the weights of a recurrent net")
    size = w.fixed(x, [2])[0]
    attributes: dict[str, object] = {"hidden_size": int(p.hidden_size)}
    if directions == 2:
        attributes["direction"] = "bidirectional"
    if isinstance(p, RNN):
        attributes["activations"] = [_ACTIVATIONS[p.nonlineMode]] * directions
        if p.nonlineMode == _Mode.IDENTITY:
            attributes["activation_alpha"] = [1.0] * directions
            attributes["activation_beta"] = [0.0] * directions
    layer = w.float(x)
    if p.num_layers < 1:
        raise UnsupportedOprError("no layers")
    # The first states of every layer.
    parts = [w.split(w.float(s), [directions] * p.num_layers, 0) for s in states]
    last: list[list[str]] = [[] for _ in states]
    for number, (of_input, of_hidden, biases) in enumerate(_layer_weights(p, flat, size, gates)):
        operands = [
            w.derived(weights, f"{number}{k}", v)
            for k, v in zip("WRB", (of_input, of_hidden, biases), strict=True)
        ]
        out, *ends = w.ops(
            "LSTM" if is_lstm else "RNN",
            layer,
            *operands,
            "",
            *(part[number] for part in parts),
            out=1 + len(states),
            **attributes,  # type: ignore[arg-type]
        )
        for finals, end in zip(last, ends, strict=True):
            finals.append(end)
        # [time, directions, batch, hidden] becomes [time, batch, directions * hidden].
        if directions == 1:
            layer = w.squeeze(out, [1])
            continue
        turned = w.transpose(out, [0, 2, 1, 3])
        layer = w.reshape(turned, [w.dim(x, 0), w.dim(x, 1), directions * int(p.hidden_size)])
    outs = [layer, *(h[0] if len(h) == 1 else w.op("Concat", *h, axis=0) for h in last)]
    return [w.stored(v, w.dtype(o)) for v, o in zip(outs, opr.outputs, strict=False)]
