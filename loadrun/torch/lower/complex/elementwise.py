"""Elementwise operators on complex numbers: modulus and argument, arithmetic, functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...call import FxCall
from ...complex import Complex, pair
from ...registry import aten
from .calls import pairs
from .formulas import (
    FUNCTIONS,
    added,
    argument,
    divided,
    exponential,
    logarithm,
    modulus,
    negative,
    root,
    times,
    whole_power,
)

__all__: list[str] = []


@aten("aten.abs.default", complex=True)
def absolute(call: FxCall, x: Any) -> Any:
    """Compute the moduli."""
    return modulus(pair(x, call.dtype))


@aten("aten.angle.default", complex=True)
def angle(call: FxCall, x: Any) -> Any:
    """Compute the arguments (angles from the positive real axis)."""
    return argument(pair(x, call.dtype))


@aten("aten.sgn.default", complex=True)
def sgn(call: FxCall, x: Any) -> Any:
    """Return numbers of modulus 1 in the same direction; 0 for 0."""
    x = pair(x, call.dtype)
    size = modulus(x)
    return divided(x, Complex(np.where(size == 0, np.ones_like(size), size)))


@aten("aten.add.Tensor", "aten.add.Scalar", complex=True)
def add(call: FxCall, x: Any, y: Any, alpha: Any = 1) -> Any:
    """Sum, of the second operand times `alpha`."""
    x, y, alpha = pairs(call, x, y, alpha) if alpha != 1 else (*pairs(call, x, y), None)
    return added(x, y if alpha is None else times(y, alpha))


@aten("aten.sub.Tensor", "aten.sub.Scalar", complex=True)
def sub(call: FxCall, x: Any, y: Any, alpha: Any = 1) -> Any:
    """Subtract the second operand times `alpha`."""
    x, y = pairs(call, x, y)
    if alpha == 1 and x.imaginary is not None and y.imaginary is not None:
        return Complex(x.real - y.real, x.imaginary - y.imaginary)
    return added(x, times(y, pair(-alpha, call.dtype)))


@aten("aten.rsub.Tensor", "aten.rsub.Scalar", complex=True)
def rsub(call: FxCall, x: Any, y: Any, alpha: Any = 1) -> Any:
    """Subtract with exchanged operands."""
    return sub(call, y, x, alpha)


@aten("aten.mul.Tensor", "aten.mul.Scalar", complex=True)
def mul(call: FxCall, x: Any, y: Any) -> Any:
    """Compute the product."""
    return times(*pairs(call, x, y))


@aten("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", complex=True)
def div(call: FxCall, x: Any, y: Any) -> Any:
    """Compute the quotient."""
    return divided(*pairs(call, x, y))


@aten("aten.addcmul.default", complex=True)
def addcmul(call: FxCall, x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    """Compute ``x + value * a * b``."""
    x, a, b, value = pairs(call, x, a, b, value)
    return added(x, times(value, times(a, b)))


@aten("aten.addcdiv.default", complex=True)
def addcdiv(call: FxCall, x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    """Compute ``x + value * a / b``."""
    x, a, b, value = pairs(call, x, a, b, value)
    return added(x, times(value, divided(a, b)))


@aten("aten.lerp.Scalar", "aten.lerp.Tensor", complex=True)
def lerp(call: FxCall, start: Any, end: Any, weight: Any) -> Any:
    """Interpolate between two values."""
    start, end, weight = pairs(call, start, end, weight)
    return added(start, times(weight, added(end, negative(start))))


@aten("aten.reciprocal.default", complex=True)
def reciprocal(call: FxCall, x: Any) -> Any:
    """Divide one by the number."""
    return divided(*pairs(call, 1, x))


@aten("aten.square.default", complex=True)
def square(call: FxCall, x: Any) -> Any:
    """Multiply the number by itself."""
    x = pair(x, call.dtype)
    return times(x, x)


_LARGEST_POWER = 64


@aten("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar", complex=True)
def power(call: FxCall, x: Any, y: Any) -> Any:
    """Compute the power; whole constant ones by multiplication."""
    base, exponent = pairs(call, x, y)
    if isinstance(y, (int, float, complex)) and y == 0.5:
        return root(base)
    if isinstance(y, (int, float, complex)) and y == (n := int(complex(y).real)) and abs(n) <= _LARGEST_POWER:
        result = whole_power(base, abs(n))
        return divided(pair(1, call.dtype), result) if n < 0 else result
    result = exponential(times(exponent, logarithm(base)))
    # 0 to the power of what has a positive real part is 0, of 0 it is 1.
    zero = modulus(base) == 0
    kept = Complex(np.where(zero & (exponent.real > 0), 0.0, result.real), np.where(zero, 0.0, result.imag))
    one = modulus(exponent) == 0
    return Complex(np.where(one, 1.0, kept.real), np.where(one, 0.0, kept.imag))


def _function(function: Callable[[Complex], Complex]) -> Callable[..., Any]:
    def lowered(call: FxCall, x: Any) -> Any:
        # Their constants are float32.
        return pair(function(pair(x, np.float32)), call.dtype)

    return lowered


for _name, _formula in FUNCTIONS.items():
    aten(f"aten.{_name}.default", complex=True)(_function(_formula))
