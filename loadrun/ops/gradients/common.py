"""Declarations and sums that gradients share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from ...graph import Opr
from ...graph.dtypes import Array, DType
from ..numeric.special import stored
from ..registry import Call, FlopsRule, Shape, ShapeCall, implementation, kernel

__all__ = ["add_along", "add_at", "gradient", "inside"]

Inputs = Sequence[int] | Callable[[Opr], Sequence[int]]
Like = Sequence[int | None] | Callable[[Opr], Sequence[int | None]]
_FLOATS = frozenset({"Float32", "Float16", "BFloat16"})
_INTEGERS = frozenset({"Int32", "Uint8", "Byte"})


def _touched(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Count a few operations for each element that is read or written."""
    return 2 * (sum(map(prod, inputs)) + sum(map(prod, outputs)))


def gradient(
    name: str,
    like: Like,
    *,
    of: str = "",
    by: Inputs = (0,),
    results: Mapping[int, int] = MappingProxyType({-1: 0}),
    mixed: bool = False,
    flops: FlopsRule = _touched,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the kernel of a backward operator, which gets float32 arrays and returns one or a tuple.

    Args:
        name: the operator.
        like: for every output the input whose shape and dtype it has, None for one that is empty.
        of: the forward operator, whose shape rule checks the parameters.
        by: the inputs that were the forward operator's.
        results: inputs with the shape of an output of the forward operator, and which one: its gradient, statistics.
        mixed: whether inputs may be of several float types.
        flops: operations, by default a few for each element.
    """

    def likes(opr: Opr) -> Sequence[int | None]:
        return like(opr) if callable(like) else like

    def check(s: ShapeCall) -> None:
        wants = _forward_shapes(s, of, by(s.opr) if callable(by) else by) if of else []
        for index, output in results.items() if of else ():
            want, actual = wants[output], s.shapes[index]
            if None not in (want, actual) and want != actual:
                at = range(len(s.shapes))[index]
                raise ValueError(
                    f"input {at} must have the shape {list(want or ())}, found {list(actual or ())}"
                )

    def dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
        floats = {d.name for d in inputs if d.name in _FLOATS}
        odd = [d for d in inputs if d.name not in _FLOATS | _INTEGERS]
        if not floats or odd or (len(floats) > 1 and not mixed):
            listing = ", ".join(map(str, inputs))
            raise ValueError(
                f"{opr.type} takes one float type of MegEngine's beside integers, found {listing}"
            )
        return [inputs[i or 0] for i in likes(opr)]

    def shape(s: ShapeCall) -> Sequence[Shape | None]:
        check(s)
        return [(0,) if i is None else s.shape(i) for i in likes(s.opr)]

    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        @kernel(name, dtype=dtype, shape=shape, flops=flops)
        @wraps(compute)
        def run(c: Call, *inputs: Array) -> Array | tuple[Array, ...]:
            check(ShapeCall(c.opr, c.inputs, tuple(a.shape for a in inputs), inputs))
            floats = (
                a.astype(np.float32, copy=False) if d.is_float else a
                for a, d in zip(inputs, c.inputs, strict=True)
            )
            outs = compute(c, *floats)
            outs = outs if isinstance(outs, tuple) else (outs,)
            kept = tuple(stored(a, d) for a, d in zip(outs, c.outputs, strict=True))
            return kept if len(kept) > 1 else kept[0]

        return compute

    return register


def _forward_shapes(s: ShapeCall, of: str, by: Sequence[int]) -> Sequence[Shape | None]:
    """Return the shapes of the forward operator's results."""
    taken = ShapeCall(
        Opr(of, s.opr.params),
        tuple(s.inputs[i] for i in by),
        tuple(s.shapes[i] for i in by),
        tuple(s.values[i] for i in by),
    )
    return implementation(of).shape(taken)


def inside(at: Array, size: int) -> None:
    """Raise ValueError unless all positions are on an axis of that size."""
    if at.size and not 0 <= int(at.min()) <= int(at.max()) < size:
        raise ValueError(f"positions {at.min()}..{at.max()} are outside an axis of {size} elements")


def add_at(at: Array, values: Array, size: int) -> Array:
    """Add values [rows, ...] to rows of `size` elements, at positions [...] that all rows share, or of their own.

    >>> add_at(np.array([1, 1, 0]), np.float32([[1, 2, 4]]), 3).tolist()
    [[4.0, 3.0, 0.0]]
    """
    rows = len(values)
    flat = values.reshape(rows, -1)
    where = at.reshape(-1, flat.shape[1]) + (np.arange(rows) * size)[:, None]
    return (
        np.bincount(where.reshape(-1), flat.reshape(-1), rows * size).reshape(rows, size).astype(np.float32)
    )


def add_along(x: Array, at: Array, size: int, axis: int) -> Array:
    """Add the slices of an axis up at their positions on an axis of another size.

    >>> add_along(np.float32([[1, 2, 4]]), np.array([0, 2, 0]), 3, 1).tolist()
    [[5.0, 0.0, 2.0]]
    """
    out = np.zeros((*x.shape[:axis], size, *x.shape[axis + 1 :]), np.float32)
    if x.size:
        order = np.argsort(at, kind="stable")
        places, first = np.unique(at[order], return_index=True)
        out[(slice(None),) * axis + (places,)] = np.add.reduceat(x.take(order, axis), first, axis)
    return out
