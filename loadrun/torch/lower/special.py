"""Functions of statistics and physics without an operator in MegEngine, by series as exact as float32."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph import params as P
from ...layers import emit as e
from ..call import FxCall, as_array, as_tensor
from ..registry import UnsupportedCallError, aten

_M = P.ElemwiseMode
_SHIFT = {4: 8, 8: 16}
"""Arguments are shifted up to here by recurrence, where asymptotic series hold, by the bytes of a number."""


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Evaluate a polynomial, whose constant is the first coefficient."""
    result: Any = as_array(coefficients[-1], x.dtype)
    for c in coefficients[-2::-1]:
        result = result * x + as_array(c, x.dtype)
    return result


def _real(call: FxCall, x: Any) -> Any:
    return as_array(x, np.float64 if call.dtype == np.float64 else np.float32)


def _shift(x: Any) -> int:
    return _SHIFT[np.dtype(x.dtype).itemsize]


def _tail(x: Any, *coefficients: float) -> Any:
    """Evaluate the end of an asymptotic series: in float32 three terms are as many as count."""
    return _polynomial(x, coefficients if np.dtype(x.dtype).itemsize == 8 else coefficients[:3])


def _log_gamma(x: Any) -> Any:
    """Evaluate Stirling's series, shifted up by recurrence; the reflection formula below 1/2."""
    low = x < 0.5
    y = np.where(low, 1 - x, x)
    product = y
    for i in range(1, _shift(x)):
        product = product * (y + np.float32(i))
    z = y + np.float32(_shift(x))
    over = 1 / z
    terms = 1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156
    tail = over * _tail(over * over, *terms)
    # Beyond 10000 the product overflows; the series is exact there without it.
    large = y > 10000
    w = np.where(large, y, z)
    moved = np.where(large, np.float32(0), np.log(np.where(large, np.ones_like(y), product)))
    series = (w - 0.5) * np.log(w) - w + as_array(0.5 * math.log(2 * math.pi), x.dtype) + tail - moved
    turned = np.absolute(_sine_of_turns(x))
    reflected = as_array(math.log(math.pi), x.dtype) - np.log(turned) - series
    return np.where(low, reflected, series)


def _sine_of_turns(x: Any) -> Any:
    """Compute ``sin(pi * x)``; the whole part is taken away first, because pi has no exact value."""
    whole = np.rint(x)
    sign = 1 - 2 * np.absolute(np.fmod(whole, np.float32(2)))
    return sign * np.sin((x - whole) * as_array(math.pi, x.dtype))


aten("aten.lgamma.default", "aten.special_gammaln.default")(
    lambda call, x: as_array(_log_gamma(_real(call, x)), call.dtype)
)


@aten("aten.digamma.default", "aten.special_digamma.default", "aten.special_psi.default")
def digamma(call: FxCall, x: Any) -> Any:
    """Compute the derivative of the logarithm of the gamma function."""
    x = _real(call, x)
    low = x < 0.5
    y = np.where(low, 1 - x, x)
    sums: Any = 1 / y
    for i in range(1, _shift(x)):
        sums = sums + 1 / (y + np.float32(i))
    z = y + np.float32(_shift(x))
    over = 1 / (z * z)
    terms = 1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12
    series = np.log(z) - 0.5 / z - over * _tail(over, *terms) - sums
    rest = x - np.rint(x)
    pi = as_array(math.pi, x.dtype)
    cotangent = pi / np.tan(rest * pi)
    reflected = np.where((rest == 0) & (x < 0), np.float32(np.nan), series - cotangent)
    reflected = np.where(x == 0, np.copysign(np.full_like(x, np.inf), -x), reflected)
    return as_array(np.where(low, reflected, series), call.dtype)


def _trigamma(x: Any) -> Any:
    """Evaluate the series by torch's own steps: near its poles they decide all digits, for pi has no exact value."""
    low = x < 0.5
    pi = as_array(math.pi, x.dtype)
    sine = np.sin(pi * x)
    y = np.where(low, 1 - x, x)
    start = np.where(low, -(pi * pi) / (sine * sine), np.zeros_like(x))
    for _ in range(6):
        start = start + 1 / (y * y)
        y = y + 1
    over = 1 / (y * y)
    total = start + (1 + 1 / (2 * y) + over * _polynomial(over, (1 / 6, -1 / 30, 1 / 42))) / y
    return np.where(low, -total, total)


@aten("aten.polygamma.default", "aten.special_polygamma.default")
def polygamma(call: FxCall, n: int, x: Any) -> Any:
    """Compute the first derivatives of digamma."""
    if isinstance(x, int):
        n, x = x, n
    if n == 0:
        return digamma(call, x)
    if n > 1:
        raise UnsupportedCallError(f"polygamma of order {n}; orders 0 and 1 are lowered")
    return as_array(_trigamma(_real(call, x)), call.dtype)


# Abramowitz and Stegun 9.8.1 to 9.8.4: near zero by the square of x / 3.75, else by 3.75 / |x|.
_BORDER = 3.75
_BESSEL = {
    0: (
        (1, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813),
        (
            *(0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281),
            *(-0.02057706, 0.02635537, -0.01647633, 0.00392377),
        ),
    ),
    1: (
        (0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411),
        (
            *(0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555),
            *(0.02282967, -0.02895312, 0.01787654, -0.00420059),
        ),
    ),
}


