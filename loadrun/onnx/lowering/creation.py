"""New tensors from sizes and bounds, and triangles of matrices."""

from __future__ import annotations

from math import prod

import numpy as np

from ...build import emit as e
from ...graph import params as P
from ...graph.dtypes import plain
from ...ops.registry import affordable
from ...tensors import Tensor, TracedInt, apply1, const
from ...tensors.access import dtype_of
from ..call import NodeCall, lower
from ..messages import TensorProto
from ..tensors import HELD
from ..values import FLOAT, UnsupportedNodeError, Value
from . import M, cast, const_like, is_open

__all__ = ["counted_off"]


@lower("ConstantOfShape", foldable=False)
def _constant_of_shape(c: NodeCall) -> Value:
    stored: TensorProto | None = c.tensor("value")
    one = c.importer.stored(stored) if stored is not None else Value(FLOAT, array=np.zeros(1, np.float32))
    assert one.array is not None
    target = c.sizes(0, "shape") if c.value(0).numbers != (0,) else []
    if not any(isinstance(n, TracedInt) for n in target):
        if any(int(n) < 0 for n in target):
            raise UnsupportedNodeError(f"the shape {target} is none")
        known = [int(n) for n in target]
        if affordable(prod(known) * one.array.itemsize):
            return Value(one.kind, array=np.broadcast_to(one.array.reshape(()), known))
    return Value(one.kind, e.broadcast(one.tensor, tuple(target)))


@lower("EyeLike", foldable=False)
def _eye_like(c: NodeCall) -> Value:
    kind = c.number("dtype", c.kind(0))
    rows, columns = c.value(0).shape
    # No diagonal is further away, and graphs count in 32 bits.
    k = min(max(c.number("k"), -(2**31)), 2**31 - 1)
    if (
        isinstance(rows, TracedInt)
        or isinstance(columns, TracedInt)
        or not affordable(rows * columns * np.dtype(HELD[kind]).itemsize)
    ):
        below = e.elem(M.SUB, e.arange(columns), e.reshape(e.arange(rows), (-1, 1)))
        at = e.compare(P.ElemwiseMultiTypeMode.EQ, below, const_like(k, below))
        from ..values import graph_type  # for start-up

        return Value(kind, cast(at, graph_type(kind)))
    return Value(kind, array=np.eye(rows, columns, k, HELD[kind]))


def counted_off(number: Tensor) -> Tensor:
    """Return as many float32 numbers from 0 as an int32 tensor of one element says."""
    last = e.elem(M.SUB, cast(number, "float32"), const(np.float32(1)))
    param = P.Linspace(endpoint=True)
    return apply1("Linspace", param, inputs=[const(np.float32(0)), last, number], scalar=False)


@lower("Range", foldable=False)
def _range(c: NodeCall) -> Value:
    kind = c.kind(0)
    constants = [c.value(i).constant() for i in range(3)]
    if all(v is not None for v in constants):
        start, limit, delta = (v.item() for v in constants if v is not None)
        if not delta:
            raise UnsupportedNodeError("its step is 0")
        count = max(int(np.ceil((limit - start) / delta)), 0)
        if count > 1 << 26:
            raise UnsupportedNodeError(f"it would give {count} numbers")
        if affordable(24 * count):
            return Value(kind, array=(start + np.arange(count) * delta).astype(HELD[kind]))
        if max(count, abs(start), abs(limit)) > 1 << 24:
            raise UnsupportedNodeError(f"it would give {count} numbers, which float32 cannot distinguish")
    begin, end, step = (c.t(i) for i in range(3))
    # As in ONNX Runtime: a quotient in float32 may be on the other side of a whole number.
    exact = plain("Float64" if dtype_of(begin).is_float else "Int64")
    length = e.elem(M.SUB, cast(end, exact), cast(begin, exact))
    quotient = e.elem(M.TRUE_DIV, *(cast(e.reshape(v, (1,)), plain("Float64")) for v in (length, step)))
    turns = e.elem(M.CEIL, quotient)
    number = cast(e.elem(M.MAX, turns, const_like(0, turns)), "int32")
    steps = cast(counted_off(number), dtype_of(begin))
    return Value(kind, e.elem(M.ADD, e.elem(M.MUL, steps, step), begin))


@lower("Trilu")
def _trilu(c: NodeCall) -> Tensor:
    x = c.t(0)
    k = 0
    if c.has(1):
        (k,) = c.sizes(1, "k") or [0]
    return triangle(x, k, c.flag("upper", 1))


def triangle(x: Tensor, k: int, upper: bool) -> Tensor:
    """Keep the upper or lower triangle of matrices, zero the rest."""
    k = k if is_open(k) else max(min(k, 2**30), -(2**30))
    from ...arrays.selection import _below  # for start-up

    mask = _below(x, k - 1 if upper else k)
    zero = const_like(0, x)
    return e.where(mask, zero, x) if upper else e.where(mask, x, zero)
