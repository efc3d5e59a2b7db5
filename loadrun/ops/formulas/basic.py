"""Elementwise operators, reductions and linear algebra."""

from math import prod

import numpy as np

from ...graph import params as P
from ...graph.dtypes import Array
from ...graph.params import ReduceDataType, ReduceMode
from ..elemwise.formulas import Formula
from ..elemwise.table import ROWS
from ..registry import Call


def elemwise(c: Call, *inputs: Array) -> Array | None:
    """Compute the mode's formula; integers among the inputs are promoted."""
    formula = ROWS[c.get(P.Elemwise).mode].wide
    return None if formula is None else np.asarray(formula(*inputs), np.float64)


def power(c: Call, x: Array) -> Array:
    """Raise to PowC's exponent, as the file stores it."""
    return np.power(x, np.float64(np.float32(c.get(P.PowC).exp)))


def linspace(c: Call, start: Array, stop: Array, num: Array) -> Array:
    """Space numbers evenly from start to stop, which belongs to them with `endpoint`."""
    shape = tuple(int(n) for n in num.reshape(-1))
    return np.linspace(start[0], stop[0], prod(shape), endpoint=c.get(P.Linspace).endpoint).reshape(shape)


_REDUCE: dict[ReduceMode, Formula] = {
    ReduceMode.SUM: np.sum,
    ReduceMode.MEAN: np.mean,
    ReduceMode.MAX: np.max,
    ReduceMode.MIN: np.min,
    ReduceMode.PRODUCT: np.prod,
    ReduceMode.SUM_SQR: lambda x, **how: np.sum(x * x, **how),
}


_IN_FLOATS = [t for t in ReduceDataType if t.name == "DEFAULT" or t.name.startswith("FLOAT")]


def reduce(c: Call, x: Array, target: Array | None = None) -> Array | None:
    """Reduce over an axis, or to a shape over all axes that have another size there."""
    p = c.get(P.Reduce)
    if p.data_type not in _IN_FLOATS:
        return None
    if not x.size and p.mode not in (ReduceMode.SUM, ReduceMode.SUM_SQR, ReduceMode.PRODUCT):
        return None
    if p.mode in (ReduceMode.MAX, ReduceMode.MIN) and not c.opr.exact and c.inputs[0].is_float:
        # MegEngine starts with a finite number. It bounds each element, which bounds the result.
        limit = np.finfo(c.outputs[0].np).max
        x = np.maximum(x, -limit) if p.mode == ReduceMode.MAX else np.minimum(x, limit)
    if target is None:
        return np.asarray(_REDUCE[p.mode](x, axis=p.axis, keepdims=True))
    shape = tuple(int(n) for n in target.reshape(-1))
    aligned = (1,) * (x.ndim - len(shape)) + shape
    axes = tuple(i for i, (n, m) in enumerate(zip(x.shape, aligned, strict=True)) if n != m)
    return np.asarray(_REDUCE[p.mode](x, axis=axes, keepdims=True)).reshape(shape)


def cumsum(c: Call, x: Array) -> Array:
    """Add up along an axis, from either end, with or without the element itself."""
    p = c.get(P.Cumsum)
    rows = np.flip(x, p.axis) if p.reverse else x
    total = np.moveaxis(np.cumsum(rows, p.axis), p.axis, 0)
    if p.exclusive:
        total = np.concatenate((np.zeros_like(total[:1]), total[:-1]))
    total = np.moveaxis(total, 0, p.axis)
    return np.flip(total, p.axis) if p.reverse else total


def matmul(c: Call, a: Array, b: Array) -> Array | None:
    """Multiply plain matrices, or stacks of them, each transposed on demand."""
    p = c.get(P.MatrixMul)
    if p.format != P.MatrixMulFormat.DEFAULT:
        return None
    a = a.swapaxes(-1, -2) if p.transposeA else a
    b = b.swapaxes(-1, -2) if p.transposeB else b
    return np.matmul(a, b)


def dot(c: Call, a: Array, b: Array) -> Array:
    """Multiply two vectors, of which one may have a single element."""
    return np.sum(a * b, keepdims=True)


def inverse(c: Call, x: Array) -> Array:
    """Solve ``x @ y = 1`` for every matrix of a stack."""
    return np.linalg.solve(x, np.broadcast_to(np.eye(x.shape[-1]), x.shape))


def cross(c: Call, a: Array, b: Array) -> Array:
    """Multiply vectors of three elements."""
    p = c.get(P.Cross)
    return np.cross(a, b, p.axisa, p.axisb, p.axisc)
