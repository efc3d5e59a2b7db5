"""What stands in for parts of torch while it exports a module: packed sequences, recurrent layers, writes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# Packed sequences while torch exports a module: padded ones and their lengths, for which every step has one size.
#
# `pack_padded_sequence` leaves out what is after the end of a sequence, so its sizes are those of the data.
# Here a packed sequence holds all steps, flattened to (steps * N, features), and recurrent layers keep their
# states behind the end: steps are marked by a feature more, whose weights close the gates. The results are
# torch's.

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


_KEYS = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)
_aten = torch.ops.aten
_OPERATORS = (_aten.lstm.input, _aten.gru.input, _aten.rnn_tanh.input, _aten.rnn_relu.input)


@contextmanager
def any_number_of_steps() -> Iterator[None]:
    """Let torch infer what recurrent layers give from their arguments' shapes.

    Torch's own rule is their decomposition into steps, which fixes how many there are; here their lowering does so,
    where MegEngine has no operator for whole sequences.
    """
    kept = {op: dict(op.py_kernels) for op in _OPERATORS}
    try:
        for op in _OPERATORS:
            kernel = op.py_kernels.get(_KEYS[0]) or op.decompose
            for key in _KEYS:
                op.py_kernels[key] = partial(_inferred, kernel)
            op._dispatch_cache.clear()
        yield
    finally:
        for op, kernels in kept.items():
            op.py_kernels.clear()
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


def _inferred(kernel: Callable[..., Any], x: Any, states: Any, params: Any, *rest: Any) -> Any:
    """Return empty results, or for real tensors what the operator itself gives."""
    state_list: Sequence[Any] = states if isinstance(states, (list, tuple)) else (states,)
    if type(x) in (torch.Tensor, torch.nn.Parameter):
        return kernel(x, states, params, *rest)
    torch._check(x.shape[-1] == params[0].shape[1])
    both = rest[4]
    y = x.new_empty((*x.shape[:-1], state_list[0].shape[-1] * (2 if both else 1)))
    return y, *(h.new_empty(h.shape) for h in state_list)


class WritesToPlaces(TorchFunctionMode):  # type: ignore[misc]
    """Writes through views: torch reads a place that data name as a symbol where it reads, but not where it writes."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a function, or what stands for an assignment."""
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and _is_mixed(args[1]):
            # Numbers pick a part before lists do.
            parts = [slice(None) if _is_list(i) else i for i in args[1]]
            rest = [i if _is_list(i) or i is ... else slice(None) for i in args[1] if not _is_place(i)]
            return func(_view(args[0], tuple(parts)), tuple(rest), *args[2:])
        if func is not torch.Tensor.__setitem__ or not _is_view_by_data(args[1]):
            return func(*args, **(kwargs or {}))
        target, index, value = args
        view = _view(target, index)
        if not isinstance(value, torch.Tensor):
            return view.fill_(value)
        # As in an assignment, a value may have more axes of one in front.
        return view.copy_(value.reshape(value.shape[max(value.ndim - view.ndim, 0) :]))


def _view(x: torch.Tensor, index: Any) -> torch.Tensor:
    """Return the part that an index picks, by operators that take a number as a symbol."""
    items = index if isinstance(index, tuple) else (index,)
    axis, rest = 0, x.ndim - sum(i is not None and i is not ... for i in items)
    for item in items:
        if item is ...:
            axis += rest
        elif item is None:
            x, axis = x.unsqueeze(axis), axis + 1
        elif isinstance(item, slice):
            x = torch.ops.aten.slice(x, axis, *map(_number, (item.start, item.stop)), _number(item.step) or 1)
            axis += 1
        else:
            x = x.select(axis, _number(item))
    return x


def _number(n: Any) -> Any:
    return n.item() if isinstance(n, torch.Tensor) else n


def _is_view_by_data(index: Any) -> bool:
    """Whether an index picks a part without copying it, by a number that is known as a symbol or a tensor alone."""
    items = index if isinstance(index, tuple) else (index,)
    numbers = [n for i in items for n in ((i.start, i.stop, i.step) if isinstance(i, slice) else (i,))]
    by_data = [isinstance(n, torch.SymInt) or _is_number(n) for n in numbers]
    return any(by_data) and all(
        data or n is None or n is ... or type(n) is int for n, data in zip(numbers, by_data, strict=True)
    )


def _is_mixed(index: Any) -> bool:
    """Whether an index has both a number that a tensor holds and lists of numbers."""
    return isinstance(index, tuple) and any(map(_is_number, index)) and any(map(_is_list, index))


def _is_list(i: Any) -> bool:
    """Whether a part of an index is a list of numbers, not of truth values."""
    if isinstance(i, list):
        return all(type(n) is int for n in i)
    return isinstance(i, torch.Tensor) and i.ndim > 0 and i.dtype not in (torch.bool, torch.uint8)


def _is_place(i: Any) -> bool:
    """Whether a part of an index is one number."""
    return type(i) is int or isinstance(i, torch.SymInt) or _is_number(i)


def _is_number(x: Any) -> bool:
    """Whether a tensor holds one integer, without axes."""
    whole = isinstance(x, torch.Tensor) and not (x.is_floating_point() or x.is_complex())
    return whole and x.ndim == 0 and x.dtype is not torch.bool
