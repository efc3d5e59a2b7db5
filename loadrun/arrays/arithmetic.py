"""Lowerings of numpy's arithmetic ufuncs, as numpy defines them: remainders have the divisor's sign."""

from typing import Any

import numpy as np

from ..graph import params as P
from ..layers import emit as e
from ..layers.emit import M, elem, is_bool, is_float, known, number, where
from ..tensors import Tensor, access, apply1, const
from ..tensors.naming import refused
from .promotion import common, dtype_of, narrow, operand
from .registry import lowers, ufunc


@ufunc("add")
def add(x: Tensor, y: Tensor) -> Tensor:
    """Add; booleans are joined by or."""
    return elem(M.OR if is_bool(x) else M.ADD, x, y)


@ufunc("subtract")
def subtract(x: Tensor, y: Tensor) -> Tensor:
    """Subtract."""
    return elem(M.SUB, x, y)


@ufunc("multiply", uint16="int16")
def multiply(x: Tensor, y: Tensor) -> Tensor:
    """Multiply; booleans are joined by and."""
    return elem(M.AND if is_bool(x) else M.MUL, x, y)


@ufunc("true_divide")
def true_divide(x: Tensor, y: Tensor) -> Tensor:
    """Divide; the result is always floating-point."""
    return elem(M.TRUE_DIV, x, y)


def _signs_differ(x: Tensor, y: Tensor) -> Tensor:
    """Return a negative number where the signs of non-zero `x` and `y` differ."""
    return elem(M.MUL, elem(M.SIGN, x), elem(M.SIGN, y))


def _is_zero(x: Tensor) -> Tensor:
    return e.compare(P.ElemwiseMultiTypeMode.EQ, x, number(0, x))


def _without_zeros(divisor: Tensor) -> Tensor:
    """Put ones for zeros in a divisor of integers: MegEngine's process ends at them, numpy gives 0."""
    value = known(divisor)
    if value is not None and value.all():
        return divisor
    return elem(M.ADD, divisor, e.cast(_is_zero(divisor), access.dtype_of(divisor)))


@ufunc("remainder")
def remainder(x: Tensor, y: Tensor) -> Tensor:
    """Return the remainder with the divisor's sign."""
    rest = elem(M.MOD, x, y if is_float(x) else _without_zeros(y))
    if not is_float(x):
        return rest
    return elem(M.ADD, rest, elem(M.COND_LT_MOV, _signs_differ(rest, y), number(0, y), y))


@ufunc("fmod")
def fmod(x: Tensor, y: Tensor) -> Tensor:
    """Return the remainder with the dividend's sign."""
    if is_float(x):
        return elem(M.MOD, x, y)
    y = _without_zeros(y)
    if access.dtype_of(x).np.kind == "u":
        return elem(M.MOD, x, y)
    return elem(M.MUL, elem(M.MOD, elem(M.ABS, x), elem(M.ABS, y)), elem(M.SIGN, x))


@ufunc("floor_divide")
def floor_divide(x: Tensor, y: Tensor) -> Tensor:
    """Divide and round down; floats as Python does it, by taking the remainder off first."""
    if not is_float(x):
        safe = _without_zeros(y)
        result = elem(M.FLOOR_DIV, x, safe)
        return result if safe is y else where(_is_zero(y), number(0, y), result)
    rest = elem(M.MOD, x, y)
    whole = elem(M.TRUE_DIV, elem(M.SUB, x, rest), y)
    down = elem(M.COND_LT_MOV, _signs_differ(rest, y), number(0, y), number(1, y))
    result = elem(M.ROUND, elem(M.SUB, whole, down))
    divisor = known(y)
    if divisor is not None and divisor.all():
        return result
    return where(_is_zero(y), elem(M.TRUE_DIV, x, y), result)


