"""Elemwise modes on float32 arrays: functions ``(out, *inputs)`` that write the result into `out`.

`out` has the broadcast shape and may be the memory of an input of that shape, so no function writes to it
before it has read its inputs for the last time. Where MegEngine's x86 kernels treat NaN in their own way
(RELU gives 0, comparisons pick the other side), so do these.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ...graph.dtypes import Array
from ..numeric.parallel import replaced
from ..numeric.special import filled, normal_cdf

Function = Callable[..., object]
_F = np.float32
_0, _1, _3, _6 = _F(0), _F(1), _F(3), _F(6)
_SIXTH = _F(1) / _F(6)
_INFINITY = _F(np.inf)
# The vector exponential clamps its argument to this; NaN becomes the limit, too.
_EXP_LIMIT, _EXP_TOP = _F(88.3762626647949), _F(2.4061436e38)
_TINY = np.finfo(np.float32).tiny
_VECTOR = 16
"""Elements that MegEngine's kernels for x86 with AVX2 take at a time: two registers of float32."""


def _put(out: Array, value: Array) -> None:
    np.copyto(out, value)


def relu(out: Array, x: Array) -> None:
    np.fmax(x, filled(0.0, x), out=out)


def _beyond(x: Array, limit: np.float32) -> Array | None:
    """Mark where MegEngine's vector exponential gets a value above its range or NaN; None for nowhere.

    It takes 16 elements at a time; the rest of an array goes through the C library, which has no such range.
    """
    if not x.size or x.max() <= limit:
        return None
    bad = np.less_equal(x, limit, order="C")
    np.logical_not(bad, out=bad)
    bad.reshape(-1)[x.size // 16 * 16 :] = False
    return bad


def exp(out: Array, x: Array) -> None:
    bad = _beyond(x, _EXP_LIMIT)
    np.exp(x, out=out)
    if bad is not None:
        out[bad] = _EXP_TOP


def logistic(out: Array, x: Array) -> None:
    if faster := replaced("sigmoid", x):
        faster(x, out)
        return
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, _1, out=out)
    np.divide(_1, out, out=out)


def sigmoid(out: Array, x: Array) -> None:
    if faster := replaced("sigmoid", x):
        faster(x, out)
        return
    bad = _beyond(x, _INFINITY)
    logistic(out, x)
    if bad is not None:
        out[bad] = _0


def silu(out: Array, x: Array) -> None:
    if faster := replaced("sigmoid", x):
        np.multiply(x, faster(x), out=out)
        return
    t = np.negative(x)
    np.exp(t, out=t)
    t += _1
    np.divide(x, t, out=out)


def _hswish(out: Array, x: Array, t: Array) -> None:
    np.minimum(t, filled(6.0, t), out=t)
    np.maximum(t, filled(0.0, t), out=t)
    t *= x
    np.multiply(t, _SIXTH, out=out)


def h_swish(out: Array, x: Array) -> None:
    _hswish(out, x, x + _3)


def hsigmoid(out: Array, x: Array) -> None:
    np.add(x, _3, out=out)
    np.divide(out, _6, out=out)
    np.maximum(out, filled(0.0, out), out=out)
    np.minimum(out, filled(1.0, out), out=out)


def relu6(out: Array, x: Array) -> None:
    np.fmin(x, filled(6.0, x), out=out)
    np.maximum(out, filled(0.0, x), out=out)


def fast_tanh(out: Array, x: Array) -> None:
    t = x * x
    y = t + _F(27)
    y *= x
    t *= _F(9)
    t += _F(27)
    np.divide(y, t, out=out)


def _log1p_exp(x: Array) -> Array:
    """Compute ``log1p(exp(-abs(x)))``."""
    t = np.abs(x)
    np.negative(t, out=t)
    np.exp(t, out=t)
    return np.log1p(t, out=t)


def softplus(out: Array, x: Array) -> None:
    t = _log1p_exp(x)
    np.maximum(x, filled(0.0, x), out=out)
    np.add(out, t, out=out)


def logsigmoid(out: Array, x: Array) -> None:
    t = _log1p_exp(x)
    np.minimum(x, filled(0.0, x), out=out)
    np.subtract(out, t, out=out)


def sign(out: Array, x: Array) -> None:
    _put(out, (x > 0).astype(np.float32) - (x < 0).astype(np.float32))


