"""The tensors and ndarrays among the arguments of a traced call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..arrays.array import TracedArray
from ..base.errors import TraceError, UsageAssertionError
from ..graph.dtypes import Array, DType
from ..tensors import access
from ..tensors.dtypes import narrowed
from ..tensors.value import Tensor
from .recording import Recording


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield pairs of path and leaf.

    >>> [*leaves({"a": [1, 2]})]
    [(('a', 0), 1), (('a', 1), 2)]
    """
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, (*path, key))
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from leaves(part, (*path, i))
    else:
        yield path, value


def rebuilt(
    value: Any, change: Callable[[Any], Any], whole: tuple[type, Callable[[Any], Any]] | None = None
) -> Any:
    """Return the structure with every leaf changed, and values of type `whole[0]` changed as a whole by `whole[1]`.

    >>> rebuilt({"a": (1, [2])}, lambda x: -x)
    {'a': (-1, [-2])}
    """
    if whole is not None and isinstance(value, whole[0]):
        return whole[1](value)
    if isinstance(value, dict):
        items = {k: rebuilt(v, change, whole) for k, v in value.items()}
        return items if type(value) is dict else _like(value, items)
    if isinstance(value, (list, tuple)):
        parts = [rebuilt(v, change, whole) for v in value]
        if hasattr(value, "_fields"):
            return type(value)(*parts)
        return parts if type(value) is list else _like(value, parts)
    return change(value)


def _like(value: Any, parts: Any) -> Any:
    try:
        return type(value)(parts)
    except TypeError:
        return tuple(parts) if isinstance(value, tuple) else parts


class Argument:
    """One tensor or ndarray among the arguments of a call."""

    __slots__ = ("name", "original", "tensor")

    def __init__(self, name: str, original: Any) -> None:
        self.name = name
        self.original = original
        self.tensor: Tensor = original if isinstance(original, Tensor) else stand_in(original)

    def shares(self, other: Argument) -> bool:
        """Return whether assigning to one argument would show in the other."""
        if isinstance(self.original, Tensor) or isinstance(other.original, Tensor):
            return self.original is other.original
        return np.shares_memory(self.original, other.original)

    def update(self, inside: Tensor) -> None:
        """Pass on what the function assigned to its argument."""
        if isinstance(self.original, Tensor):
            access.copy_state(self.original, inside)
        else:
            self.original[...] = access.stored(inside).reshape(self.original.shape)


def stand_in(array: Array) -> Tensor:
    """Return a tensor around a caller's ndarray, which is not copied."""
    value, dtype = narrowed(array)
    return access.from_stored(
        value.reshape(1) if value.ndim == 0 else value, dtype, value.ndim == 0, kind=TracedArray
    )


def settle(
    arguments: list[Argument], changed: list[tuple[Argument, Tensor]], results: Iterable[Tensor]
) -> None:
    """Write to the arguments what the function assigned to them, and part its results from the caller's arrays.

    Raises:
        TraceError: another argument shares the memory, and would have changed, too.
    """
    for argument, _ in changed:
        for other in arguments:
            if other is not argument and argument.shares(other):
                raise TraceError(
                    f"the function assigns to {argument.name}, which shares its memory with {other.name}; a trace "
                    "cannot follow that; pass a copy"
                )
    arrays = [a.original for a in arguments if not isinstance(a.original, Tensor)]
    if arrays:
        for tensor in results:
            value = access.value_of(tensor)
            if value is not None and any(np.may_share_memory(value, a) for a in arrays):
                access.set_stored(tensor, value.copy())
    for argument, tensor in changed:
        argument.update(tensor)


def changed_among(
    arguments: list[Argument], inside: Mapping[int, Tensor], recording: Recording
) -> list[tuple[Argument, Tensor]]:
    """Return the arguments to which the function assigned, with what they are now."""
    return [
        (a, inside[id(a)])
        for a in arguments
        if access.variable_of(inside[id(a)]) is not recording.args[a.name]
    ]


class CallArguments(NamedTuple):
    """The arguments of a traced call.

    Attributes:
        tensors: the tensors and ndarrays among them, in order.
        args: the positional arguments, each tensor's place taken by its `Argument`.
        kwargs: those by keyword, likewise.
    """

    tensors: list[Argument]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def marked(args: tuple[Any, ...], kwargs: Mapping[str, Any], *, tensors_only: bool) -> CallArguments:
    """Find the tensors among the arguments of a call.

    Args:
        args: the positional arguments.
        kwargs: those by keyword.
        tensors_only: whether every positional argument must hold one.

    Raises:
        UsageAssertionError: a positional argument holds none.
    """
    tensors: list[Argument] = []

    def mark_in(prefix: str, value: Any) -> Any:
        paths = iter([p for p, _ in leaves(value)])

        def mark(leaf: Any) -> Any:
            path = next(paths)
            if not isinstance(leaf, (Tensor, np.ndarray)):
                return leaf
            tensors.append(Argument("_".join(map(str, (prefix, *path))), leaf))
            return tensors[-1]

        return rebuilt(value, mark)

    for i, arg in enumerate(args):
        if tensors_only and not any(isinstance(x, (Tensor, np.ndarray)) for _, x in leaves(arg)):
            raise UsageAssertionError(
                "Only support tensor type args when capture_as_const is enabled"
            ).explained(
                f"positional argument {i} is {type(arg).__name__} {arg!r:.60}; pass it by keyword, or as a tensor "
                "or ndarray"
            )
    marked_args = tuple(mark_in(f"arg_{i}", a) for i, a in enumerate(args))
    marked_kwargs = {k: mark_in(f"kwarg_{k}", v) for k, v in kwargs.items()}
    return CallArguments(tensors, marked_args, marked_kwargs)


@dataclass(frozen=True)
class Slot:
    """The place of a tensor among the arguments of a call.

    Attributes:
        name: its name in the recording.
        dtype: that of an ndarray; None for a tensor.
        kind: the graph's data type of it.
        shape: its shape in the recorded call.
        scalar: whether it has no axes.
        example: its value in the recorded call, in storage form.
    """

    name: str
    dtype: np.dtype[Any] | None
    kind: DType
    shape: tuple[int, ...]
    scalar: bool
    example: Array

    def value(self) -> Any:
        """Zeros in its place."""
        zeros = np.zeros(self.shape, self.kind.np)
        return (
            access.from_stored(zeros, self.kind, self.scalar)
            if self.dtype is None
            else zeros.astype(self.dtype)
        )


def slotted(arguments: CallArguments) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with slots in place of their tensors, which keep copies of the values."""

    def slot(leaf: Any) -> Any:
        if not isinstance(leaf, Argument):
            return leaf
        dtype = None if isinstance(leaf.original, Tensor) else leaf.original.dtype
        tensor = leaf.tensor
        shape, scalar = access.stored_shape(tensor), access.is_scalar(tensor)
        return Slot(leaf.name, dtype, access.dtype_of(tensor), shape, scalar, access.stored(tensor).copy())

    slots: tuple[tuple[Any, ...], dict[str, Any]] = rebuilt((arguments.args, arguments.kwargs), slot)
    return slots


def unmarked(
    arguments: CallArguments, inside: Mapping[int, Tensor]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with the tensors that stand for them inside the function."""

    def unmark(leaf: Any) -> Any:
        return inside[id(leaf)] if isinstance(leaf, Argument) else leaf

    call: tuple[tuple[Any, ...], dict[str, Any]] = rebuilt((arguments.args, arguments.kwargs), unmark)
    return call
