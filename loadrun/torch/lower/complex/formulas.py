"""Arithmetic and functions of complex numbers, on pairs of real and imaginary parts.

Products and quotients of a complex and a real number leave out the products with zero that torch computes, so that an
infinite number stays one where torch has NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....build import emit as e
from ...complex import Complex, pair
from ...values import arr, ten

__all__ = [
    "FUNCTIONS",
    "added",
    "argument",
    "divided",
    "exponential",
    "finite",
    "has_nan",
    "logarithm",
    "modulus",
    "multilinear",
    "negative",
    "root",
    "times",
    "truth",
    "whole_power",
]


def modulus(x: Complex) -> Any:
    """Compute the modulus."""
    return np.absolute(x.real) if x.imaginary is None else np.hypot(x.real, x.imaginary)


def argument(x: Complex) -> Any:
    """Compute the argument (the angle from the positive real axis)."""
    return np.arctan2(x.imag, x.real)


def added(a: Complex, b: Complex) -> Complex:
    """Compute the sum."""
    total = a.real + b.real
    if a.imaginary is None or b.imaginary is None:
        rest = b.imaginary if a.imaginary is None else a.imaginary
        return Complex(total, None if rest is None else e.broadcast(ten(rest), ten(total).shape))
    return Complex(total, a.imaginary + b.imaginary)


def negative(x: Complex) -> Complex:
    """Negate the number."""
    return Complex(-x.real, None if x.imaginary is None else -x.imaginary)


def times(a: Complex, b: Complex) -> Complex:
    """Compute the product."""
    if b.imaginary is None:
        return Complex(a.real * b.real, None if a.imaginary is None else a.imaginary * b.real)
    if a.imaginary is None:
        return Complex(a.real * b.real, a.real * b.imaginary)
    real = a.real * b.real - a.imaginary * b.imaginary
    return Complex(real, a.real * b.imaginary + a.imaginary * b.real)


def divided(a: Complex, b: Complex) -> Complex:
    """Compute the quotient."""
    if b.imaginary is None:
        return Complex(a.real / b.real, None if a.imaginary is None else a.imaginary / b.real)
    # By the larger part of the divisor, as numpy and torch do it: its square would overflow or vanish.
    wide = np.absolute(b.real) >= np.absolute(b.imaginary)
    large, small = np.where(wide, b.real, b.imaginary), np.where(wide, b.imaginary, b.real)
    first, second = np.where(wide, a.real, a.imag), np.where(wide, a.imag, a.real)
    ratio = small / large
    across = second - first * ratio
    real, imag = first + second * ratio, np.where(wide, across, -across)
    zero = (large == 0) & (small == 0)
    inverse = 1 / np.where(zero, np.absolute(large), large + small * ratio)
    return Complex(np.where(zero, a.real, real) * inverse, np.where(zero, a.imag, imag) * inverse)


def whole_power(x: Complex, n: int) -> Complex:
    """Raise to a nonnegative integer power by multiplication."""
    if n == 0:
        return Complex(np.ones_like(x.real))
    half = whole_power(x, n // 2) if n > 1 else None
    result = x if half is None else times(half, half)
    return times(result, x) if n > 1 and n % 2 else result


def exponential(x: Complex) -> Complex:
    """Compute e to the power of the number."""
    size = np.exp(x.real)
    if x.imaginary is None:
        return Complex(size)
    # Infinity times the sine of 0 would be NaN.
    return Complex(size * np.cos(x.imag), np.where(x.imag == 0, x.imag, size * np.sin(x.imag)))


def logarithm(x: Complex) -> Complex:
    """Compute the natural logarithm."""
    return Complex(_logarithm_of_modulus(x), argument(x))


def _logarithm_of_modulus(x: Complex) -> Any:
    size = modulus(x)
    quarter = modulus(Complex(x.real * 0.25, x.imag * 0.25))
    # Of a modulus that overflows, from that of a quarter.
    return np.where(np.isinf(size), np.log(quarter) + np.log(4.0), np.log(size))


def root(x: Complex) -> Complex:
    """Compute the square root with nonnegative real part."""
    # Both terms of the sum have one sign, so that nothing cancels.
    quarter = modulus(Complex(x.real * 0.25, x.imag * 0.25))
    half = 2 * np.sqrt((quarter + np.absolute(x.real * 0.25)) * 0.5)
    other = np.where(half == 0, 0.0, x.imag / np.where(half == 0, 1.0, 2 * half))
    other = np.where(np.isinf(x.imag), x.imag, other)
    right = x.real >= 0
    # On the negative real numbers the sign of zero tells from which side it comes.
    sign = np.where(np.signbit(x.imag), -1.0, 1.0)
    return Complex(np.where(right, half, np.absolute(other)), np.where(right, other, sign * half))


def _turned(x: Complex) -> Complex:
    """Multiply the number by i."""
    return Complex(-x.imag, x.real)


def _hyperbolic(even: bool, x: Complex) -> Complex:
    """Compute the hyperbolic cosine or sine."""
    cosh, sinh, cos, sin = np.cosh(x.real), np.sinh(x.real), np.cos(x.imag), np.sin(x.imag)
    real, imag = (cosh * cos, sinh * sin) if even else (sinh * cos, cosh * sin)
    # Infinity times the sine of 0 would be NaN.
    return Complex(real, np.where(sin == 0, sin, imag))


def _hyperbolic_tangent(x: Complex) -> Complex:
    """Compute the hyperbolic tangent; large numbers are clipped where it is ±1 already, to avoid overflow."""
    a = np.clip(x.real, -20, 20)
    below = np.square(np.sinh(a)) + np.square(np.cos(x.imag))
    return Complex(np.sinh(a) * np.cosh(a) / below, np.sin(x.imag) * np.cos(x.imag) / below)


def _logistic(x: Complex) -> Complex:
    y = _hyperbolic_tangent(times(x, pair(0.5, np.float32)))
    return Complex((y.real + 1) * 0.5, y.imag * 0.5)


def _exponential_less_one(x: Complex) -> Complex:
    """Compute exp(x) - 1, exact near 0."""
    half = np.sin(x.imag * 0.5)
    real = np.expm1(x.real) * np.cos(x.imag) - 2 * half * half
    return Complex(real, np.exp(x.real) * np.sin(x.imag))


def _logarithm_one_more(x: Complex) -> Complex:
    """Compute log(1 + x), exact near 0."""
    more = added(x, pair(1, np.float32))
    near = np.log1p(x.real * (x.real + 2) + x.imag * x.imag) * 0.5
    return Complex(np.where(modulus(x) < 0.5, near, _logarithm_of_modulus(more)), argument(more))


def _of_turned(function: Callable[[Complex], Complex]) -> Callable[[Complex], Complex]:
    """Build x -> f(i x) / i from f."""

    def apply(x: Complex) -> Complex:
        y = function(_turned(x))
        return Complex(y.imag, -y.real)

    return apply


# Inverse functions, as Kahan has them (Branch Cuts for Complex Elementary Functions): the signs of zeros are kept.


def _roots(x: Complex) -> tuple[Complex, Complex]:
    """Compute the square roots of 1 - x and of 1 + x."""
    whole = Complex(x.real, x.imag)
    return root(Complex(1 - whole.real, -whole.imag)), root(Complex(1 + whole.real, whole.imag))


def _arc_cosine(x: Complex) -> Complex:
    less, more = _roots(x)
    turned = times(more.conj, less)
    return Complex(2 * np.arctan2(less.real, more.real), np.arcsinh(turned.imag))


def _arc_sine(x: Complex) -> Complex:
    less, more = _roots(x)
    straight, turned = less.real * more.real - less.imag * more.imag, times(less.conj, more)
    return Complex(np.arctan2(x.real, straight), np.arcsinh(turned.imag))


def _area_cosine(x: Complex) -> Complex:
    whole = Complex(x.real, x.imag)
    less = root(Complex(whole.real - 1, whole.imag))
    more = root(Complex(whole.real + 1, whole.imag))
    return Complex(np.arcsinh(times(less.conj, more).real), 2 * np.arctan2(less.imag, more.real))


def _area_tangent(x: Complex) -> Complex:
    size, square = np.absolute(x.real), np.square(x.imag)
    real = np.log1p(4 * size / (np.square(1 - size) + square)) * 0.25
    # Beside 1 and -1 squares vanish.
    real = np.where((size == 1) & (square < 1e-20), np.log(2 / np.absolute(x.imag)) * 0.5, real)
    angle = np.arctan2(2 * x.imag, (1 - size) * (1 + size) - square) * 0.5
    # Far away, where squares overflow, it is the reciprocal beside a right angle.
    length = modulus(x)
    far = length > 1e15
    real = np.where(far, np.where(np.isinf(length), 0.0, size / length / length), real)
    angle = np.where(far, np.copysign(np.full_like(angle, np.pi / 2), x.imag), angle)
    return Complex(np.copysign(real, x.real), angle)


FUNCTIONS: dict[str, Callable[[Complex], Complex]] = {
    "exp": exponential,
    "exp2": lambda x: exponential(times(x, pair(float(np.log(2)), np.float32))),
    "expm1": _exponential_less_one,
    "log": logarithm,
    "log2": lambda x: times(logarithm(x), pair(float(1 / np.log(2)), np.float32)),
    "log10": lambda x: times(logarithm(x), pair(float(1 / np.log(10)), np.float32)),
    "log1p": _logarithm_one_more,
    "sqrt": root,
    "rsqrt": lambda x: divided(pair(1, np.float32), root(x)),
    "cosh": lambda x: _hyperbolic(True, x),
    "sinh": lambda x: _hyperbolic(False, x),
    "tanh": _hyperbolic_tangent,
    "cos": lambda x: _hyperbolic(True, _turned(x)),
    "sin": _of_turned(lambda x: _hyperbolic(False, x)),
    "tan": _of_turned(_hyperbolic_tangent),
    "acos": _arc_cosine,
    "asin": _arc_sine,
    "atan": _of_turned(_area_tangent),
    "acosh": _area_cosine,
    "asinh": _of_turned(_arc_sine),
    "atanh": _area_tangent,
    "sigmoid": _logistic,
    "silu": lambda x: times(x, _logistic(x)),
}


def truth(x: Complex) -> Any:
    """Tell where either part is not zero."""
    mask = arr(x.real, "bool")
    return mask if x.imaginary is None else mask | arr(x.imaginary, "bool")


def finite(x: Complex) -> Any:
    """Tell where both parts are finite."""
    return np.isfinite(x.real) & np.isfinite(x.imag)


def has_nan(x: Complex) -> Any:
    """Tell where either part is NaN."""
    return np.isnan(x.real) | np.isnan(x.imag)


def multilinear(factors: list[Complex], product: Callable[..., Any]) -> Complex:
    """Compute a product of complex factors from products of their parts."""
    real: list[Any] = []
    imaginary: list[Any] = []
    for chosen in range(1 << len(factors)):
        turns = [chosen >> i & 1 for i in range(len(factors))]
        parts = [f.imaginary if t else f.real for f, t in zip(factors, turns, strict=True)]
        if any(v is None for v in parts):
            continue
        result = arr(product(*parts))
        count = sum(turns)
        (imaginary if count % 2 else real).append((count % 4 >= 2, result))
    return Complex(_sum(real), _sum(imaginary) if imaginary else None)


def _sum(terms: list[tuple[bool, Any]]) -> Any:
    total = terms[0][1]
    for subtracted, term in terms[1:]:
        total = total - term if subtracted else total + term
    return total
