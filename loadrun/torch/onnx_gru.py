"""ONNX's GRU for a recurrent layer of torch whose number of steps is open, which no unrolled graph can have."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..graph.dtypes import Array
from ..onnx.writing.writer import OnnxWriter
from .exporting import name_of_target


def has_open_steps(node: Any) -> bool:
    """Return whether a node is a GRU for any number of steps that ONNX's has all parameters of."""
    if name_of_target(node.target) != "aten.gru.input":
        return False
    x, _, _, _, _, dropout, train, _, batch_first = node.args
    shape = x.meta["val"].shape
    return len(shape) == 3 and isinstance(shape[bool(batch_first)], torch.SymInt) and not (train and dropout)


def write_gru(
    w: OnnxWriter, x: str, state: str, params: Sequence[Array], layers: int, both: bool, batch_first: bool
) -> list[str]:
    """Write one node for each layer.

    Args:
        w: what writes the model.
        x: (steps, N, features), or (N, steps, features) with `batch_first`.
        state: (layers * directions, N, hidden).
        params: of each layer and direction the weights of the inputs and of the states, and biases if there are any.
        layers, both, batch_first: as torch has them.

    Returns:
        every step's states, laid out as `x`, and the last states.
    """
    directions = 2 if both else 1
    each = len(params) // (layers * directions)
    x = w.op("Transpose", x, perm=[1, 0, 2]) if batch_first else x
    lasts = []
    for layer in range(layers):
        first = layer * directions
        cells = [params[i * each : (i + 1) * each] for i in range(first, first + directions)]
        weights = [np.stack([_gates(cell[k]) for cell in cells]) for k in range(2)]
        if each > 2:
            weights.append(np.stack([np.concatenate([*map(_gates, cell[2:])]) for cell in cells]))
        bias = [w.const(v) for v in weights] + [""] * (each < 4)
        before = w.op("Gather", state, w.ints(*range(first, first + directions)), axis=0)
        y, last = w.ops(
            "GRU",
            *(x, *bias, "", before),
            out=2,
            hidden_size=params[1].shape[1],
            direction="bidirectional" if both else "forward",
            linear_before_reset=1,
        )
        x = w.op("Reshape", w.op("Transpose", y, perm=[0, 2, 1, 3]), w.ints(0, 0, -1))
        lasts.append(last)
    y = w.op("Transpose", x, perm=[1, 0, 2]) if batch_first else x
    return [y, w.op("Concat", *lasts, axis=0) if layers > 1 else lasts[0]]


def _gates(weight: Array) -> Array:
    """Bring the gates from torch's order (reset, update, new) into ONNX's (update, reset, new)."""
    reset, update, new = np.split(weight, 3)
    return np.concatenate([update, reset, new])