def maximum(out: Array, x: Array, y: Array) -> None:
    """Compute ``x > y ? x : y`` in whole vectors and ``x < y ? y : x`` in what is left of a row (`_rows`).

    So where either is NaN, whole vectors give `y`, short arrays and the last elements of others give `x`.
    """
    if not (np.isnan(x.max(initial=0)) or np.isnan(y.max(initial=0))):
        np.maximum(_spread(x, out), _spread(y, out), out=out)
        return
    x, y, row = _rows(out.shape, x, y)
    value = np.where(x > y, x, y)
    if row is not None:
        tail = np.arange(out.size) % row >= row // _VECTOR * _VECTOR
        np.copyto(value, np.where(x < y, y, x), where=tail.reshape(out.shape))
    np.copyto(out, value)


def minimum(out: Array, x: Array, y: Array) -> None:
    """Compute ``x < y ? x : y``: where either is NaN, `y`."""
    if not (np.isnan(x.max(initial=0)) or np.isnan(y.max(initial=0))):
        np.minimum(_spread(x, out), _spread(y, out), out=out)
        return
    x, y, _ = _rows(out.shape, x, y)
    _put(out, np.where(x < y, x, y))


def maximum_narrow(out: Array, x: Array, y: Array) -> None:
    """Compute ``x > y ? x : y`` everywhere: MegEngine's float16 and bfloat16 kernels have no vectors."""
    _put(out, np.where(x > y, x, y))


def minimum_narrow(out: Array, x: Array, y: Array) -> None:
    """Compute ``x < y ? x : y`` everywhere."""
    _put(out, np.where(x < y, x, y))


def _rows(shape: tuple[int, ...], x: Array, y: Array) -> tuple[Array, Array, int | None]:
    """Return the operands in the order of MegEngine's vector kernels, and the elements of a row that they work on.

    A row is the whole array for operands of one shape or a single number, and what one value of the other operand is
    spread over where that one has trailing axes of size 1 (a channel's bias). Then the operand that is spread comes
    second. Other broadcasts go element by element in the given order: no row.
    """
    size = prod(shape)
    if x.size == size == y.size:
        return x, y, size
    if x.size == size or y.size == size:
        whole, spread = (x, y) if x.size == size else (y, x)
        axes = (1,) * (len(shape) - spread.ndim) + spread.shape
        inner = len(axes)
        while inner and axes[inner - 1] == 1:
            inner -= 1
        first = next((i for i, n in enumerate(axes) if n > 1), inner)
        if inner < len(axes) and prod(shape[inner:]) > 1 and axes[first:inner] == shape[first:inner]:
            return whole, spread, prod(shape[inner:])
    return x, y, None


def _spread(x: Array, out: Array) -> Array | np.float32:
    return x if x.size > 1 else filled(float(x.reshape(-1)[0]), out)


def floor_div(out: Array, x: Array, y: Array) -> None:
    q = np.divide(x, y)
    # MegEngine's threads flush subnormal quotients to zero, so a tiny negative one has floor -0.
    q[np.abs(q) < _TINY] *= 0
    np.floor(q, out=out)


def log_sum_exp(out: Array, x: Array, y: Array) -> None:
    low, high = np.minimum(x, y), np.maximum(x, y)
    np.subtract(low, high, out=low)
    np.exp(low, out=low)
    np.log1p(low, out=low)
    np.add(low, high, out=out)


def fuse_add_relu(out: Array, x: Array, y: Array) -> None:
    # MegEngine computes max(x, -y) + y, and takes a number or one number per row as y: max(x + y, 0) for finite y.
    if x.size < y.size and x.shape[-1:] == (1,):
        x, y = y, x
    if y.size < x.size and np.isfinite(y).all():
        np.add(x, y, out=out)
        np.fmax(out, filled(0.0, out), out=out)
        return
    np.add(np.fmax(x, np.negative(y)), y, out=out)


def fuse_add_sigmoid(out: Array, x: Array, y: Array) -> None:
    np.add(x, y, out=out)
    logistic(out, out)


def fuse_add_tanh(out: Array, x: Array, y: Array) -> None:
    np.add(x, y, out=out)
    np.tanh(out, out=out)


def fuse_add_h_swish(out: Array, x: Array, y: Array) -> None:
    np.add(x, y, out=out)
    _hswish(out, out, out + _3)


def compared(ufunc: np.ufunc) -> Function:
    """Return a comparison with result 1 or 0 in the dtype of `out`."""

    def apply(out: Array, x: Array, y: Array) -> None:
        ufunc(x, y, out=out, casting="unsafe")

    return apply


def prelu(out: Array, x: Array, y: Array) -> None:
    _put(out, np.where(x > 0, x, x * y))


def abs_grad(out: Array, x: Array, y: Array) -> None:
    _put(out, np.where(x > 0, y, -y))


def sigmoid_grad(out: Array, x: Array, y: Array) -> None:
    np.multiply(x * (1 - x), y, out=out)


