"""Special functions of float32 arrays: error functions and their inverses, the normal distribution function.

The rational functions were fitted (iteratively reweighted least squares on the relative error) against double
precision; the inverses use Wichura's algorithm AS 241 for the normal quantile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.dtypes import Array
from .chunks import filled

__all__ = ["erf", "erfc", "erfcinv", "erfinv", "gelu", "normal_cdf"]

_F = np.float32
Coefficients = tuple[np.float32, ...]

# erf(x) / x in powers of x^2, |x| < 3.95; relative error 2e-8. Beyond, float32 erf is 1.
_ERF_P = (1.128379144, 0.1915487112, 0.05287519819, 0.003808082743, 0.0002846843543, 2.025900019e-06)
_ERF_Q = (1.0, 0.5030883015, 0.1145589294, 0.01505493326, 0.001170703627, 3.783153961e-05)
_ERF_END = 3.95

# erfc(x) exp(x^2) in powers of x, 0 <= x < 10.2; relative error 6e-9. Beyond, float32 erfc is 0.
_ERFC_P = (1.000000006, 1.239251083, 0.7324847126, 0.2296385582, 0.03288462842)
_ERFC_Q = (1.0, 2.367630839, 2.404060531, 1.327012381, 0.407049743, 0.05828580166)


def _scaled(c: Sequence[float], ratio: float, factor: float = 1.0) -> Coefficients:
    return tuple(_F(v * factor * ratio**i) for i, v in enumerate(c))


_ERF = (_scaled(_ERF_P, 1.0), _scaled(_ERF_Q, 1.0))
# The same function for x / sqrt(2): powers of x^2 / 2, and erf(x / sqrt 2) / 2 = x * (...).
_CDF = (_scaled(_ERF_P, 0.5, 0.5**1.5), _scaled(_ERF_Q, 0.5))
_ERFC = (_scaled(_ERFC_P, 1.0), _scaled(_ERFC_Q, 1.0))


def _polynomial(c: Sequence[Any], t: Array) -> Array:
    """Evaluate a polynomial by Horner's rule, highest power last in `c`."""
    y = t * c[-1]
    for v in c[-2:0:-1]:
        y += v
        y *= t
    y += c[0]
    return y


def _odd(c: tuple[Coefficients, Coefficients], x: Array, end: float) -> Array:
    """Compute ``x * P(x^2) / Q(x^2)`` with `x` clamped to ``[-end, end]``."""
    x = np.minimum(x, filled(end, x))
    np.maximum(x, filled(-end, x), out=x)
    t = x * x
    x *= _polynomial(c[0], t)
    x /= _polynomial(c[1], t)
    return x


def erf(x: Array, out: Array | None = None) -> Array:
    """Compute the error function of float32 values.

    >>> [round(float(v), 4) for v in erf(np.array([0.0, 0.5, -1.0, 9.0], "f4"))]
    [0.0, 0.5205, -0.8427, 1.0]
    """
    y = _odd(_ERF, x, _ERF_END)
    np.minimum(y, filled(1.0, y), out=y)
    return np.maximum(y, filled(-1.0, y), out=y if out is None else out)


def normal_cdf(x: Array, out: Array | None = None) -> Array:
    """Compute the standard normal distribution function of float32 values, ``(1 + erf(x / sqrt 2)) / 2``."""
    y = _odd(_CDF, x, _ERF_END * 2**0.5)
    np.add(y, _F(0.5), out=y)
    np.minimum(y, filled(1.0, y), out=y)
    return np.maximum(y, filled(0.0, y), out=y if out is None else out)


def gelu(x: Array, out: Array | None = None) -> Array:
    """Multiply `x` by the normal distribution function (exact GELU); minus infinity gives NaN as in MegEngine."""
    y = _odd(_CDF, x, _ERF_END * 2**0.5)
    y += _F(0.5)
    np.minimum(y, filled(1.0, y), out=y)
    np.maximum(y, filled(0.0, y), out=y)
    return np.multiply(x, y, out=y if out is None else out)


def erfc(x: Array, out: Array | None = None) -> Array:
    """Compute the complementary error function of float32 values, to a relative error of 5e-6 in the far tail.

    >>> abs(float(erfc(np.array([5.0], "f4"))[0]) / 1.5374597944280349e-12 - 1) < 1e-5
    True
    """
    t = np.abs(x)
    np.minimum(t, _F(10.2), out=t)
    y = _polynomial(_ERFC[0], t)
    y /= _polynomial(_ERFC[1], t)
    t *= t
    np.negative(t, out=t)
    y *= np.exp(t, out=t)
    np.subtract(_F(2), y, out=y, where=x < 0)
    if out is None:
        return y
    np.copyto(out, y)
    return out


# Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution", Applied Statistics 37 (1988).
_CENTRAL = (
    (
        *(3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4),
        *(4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    ),
    (
        *(1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3),
        *(2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
    ),
)
_MIDDLE = (
    (
        *(1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0),
        *(3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1),
        *(2.27238449892691845833e-2, 7.74545014278341407640e-4),
    ),
    (
        *(1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1),
        *(1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4),
        1.05075007164441684324e-9,
    ),
)
_FAR = (
    (
        *(6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0),
        *(2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3),
        *(2.71155556874348757815e-5, 2.01033439929228813265e-7),
    ),
    (
        *(1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2),
        *(7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7),
        2.04426310338993978564e-15,
    ),
)


def _ratio(c: tuple[Sequence[float], Sequence[float]], r: Array) -> Array:
    p, q = (tuple(np.float64(v) for v in part) for part in c)
    result: Array = _polynomial(p, r) / _polynomial(q, r)
    return result


def _quantile(low: Array, q: Array) -> Array:
    """Compute the normal quantile in float64 where ``low`` is the smaller tail probability and ``q = p - 1/2``."""
    with np.errstate(all="ignore"):
        r = np.sqrt(-np.log(low))
        tail = np.where(r <= 5, _ratio(_MIDDLE, r - 1.6), _ratio(_FAR, r - 5))
        central = q * _ratio(_CENTRAL, 0.180625 - q * q)
    return np.where(np.abs(q) <= 0.425, central, np.copysign(tail, q))


def erfinv(x: Array) -> Array:
    """Compute the inverse error function of float32 values: infinite at -1 and 1, NaN outside.

    >>> [round(float(v), 4) for v in erfinv(np.array([0.5, -1.0, 0.0], "f4"))]
    [0.4769, -inf, 0.0]
    """
    p = x.astype(np.float64)
    y = _quantile((1 - np.abs(p)) / 2, p / 2) * 0.5**0.5
    return np.where(np.abs(p) == 1, np.copysign(np.inf, p), y).astype(np.float32)


def erfcinv(x: Array) -> Array:
    """Compute the inverse complementary error function of float32 values: infinite at 0 and 2, NaN outside.

    >>> erfcinv(np.array([1.0, 0.0, 2.0], "f4")).tolist()
    [0.0, inf, -inf]
    """
    p = x.astype(np.float64)
    y = _quantile(np.minimum(p, 2 - p) / 2, (1 - p) / 2) * 0.5**0.5
    return np.where((p == 0) | (p == 2), np.copysign(np.inf, 1 - p), y).astype(np.float32)