@ufunc("divmod")
def divmod_(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Divide and round down; give the remainder too."""
    return floor_divide(x, y), remainder(x, y)


def absolute_power(x: Tensor, exponent: float) -> Tensor:
    """Return a power by PowC, whose exponent is a parameter: roots and whole powers are exact."""
    return apply1("PowC", P.PowC(exp=exponent), inputs=[x])


@ufunc("power", "pow", "float_power", uint16="int16")
def power(x: Tensor, y: Tensor) -> Tensor:
    """Raise to a power; whole powers of integers by multiplication."""
    exponent = known(y)
    if not is_float(x):
        if exponent is None:
            raise refused(
                "an integer array to the power of a traced integer array has no operator",
                way_out="convert the base to float first: x.astype(np.float32) ** y",
            )
        return integer_power(x, y, exponent)
    if exponent is not None and exponent.size == 1 and e.broadcast_shape([x, y]) == x.shape:
        n = float(exponent.reshape(()))
        simple = {1.0: lambda: x, 2.0: lambda: elem(M.SQUARE, x), 0.5: lambda: elem(M.SQRT, x)}
        if n in simple:
            return simple[n]()
        if n in (-1.0, 3.0, 4.0):
            square = elem(M.SQUARE, x)
            return (
                elem(M.TRUE_DIV, number(1, x), x) if n < 0 else elem(M.MUL, square, x if n == 3 else square)
            )
    return elem(M.POW, x, y)


def integer_power(x: Tensor, y: Tensor, exponent: np.ndarray[Any, Any]) -> Tensor:
    """Raise integers to a whole power by repeated squaring, wrapping as numpy does.

    Raises:
        ValueError: a negative exponent.
    """
    if exponent.size and exponent.min() < 0:
        raise ValueError("Integers to negative integer powers are not allowed.")
    one = number(1, x)
    result, base, bits = one, x, exponent.astype(np.int64)
    for bit in range(int(exponent.max(initial=0)).bit_length()):
        odd = (bits >> bit) & 1
        if bit:
            base = elem(M.MUL, base, base)
        if odd.all():
            result = base if result is one else elem(M.MUL, result, base)
        elif odd.any():
            factor = where(const(odd.astype(bool)), base, one)
            result = factor if result is one else elem(M.MUL, result, factor)
    return e.broadcast(result, e.broadcast_shape([x, y]))


@ufunc("negative")
def negative(x: Tensor) -> Tensor:
    """Return the negative."""
    return elem(M.NEGATE, x)


@ufunc("positive", "conjugate")
def positive(x: Tensor) -> Tensor:
    """Return the number itself."""
    return x


@ufunc("absolute", "fabs")
def absolute(x: Tensor) -> Tensor:
    """Return the absolute value."""
    return x if is_bool(x) or access.dtype_of(x).np.kind == "u" else elem(M.ABS, x)


@ufunc("sign")
def sign(x: Tensor) -> Tensor:
    """Return -1, 0 or 1."""
    return elem(M.SIGN, x)


@ufunc("square", uint16="int16")
def square(x: Tensor) -> Tensor:
    """Return the square."""
    return elem(M.SQUARE, x)


@ufunc("reciprocal")
def reciprocal(x: Tensor) -> Tensor:
    """Return one divided by the number; of integers without fraction."""
    if is_float(x):
        return elem(M.TRUE_DIV, number(1, x), x)
    ones = elem(M.EQ, x, number(1, x))
    return ones if access.dtype_of(x).np.kind == "u" else elem(M.SUB, ones, elem(M.EQ, x, number(-1, x)))


# Extremes


@ufunc("maximum")
def maximum(x: Tensor, y: Tensor) -> Tensor:
    """Return the larger."""
    return elem(M.OR if is_bool(x) else M.MAX, x, y)


@ufunc("minimum")
def minimum(x: Tensor, y: Tensor) -> Tensor:
    """Return the smaller."""
    return elem(M.AND if is_bool(x) else M.MIN, x, y)


def _without_nan(mode: P.ElemwiseMode, x: Tensor, y: Tensor) -> Tensor:
    if not is_float(x):
        return elem(mode, x, y)
    first = where(e.is_nan(x), y, x)
    return elem(mode, first, where(e.is_nan(y), first, y))


@ufunc("fmax")
def fmax(x: Tensor, y: Tensor) -> Tensor:
    """Return the larger; NaN only where both are NaN."""
    return maximum(x, y) if is_bool(x) else _without_nan(M.MAX, x, y)


@ufunc("fmin")
def fmin(x: Tensor, y: Tensor) -> Tensor:
    """Return the smaller; NaN only where both are NaN."""
    return minimum(x, y) if is_bool(x) else _without_nan(M.MIN, x, y)


def clipped(x: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
    """Limit to two bounds of the same dtype."""
    x = x if low is None else elem(M.MAX, x, low)
    return x if high is None else elem(M.MIN, x, high)


@lowers("clip")
def clip(
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    dtype: Any = None,
    casting: Any = None,
) -> Tensor:
    """Limit to two bounds, either of which may be absent."""
    low = min if a_min is None else a_min
    high = max if a_max is None else a_max
    bounds = [b for b in (low, high) if b is not None]
    want = narrow(dtype or common([a, *bounds]))
    wide = np.dtype(np.int32) if want == np.uint16 else want
    x = operand(a, wide)
    if type(low) is int and wide.kind in "iu" and low < np.iinfo(wide).min:
        low = None
    if type(high) is int and wide.kind in "iu" and high > np.iinfo(wide).max:
        high = None
    result = clipped(x, *(None if b is None else operand(b, wide) for b in (low, high)))
    return e.cast(result, want)


# Rounding to integers


@ufunc("floor")
def floor(x: Tensor) -> Tensor:
    """Return the next integer below."""
    return elem(M.FLOOR, x) if is_float(x) else x


@ufunc("ceil")
def ceil(x: Tensor) -> Tensor:
    """Return the next integer above."""
    return elem(M.CEIL, x) if is_float(x) else x


@ufunc("trunc")
def trunc(x: Tensor) -> Tensor:
    """Return the whole part."""
    if not is_float(x):
        return x
    return elem(M.MUL, elem(M.FLOOR, elem(M.ABS, x)), elem(M.SIGN, x))


@lowers("fix")
def fix(x: Any, out: Any = None) -> Tensor:
    """Return the whole part, floating-point."""
    y = operand(x)
    return trunc(y if is_float(y) else e.cast(y, narrow(np.float64)))


@ufunc("rint")
def rint(x: Tensor) -> Tensor:
    """Return the nearest integer; halves go to the even one."""
    return e.rint(x)


@lowers("round", "around", "round_")
def round_(a: Any, decimals: int = 0, out: Any = None) -> Tensor:
    """Round to decimals, halves to the even digit."""
    x = operand(a)
    if not is_float(x):
        if decimals >= 0 or dtype_of(a).kind == "b":
            return x
        unit = number(10.0**-decimals, e.as_float(x))
        wide = e.as_float(x)
        return e.cast(elem(M.MUL, rint(elem(M.TRUE_DIV, wide, unit)), unit), access.dtype_of(x))
    if decimals == 0:
        return rint(x)
    unit = number(10.0 ** abs(decimals), x)
    if decimals > 0:
        return elem(M.TRUE_DIV, rint(elem(M.MUL, x, unit)), unit)
    return elem(M.MUL, rint(elem(M.TRUE_DIV, x, unit)), unit)
