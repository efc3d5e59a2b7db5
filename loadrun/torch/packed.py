"""Packed sequences while torch exports a module: padded ones and their lengths, for which every step has one size.

`pack_padded_sequence` leaves out what is after the end of a sequence, so its sizes are those of the data. Here a
packed sequence holds all steps, flattened to (steps * N, features), and recurrent layers keep their states behind the
end: steps are marked by a feature more, whose weights close the gates. The results are torch's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_CLOSED = 1e4
"""What closes a gate: its sigmoid is exactly 1, that of the negated number exactly 0."""
_MARKS = {
    "lstm": (-_CLOSED, _CLOSED, 0.0, 0.0),
    "gru": (0.0, _CLOSED, 0.0),
    "rnn_tanh": None,
    "rnn_relu": None,
}
"""By operator the weights of the mark for each gate; None if no gate keeps a state."""


class _Longest(int):
    """The length of the longest sequence, which the data tell; less than any that a caller asks for."""


class PaddedSequences(TorchFunctionMode):  # type: ignore[misc]
    """Replaces torch's functions on packed sequences while a module is exported."""

    def __init__(self) -> None:
        super().__init__()
        self._batches: list[tuple[Any, Any]] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a function, or what stands for it."""
        name, named = getattr(func, "__name__", ""), dict(kwargs or {})
        if name == "_pack_padded_sequence":
            return self._packed(*args, **named)
        batch = next((n for kept, n in self._batches if any(kept is a for a in args[:2])), None)
        if batch is None:
            return func(*args, **named)
        if name == "__getitem__" and args[1] == 0 and type(args[1]) is int:
            return batch
        if name == "size" and args[1:] == (0,):
            return _Longest()
        if name == "_pad_packed_sequence":
            return _padded(batch, *args, **named)
        if name in _MARKS:
            return _run(name, func, batch, *args, **named)
        return func(*args, **named)

    def _packed(self, x: Any, lengths: Any, batch_first: bool) -> Any:
        x = x.transpose(0, 1) if batch_first else x
        lengths = lengths.to(torch.int64)
        sizes = (lengths > torch.arange(x.shape[0])[:, None]).sum(1)
        self._batches.append((sizes, x.shape[1]))
        return x.flatten(0, 1), sizes


def _ends(sizes: Any, batch: Any) -> tuple[Any, Any]:
    """Return the lengths (N,) and which steps belong to the sequences (steps, N)."""
    inside = sizes[:, None] > torch.arange(batch)
    return inside.sum(0), inside


def _padded(
    batch: Any, data: Any, sizes: Any, batch_first: bool, value: float, total: int
) -> tuple[Any, Any]:
    lengths, inside = _ends(sizes, batch)
    y = data.unflatten(0, (sizes.shape[0], batch))
    y = torch.where(inside.reshape(*inside.shape, *[1] * (y.ndim - 2)), y, value)
    steps = sizes.shape[0]
    if not isinstance(total, _Longest):
        y = torch.cat([y, y.new_full((total - steps, *y.shape[1:]), value)]) if total > steps else y[:total]
    else:
        longest = lengths.max().item()
        torch._check(longest >= 1)
        torch._check(longest <= steps)
        y = y[:longest]
    return y.transpose(0, 1) if batch_first else y, lengths


def _run(
    name: str,
    func: Callable[..., Any],
    batch: Any,
    data: Any,
    sizes: Any,
    states: Any,
    params: Sequence[Any],
    biased: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
) -> tuple[Any, ...]:
    """Run the layers one by one, each direction by itself; the results are flattened as the data are."""
    if train and dropout and layers > 1:
        raise RuntimeError("dropout between layers in training; call .eval() first")
    lengths, inside = _ends(sizes, batch)
    x = data.unflatten(0, (sizes.shape[0], batch))
    state_list = states if isinstance(states, (list, tuple)) else (states,)
    each, directions = len(params) // (layers * (2 if both else 1)), 2 if both else 1
    last: list[list[Any]] = [[] for _ in state_list]
    for layer in range(layers):
        outs = []
        for d in range(directions):
            place = layer * directions + d
            weights = params[place * each : (place + 1) * each]
            first = [s[place : place + 1] for s in state_list]
            y, *now = _direction(name, func, x, first, weights, biased, lengths, inside, d == 1)
            outs.append(y)
            for kept, value in zip(last, now, strict=True):
                kept.append(value)
        x = torch.cat(outs, -1)
    return x.flatten(0, 1), *(torch.cat(v) for v in last)


def _direction(
    name: str,
    func: Callable[..., Any],
    x: Any,
    states: Sequence[Any],
    weights: Sequence[Any],
    biased: bool,
    lengths: Any,
    inside: Any,
    backward: bool,
) -> list[Any]:
    turned = lengths - 1 - torch.arange(x.shape[0])[:, None]
    turned = torch.where(inside, turned, torch.arange(x.shape[0])[:, None])
    fed, marks = _steps(x, turned) if backward else x, _MARKS[name]
    if marks is not None:
        fed = torch.cat([fed, (~inside).to(x.dtype)[..., None]], -1)
        column = torch.tensor(marks, dtype=x.dtype).repeat_interleave(weights[0].shape[0] // len(marks))
        weights = [torch.cat([weights[0], column[:, None]], 1), *weights[1:]]
    initial = list(states) if name == "lstm" else states[0]
    y, *now = func(fed, initial, weights, biased, 1, 0.0, False, False, False)
    # A state that goes out through a gate, or has none, is that of the last step.
    now[0] = now[0] if name == "gru" else _steps(y, (lengths - 1)[None])
    return [_steps(y, turned) if backward else y, *now]


def _steps(x: Any, places: Any) -> Any:
    """Take from every sequence the steps at its places (steps, N)."""
    return x.gather(0, places[..., None].expand(-1, -1, x.shape[2]))
