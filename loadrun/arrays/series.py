"""Lowerings of numpy functions on sequences: differences, interpolation, convolution."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..build import emit as e
from ..build.emit import M, elem, number, summed
from ..graph import params as P
from ..tensors import Tensor, apply1
from ..tensors.access import as_vector, dtype_of
from ..tensors.naming import refused
from .arithmetic import clipped
from .axes import axes_of, axis_of
from .joining import concatenate
from .promotion import common, narrow, operand
from .registry import lowers
from .sorting import counted_below

__all__: list[str] = []


def _cut(x: Tensor, axis: int, begin: Any, end: Any) -> Tensor:
    return e.subtensor(x, [(axis, begin, end, None, None)])


@lowers("diff")
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Return differences of neighbours."""
    x = operand(a)
    at = axis_of(axis, len(e.sizes(x)))
    parts: list[Any] = [x]
    for extra, before in ((prepend, True), (append, False)):
        if extra is not None:
            part = operand(extra)
            if not e.sizes(part):
                part = e.broadcast(part, (*x.shape[:at], 1, *x.shape[at + 1 :]))
            parts.insert(0 if before else len(parts), part)
    if len(parts) > 1:
        x = concatenate(parts, at)
    for _ in range(n):
        late, early = _cut(x, at, 1, None), _cut(x, at, None, -1)
        x = elem(M.XOR if e.is_bool(x) else M.SUB, late, early)
    return x


@lowers("ediff1d")
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Tensor:
    """Return differences of neighbours of the flattened array."""
    parts: list[Any] = [diff(e.flat(operand(ary)))]
    kind = dtype_of(parts[0]).np
    if to_begin is not None:
        parts.insert(0, e.flat(operand(to_begin, kind)))
    if to_end is not None:
        parts.append(e.flat(operand(to_end, kind)))
    return e.concat(parts, 0)


def _as_float(a: Any) -> Tensor:
    x = operand(a)
    return x if e.is_float(x) else e.real(x)


