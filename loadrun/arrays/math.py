"""Lowerings of numpy's mathematical ufuncs: exponentials, logarithms, roots, trigonometry."""

from __future__ import annotations

from collections.abc import Callable
from math import e as euler, log, log10, pi
from typing import Any

import numpy as np

from ..graph import params as P
from ..layers import emit as e
from ..layers.emit import M, elem, number, where
from ..ops.elemwise.table import MODES, ModeTrait, modes
from ..tensors import Tensor
from ..tensors.access import dtype_of
from .arithmetic import absolute_power, trunc
from .axes import axis_of
from .joining import concatenate
from .promotion import operand
from .registry import lowers, ufunc

_EQ = P.ElemwiseMultiTypeMode.EQ
_LT = P.ElemwiseMultiTypeMode.LT


def _one_mode(mode: P.ElemwiseMode) -> Callable[[Tensor], Tensor]:
    def lowering(x: Tensor) -> Tensor:
        return elem(mode, x)

    lowering.__doc__ = f"MegEngine's {mode.name}."
    return lowering


for _ufunc, _mode in MODES.items():
    if _ufunc.nin == 1 and _mode in modes(ModeTrait.GIVES_FLOAT):
        ufunc(_ufunc.__name__)(_one_mode(_mode))


@ufunc("exp2")
def exp2(x: Tensor) -> Tensor:
    """Return two to the power."""
    return elem(M.POW, number(2, x), x)


def _log_of_base(x: Tensor, base: float, factor: float) -> Tensor:
    """Return a logarithm from the natural one, whole where the base's whole power is the number."""
    result = elem(M.MUL, elem(M.LOG, x), number(factor, x))
    whole = elem(M.ROUND, result)
    return where(e.compare(_EQ, elem(M.POW, number(base, x), whole), x), whole, result)


@ufunc("log2")
def log2(x: Tensor) -> Tensor:
    """Return the logarithm to base 2, exact for powers of 2."""
    return _log_of_base(x, 2, 1 / log(2))


@ufunc("log10")
def log10_(x: Tensor) -> Tensor:
    """Return the logarithm to base 10, exact for powers of 10."""
    return _log_of_base(x, 10, log10(euler))


@ufunc("cbrt")
def cbrt(x: Tensor) -> Tensor:
    """Return the cube root."""
    if dtype_of(x).name == "Float32":
        return absolute_power(x, 1 / 3)
    return e.cast(cbrt(e.as_float(x)), dtype_of(x))


@ufunc("hypot")
def hypot(x: Tensor, y: Tensor) -> Tensor:
    """Return the length of the hypotenuse, without overflow on the way."""
    limits = np.finfo(dtype_of(x).np)
    x, y = elem(M.ABS, x), elem(M.ABS, y)
    large, small = elem(M.MAX, x, y), elem(M.MIN, x, y)
    divisor = elem(M.MIN, elem(M.MAX, large, number(float(limits.tiny), x)), number(float(limits.max), x))
    ratio = elem(M.TRUE_DIV, small, divisor)
    return elem(M.MUL, large, elem(M.SQRT, elem(M.ADD, elem(M.SQUARE, ratio), number(1, x))))


@ufunc("logaddexp")
def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    """Return the logarithm of the sum of exponentials."""
    twice = elem(M.ADD, x, number(log(2), x))
    return where(e.compare(_EQ, x, y), twice, elem(M.LOG_SUM_EXP, x, y))


@ufunc("logaddexp2")
def logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    """Return the same to base 2."""
    scale = number(log(2), x)
    result = logaddexp(elem(M.MUL, x, scale), elem(M.MUL, y, scale))
    return elem(M.TRUE_DIV, result, scale)


@ufunc("arctan")
def arctan(x: Tensor) -> Tensor:
    """Return the arc tangent."""
    return elem(M.ATAN2, x, number(1, x))


@ufunc("arctan2")
def arctan2(y: Tensor, x: Tensor) -> Tensor:
    """Return the angle of a point."""
    return elem(M.ATAN2, y, x)


@ufunc("deg2rad", "radians")
def radians(x: Tensor) -> Tensor:
    """Return degrees as radians."""
    return elem(M.MUL, x, number(pi / 180, x))


@ufunc("rad2deg", "degrees")
def degrees(x: Tensor) -> Tensor:
    """Return radians as degrees."""
    return elem(M.MUL, x, number(180 / pi, x))


@ufunc("modf")
def modf(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the fraction and whole part."""
    whole = trunc(x)
    return elem(M.SUB, x, whole), whole


def negative_sign(x: Tensor) -> Tensor:
    """Tell where the sign is negative, that of zero included; NaN counts as positive."""
    zero = number(0, x)
    return elem(M.OR, e.compare(_LT, x, zero), e.compare(_LT, elem(M.TRUE_DIV, number(1, x), x), zero))


@ufunc("signbit")
def signbit(x: Tensor) -> Tensor:
    """Tell where the sign is negative; the sign of NaN is not seen."""
    return negative_sign(x if e.is_float(x) else e.as_float(x))


@ufunc("copysign")
def copysign(x: Tensor, y: Tensor) -> Tensor:
    """Return the first number with the sign of the second."""
    size = elem(M.ABS, x)
    return where(negative_sign(y), elem(M.NEGATE, size), size)


@lowers("sinc")
def sinc(x: Any) -> Tensor:
    """Compute ``sin(pi x) / (pi x)``, 1 at zero."""
    y = operand(x)
    y = y if e.is_float(y) else e.as_float(y)
    turned = elem(M.MUL, y, number(pi, y))
    zero = e.compare(_EQ, y, number(0, y))
    safe = where(zero, number(1, y), turned)
    return where(zero, number(1, y), elem(M.TRUE_DIV, elem(M.SIN, safe), safe))


@lowers("real")
def real(val: Any) -> Any:
    """Return the array itself."""
    return val


@lowers("imag", arrays=True)
def imag(val: Any) -> Tensor:
    """Return zeros."""
    x = operand(val)
    return e.full(number(0, x), x.shape)


@lowers("nan_to_num")
def nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """Replace NaN and infinities by numbers, by default 0 and the largest ones."""
    y = operand(x)
    if not e.is_float(y):
        return y
    limits = np.finfo(dtype_of(y).np)
    high = number(float(limits.max if posinf is None else posinf), y)
    low = number(float(limits.min if neginf is None else neginf), y)
    result = where(e.is_nan(y), number(nan, y), y)
    endless = e.compare(P.ElemwiseMultiTypeMode.ISINF, y)
    zero = number(0, y)
    result = where(elem(M.AND, endless, e.compare(_LT, zero, y)), high, result)
    result = where(elem(M.AND, endless, e.compare(_LT, y, zero)), low, result)
    if not copy and isinstance(x, Tensor):
        x[...] = result
        return x
    return result


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