def tanh_grad(out: Array, x: Array, y: Array) -> None:
    np.multiply(1 - x * x, y, out=out)


def switch_gt0(out: Array, x: Array, y: Array) -> None:
    _put(out, np.where(x > 0, y, y.dtype.type(0)))


def fast_tanh_grad(out: Array, x: Array, y: Array) -> None:
    t = x * x
    d = t + _3
    np.multiply(((_F(-48) * t) / d + _F(27) + t) / (d * _F(9)), y, out=out)


def h_swish_grad(out: Array, x: Array, y: Array) -> None:
    inner = (_F(2) * x + _3) / _6 * y
    _put(out, np.where(x < -3, _0, np.where(x > 3, y, inner)))


def silu_grad(out: Array, x: Array, y: Array) -> None:
    s = np.empty_like(x)
    logistic(s, x)
    _put(out, y * s * (_1 + x * (_1 - s)))


def gelu_grad(out: Array, x: Array, y: Array) -> None:
    phi = np.exp(_F(-0.5) * x * x) * _F(0.3989422804014327)
    np.multiply(y, normal_cdf(x) + x * phi, out=out)


def asinh_grad(out: Array, x: Array, y: Array) -> None:
    np.divide(y, np.sqrt(x * x + _1), out=out)


def acosh_grad(out: Array, x: Array, y: Array) -> None:
    np.divide(y, np.sqrt(x * x - _1), out=out)


def atanh_grad(out: Array, x: Array, y: Array) -> None:
    np.divide(y, _1 - x * x, out=out)


def softplus_grad(out: Array, x: Array, y: Array) -> None:
    e = np.exp(-np.abs(x))
    g = -y * e / (_1 + e)
    _put(out, np.where(x > 0, g, -g) + np.where(x > 0, y, _0))


def relu6_grad(out: Array, x: Array, y: Array) -> None:
    _put(out, np.where((x <= 0) | (x >= 6), _0, y))


def hsigmoid_grad(out: Array, x: Array, y: Array) -> None:
    _put(out, np.where((x <= -3) | (x >= 3), _0, y / _6))


def cond_leq_mov(out: Array, x: Array, y: Array, z: Array) -> None:
    _put(out, np.where(x <= y, z, z.dtype.type(0)))


def cond_lt_mov(out: Array, x: Array, y: Array, z: Array) -> None:
    _put(out, np.where(x < y, z, z.dtype.type(0)))


def fuse_mul_add3(out: Array, x: Array, y: Array, z: Array) -> None:
    np.add(x * y, z, out=out)


def fuse_mul_add4(out: Array, x: Array, y: Array, z: Array, w: Array) -> None:
    np.add(x * y, z * w, out=out)


def clip(out: Array, x: Array, y: Array, z: Array) -> None:
    _put(out, np.where(x <= y, y, np.where(x <= z, x, z)))


def prelu_grad(out: Array, x: Array, y: Array, z: Array) -> None:
    _put(out, np.where(x >= 0, y, y * z))


# What definitions give where MegEngine's kernels have a way of their own with NaN, infinity or overflow.


def exact_relu(out: Array, x: Array) -> None:
    np.maximum(x, filled(0.0, x) if x.dtype == np.float32 else x.dtype.type(0), out=out)


def exact_relu6(out: Array, x: Array) -> None:
    np.clip(x, x.dtype.type(0), x.dtype.type(6), out=out)


def exact_add_relu(out: Array, x: Array, y: Array) -> None:
    np.add(x, y, out=out)
    exact_relu(out, out)


def exact_h_swish(out: Array, x: Array) -> None:
    """Compute ``x * (relu6(x + 3) / 6)``, which no finite number overflows."""
    share = x + x.dtype.type(3)
    np.clip(share, x.dtype.type(0), x.dtype.type(6), out=share)
    share /= share.dtype.type(6)
    np.multiply(x, share, out=out)


def exact_add_h_swish(out: Array, x: Array, y: Array) -> None:
    exact_h_swish(out, x + y)


def exact_clip(out: Array, x: Array, y: Array, z: Array) -> None:
    _put(out, np.minimum(np.maximum(x, y), z))


class Of:
    """A mode that is one function, of numpy or called as numpy's are.

    Attributes:
        ufunc: called as ``ufunc(*inputs, out=out)``.
    """

    def __init__(self, ufunc: Callable[..., Any]) -> None:
        self.ufunc = ufunc

    def __call__(self, out: Array, *xs: Array) -> None:
        """Compute."""
        self.ufunc(*xs, out=out)


def copied(func: Callable[[Array], Array]) -> Function:
    """Wrap a function that gives a new array."""

    def apply(out: Array, x: Array) -> None:
        np.copyto(out, func(x))

    return apply