@lowers("gradient")
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Return central differences, one-sided at the ends; for even spacing."""
    x = _as_float(f)
    axes = axes_of(axis, len(e.sizes(x)))
    steps = [*varargs] * len(axes) if len(varargs) == 1 else [*varargs] or [1.0] * len(axes)
    if len(steps) != len(axes):
        raise TypeError("invalid number of arguments")
    if edge_order != 1 or any(np.ndim(s) for s in steps):
        raise refused("np.gradient is traced for even spacing and edge_order=1")
    result = []
    for at, step in zip(axes, steps, strict=True):
        if e.sizes(x)[at] < 2:
            raise ValueError("Shape of array too small to calculate a numerical gradient")
        h = operand(step, dtype_of(x).np)
        inner = elem(M.TRUE_DIV, elem(M.SUB, _cut(x, at, 2, None), _cut(x, at, None, -2)), elem(M.ADD, h, h))
        first = elem(M.SUB, _cut(x, at, 1, 2), _cut(x, at, None, 1))
        last = elem(M.SUB, _cut(x, at, -1, None), _cut(x, at, -2, -1))
        ends = [elem(M.TRUE_DIV, v, h) for v in (first, last)]
        result.append(e.concat([ends[0], inner, ends[1]], at))
    return result[0] if len(result) == 1 else tuple(result)


@lowers("trapezoid", "trapz")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Tensor:
    """Return the area below samples."""
    f = _as_float(y)
    at = axis_of(axis, len(e.sizes(f)))
    if x is None:
        width = operand(dx, dtype_of(f).np)
    else:
        places = operand(x, dtype_of(f).np)
        width = diff(places, axis=-1 if len(e.sizes(places)) == 1 else at)
        if len(e.sizes(width)) == 1:
            ndim = len(e.sizes(f))
            width = e.reshape(width, tuple(-1 if i == at else 1 for i in range(ndim)))
    both = elem(M.ADD, _cut(f, at, 1, None), _cut(f, at, None, -1))
    return summed(elem(M.MUL, elem(M.MUL, both, width), number(0.5, f)), [at])


@lowers("interp")
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Tensor:
    """Interpolate linearly between points with increasing places."""
    if period is not None:
        raise refused("np.interp is traced without period")
    v, places, values = (operand(a, np.float32) for a in (x, xp, fp))
    if e.sizes(places) != e.sizes(values) or len(e.sizes(places)) != 1:
        raise ValueError("fp and xp are not of the same length.")
    n = places.shape[0]
    below = counted_below(places, v, "right")
    one = number(1, below)
    top = elem(M.MAX, e.like(n - 2, below), number(0, below))
    low = clipped(elem(M.SUB, below, one), number(0, below), top)
    high = elem(M.MIN, elem(M.ADD, low, one), e.like(n - 1, below))
    x0, x1 = (e.gather(places, [(0, i)]) for i in (low, high))
    y0, y1 = (e.gather(values, [(0, i)]) for i in (low, high))
    same = e.compare(P.ElemwiseMultiTypeMode.EQ, x0, x1)
    width = e.where(same, number(1, x0), elem(M.SUB, x1, x0))
    slope = elem(M.TRUE_DIV, elem(M.SUB, y1, y0), width)
    result = elem(M.ADD, y0, elem(M.MUL, elem(M.SUB, v, x0), slope))
    less = P.ElemwiseMultiTypeMode.LT
    ends = [
        e.subtensor(a, [(0, None, None, None, i)])
        for a, i in ((places, 0), (places, -1), (values, 0), (values, -1))
    ]
    start = ends[2] if left is None else operand(left, np.float32)
    stop = ends[3] if right is None else operand(right, np.float32)
    result = e.where(e.compare(less, v, ends[0]), start, result)
    result = e.where(e.compare(P.ElemwiseMultiTypeMode.LEQ, ends[1], v), ends[3], result)
    return e.where(e.compare(less, ends[1], v), stop, result)


def _sliding(a: Tensor, v: Tensor, mode: str) -> Tensor:
    """Return products of `v`, moved along `a`, summed; `v` is at most as long as `a`."""
    m = e.sizes(v)[0]
    pads = {"full": m - 1, "valid": 0, "same": None}
    if mode not in pads:
        raise ValueError("mode must be one of 'valid', 'same' or 'full'")
    before = after = pads[mode] or 0
    if mode == "same":
        before, after = m // 2, (m - 1) // 2
    if before or after:
        ends = [e.full(number(0, a), (k,)) for k in (before, after)]
        a = e.concat([x for x, k in ((ends[0], before), (a, 1), (ends[1], after)) if k], 0)
    wide = [e.reshape(x, (1, 1, 1, -1)) for x in (a, v)]
    result = apply1("ConvolutionV2", P.Convolution(), P.ExecutionPolicy(), inputs=wide, scalar=False)
    return e.reshape(result, (-1,))


@lowers("convolve")
def convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """Convolve two vectors."""
    kind = narrow(common([a, v]))
    x, y = (e.real(as_vector(operand(u, kind))) for u in (a, v))
    if e.sizes(y)[0] > e.sizes(x)[0]:
        x, y = y, x
    result = _sliding(x, e.subtensor(y, [(0, None, None, -1, None)]), mode)
    return _like_sums(result, kind)


def _like_sums(sums: Tensor, kind: Any) -> Tensor:
    """Return sums computed in float32 as the dtype that numpy gives."""
    return e.cast(sums if np.dtype(kind).kind == "f" else elem(M.ROUND, sums), kind)


@lowers("correlate")
def correlate(a: Any, v: Any, mode: str = "valid") -> Tensor:
    """Return sums of products of two vectors, one moved along the other."""
    kind = narrow(common([a, v]))
    x, y = (e.real(as_vector(operand(u, kind))) for u in (a, v))
    if e.sizes(y)[0] <= e.sizes(x)[0]:
        return _like_sums(_sliding(x, y, mode), kind)
    turned = _sliding(y, x, mode)
    return _like_sums(e.subtensor(turned, [(0, None, None, -1, None)]), kind)
