"""RNN and LSTM: steps in time, one or both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch  # optional

from ..runtime import NotTaken
from .registry import Node, kernel

__all__: list[str] = []

Tensor = Any
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Tanh": torch.tanh,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Affine": lambda x: x,
}


def _directions(node: Node, weights: Tensor) -> list[bool]:
    """Tell for each direction whether it goes backward in time."""
    if node.get("layout", 0) or node.get("clip") is not None:
        raise NotTaken(f"{node.op} with layout or clip")
    return {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[
        node.get("direction", "forward")
    ]


def _biases(b: Tensor | None, i: int, gates: Tensor) -> Tensor:
    if b is None:
        return torch.zeros(gates.shape[0], dtype=gates.dtype)
    half = b.shape[1] // 2
    return b[i, :half] + b[i, half:]


@kernel("RNN")
def rnn(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return all states [time, directions, batch, size], and the last of each direction."""
    names = node.get("activations") or ["Tanh"] * w.shape[0]
    outs, lasts = [], []
    for i, backward in enumerate(_directions(node, w)):
        act = _ACTIVATIONS[names[i]]
        h = torch.zeros(x.shape[1], r.shape[2], dtype=x.dtype) if start is None else start[i]
        states = []
        for step in _steps(x, backward):
            h = act(step @ w[i].T + h @ r[i].T + _biases(b, i, w[i]))
            states.append(h)
        outs.append(torch.stack(states[::-1] if backward else states))
        lasts.append(h)
    return torch.stack(outs, 1), torch.stack(lasts)


@kernel("LSTM")
def lstm(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    start: Tensor | None = None,
    cell: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return all states [time, directions, batch, size], the last ones and the last cells.

    Gates are in the order input, output, forget, cell.
    """
    if node.get("activations") not in (None, ["Sigmoid", "Tanh", "Tanh"] * w.shape[0]):
        raise NotTaken("LSTM with other activations")
    outs, lasts, cells = [], [], []
    size = r.shape[2]
    for i, backward in enumerate(_directions(node, w)):
        empty = torch.zeros(x.shape[1], size, dtype=x.dtype)
        h, c = (empty if v is None else v[i] for v in (start, cell))
        states = []
        for step in _steps(x, backward):
            gates = step @ w[i].T + h @ r[i].T + _biases(b, i, w[i])
            enter, leave, keep, new = gates.split(size, 1)
            c = torch.sigmoid(keep) * c + torch.sigmoid(enter) * torch.tanh(new)
            h = torch.sigmoid(leave) * torch.tanh(c)
            states.append(h)
        outs.append(torch.stack(states[::-1] if backward else states))
        lasts.append(h)
        cells.append(c)
    return torch.stack(outs, 1), torch.stack(lasts), torch.stack(cells)


def _steps(x: Tensor, backward: bool) -> list[Tensor]:
    steps = list(x)
    return steps[::-1] if backward else steps