_FAR = 25.0
"""From here on the asymptotic series has 16 digits."""


def _exact_bessel(order: int) -> tuple[Sequence[float], Sequence[float]]:
    """Return the power series (by the square of x / 25) and the asymptotic one (by 25 / x), of 16 digits."""
    near = [(_FAR / 2) ** (2 * k) / math.factorial(k) / math.factorial(k + order) for k in range(60)]
    far = [(2 * math.pi) ** -0.5]
    for k in range(1, 25):
        far.append(far[-1] * ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k * _FAR))
    return [v * (_FAR / 2) ** order / _FAR**order for v in near], far


def _bessel(call: FxCall, x: Any, order: int, scaled: bool) -> Any:
    """Compute a modified Bessel function, times ``exp(-|x|)`` if it is to be scaled."""
    x = _real(call, x)
    size = np.absolute(x)
    exact = call.dtype == np.float64
    (near, far), border = (_exact_bessel(order), _FAR) if exact else (_BESSEL[order], _BORDER)
    border = as_array(border, x.dtype)
    small = np.minimum(size, border)
    low = _polynomial(np.square(small / border), near)
    large = np.maximum(size, border)
    high = _polynomial(border / large, far) / np.sqrt(large)
    if scaled:
        low = low * np.exp(-small)
    else:
        # Infinite where the exponential is, as in torch.
        high = high * np.exp(large)
    low = low * small if order else low
    result = np.where(size < border, low, high)
    return as_array(result * np.sign(x) if order else result, call.dtype)


for _order in (0, 1):
    _name = f"i{_order}"
    for _target in (f"special_{_name}", f"special_modified_bessel_{_name}", *(["i0"] if not _order else [])):
        aten(f"aten.{_target}.default")(lambda call, x, order=_order: _bessel(call, x, order, False))
    aten(f"aten.special_{_name}e.default")(lambda call, x, order=_order: _bessel(call, x, order, True))


# Press et al., Numerical Recipes, erfcc.
_ERFC = (
    *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806),
    *(0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277),
)


def _scaled_erfc(x: Any) -> Any:
    """Compute ``exp(x * x) * erfc(x)``."""
    size = np.absolute(x)
    t = 1 / (1 + size * 0.5)
    right = t * np.exp(_polynomial(t, _ERFC))
    square = np.exp(np.square(np.minimum(x, np.float32(0))))
    return np.where(x < 0, 2 * square - right, right)


aten("aten.special_erfcx.default")(
    lambda call, x: as_array(_scaled_erfc(as_array(x, np.float32)), call.dtype)
)


@aten("aten.special_ndtri.default")
def ndtri(call: FxCall, x: Any) -> Any:
    """Compute the inverse of the normal distribution function."""
    x = _real(call, x)
    # By the complement, because near 0 the distance from 1 has no digits left.
    return as_array(as_array(e.elem(_M.ERFCINV, as_tensor(x * 2))) * as_array(-(2**0.5), x.dtype), call.dtype)


_STEPS = {4: 46, 8: 92}
"""Euclid's algorithm on two numbers of 31 or 63 bits takes no more, as two Fibonacci numbers show."""


def _whole(call: FxCall, *values: Any) -> list[Any]:
    return [as_array(v, "int64" if call.dtype.itemsize == 8 else "int32") for v in values]


def _divisor(x: Any, y: Any) -> Any:
    a, b = np.absolute(x), np.absolute(y)
    for _ in range(_STEPS[np.dtype(x.dtype).itemsize]):
        done = b == 0
        rest = a % np.where(done, np.ones_like(b), b)
        a, b = np.where(done, a, b), np.where(done, b, rest)
    # The least integer is its own absolute value.
    return np.absolute(a)


aten("aten.gcd.default")(lambda call, x, y: as_array(_divisor(*_whole(call, x, y)), call.dtype))


@aten("aten.lcm.default")
def lcm(call: FxCall, x: Any, y: Any) -> Any:
    """Compute the smallest common multiple."""
    x, y = _whole(call, x, y)
    divisor = _divisor(x, y)
    return as_array(np.absolute(x // np.where(divisor == 0, np.ones_like(divisor), divisor) * y), call.dtype)


@aten("aten.frexp.Tensor")
def frexp(call: FxCall, x: Any) -> Any:
    """Split into numbers between 1/2 and 1, and the exponents of the powers of two."""
    x = _real(call, x)
    size = np.absolute(x)
    plain = (size > 0) & np.isfinite(x)
    safe = np.where(plain, size, np.float32(1))
    power = np.floor(np.log2(safe)) + 1
    # In two steps, because 2 ** 128 and 2 ** -149 are no factors; then what the logarithm rounded away.
    half = np.trunc(power * 0.5)
    part = safe * np.exp2(-half) * np.exp2(half - power)
    over, under = part >= 1, part < 0.5
    part = np.where(over, part * 0.5, np.where(under, part * 2, part))
    power = power + as_array(over, x.dtype) - as_array(under, x.dtype)
    result = np.where(plain, np.where(x < 0, -part, part), x)
    return as_array(result, call.dtype), as_array(np.where(plain, power, np.float32(0)), "int32")
