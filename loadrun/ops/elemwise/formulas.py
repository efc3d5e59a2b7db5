"""Elemwise modes as textbook formulas on float64 arrays, written without regard to the kernels."""

from collections.abc import Callable
from math import pi, sqrt

import numpy as np

from ...graph.dtypes import Array

Formula = Callable[..., Array]


def erf(x: Array) -> Array:
    """Compute the error function of float64 values by its series of positive terms.

    >>> [f"{v:.13f}" for v in erf(np.array([0.5, -1.0, 3.0]))]
    ['0.5204998778130', '-0.8427007929497', '0.9999779095030']
    """
    a = np.minimum(np.abs(x), 6.0)
    term, total = a.copy(), a.copy()
    for n in range(1, 160):
        term *= 2 * a * a / (2 * n + 1)
        total += term
    # Rounded beyond 1, it would turn the sign of what it is added to.
    return np.asarray(np.copysign(np.minimum(total * np.exp(-a * a) * (2 / sqrt(pi)), 1), x))


def erfc(x: Array) -> Array:
    """Compute the complementary error function of float64 values: far out by its continued fraction.

    >>> [f"{v:.6e}" for v in erfc(np.array([-1.0, 0.5, 5.0]))]
    ['1.842701e+00', '4.795001e-01', '1.537460e-12']
    """
    far = np.maximum(x, 2.0)
    rest = far
    for n in range(120, 0, -1):
        rest = far + n / 2 / rest
    return np.where(x < 2, 1 - erf(x), np.exp(-far * far) / (rest * sqrt(pi)))


def erfcinv(x: Array) -> Array:
    """Invert `erfc`: Abramowitz and Stegun 26.2.22, improved by Halley's method.

    >>> [f"{v:.10f}" for v in erfcinv(np.array([0.5, 1.5, 1e-12]))]
    ['0.4769362762', '-0.4769362762', '5.0420297456']
    """
    near = np.where(x < 1, x, 2 - x)
    t = np.sqrt(-2 * np.log(near / 2))
    y = sqrt(0.5) * (t - (2.30753 + 0.27061 * t) / (1 + 0.99229 * t + 0.04481 * t * t))
    for _ in range(3):
        error = erfc(y) - near
        y = y + error / (2 / sqrt(pi) * np.exp(-y * y) - y * error)
    return np.where(near == 0, np.inf, y) * np.where(x < 1, 1, -1)


def erfinv(x: Array) -> Array:
    """Invert `erf`: by Newton's method near zero, else by the complement.

    >>> [f"{v:.12f}" for v in erfinv(np.array([1e-3, -0.5, 0.999]))]
    ['0.000886227157', '-0.476936276204', '2.326753765514']
    """
    small = np.clip(x, -0.5, 0.5)
    y = small * (sqrt(pi) / 2)
    for _ in range(5):
        y = y - (erf(y) - small) * (sqrt(pi) / 2) * np.exp(y * y)
    return np.where(np.abs(x) <= 0.5, y, np.copysign(erfcinv(1 - np.abs(x)), x))


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


def sigmoid(x: Array) -> Array:
    """Compute ``1 / (1 + exp(-x))``."""
    return np.asarray(1 / (1 + np.exp(-x)))


def hsigmoid(x: Array) -> Array:
    return np.asarray(np.clip(x + 3, 0, 6) / 6)


def logsigmoid(x: Array) -> Array:
    return -np.logaddexp(-x, 0)


def h_swish(x: Array) -> Array:
    """Compute ``x * (relu6(x + 3) / 6)``."""
    return np.asarray(x * (np.clip(x + 3, 0, 6) / 6))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def gelu(x: Array) -> Array:
    return np.asarray(x * (1 + erf(x / sqrt(2))) / 2)


def softplus(x: Array) -> Array:
    return np.logaddexp(x, 0)


def fast_tanh(x: Array) -> Array:
    return np.asarray(x * (27 + x * x) / (27 + 9 * x * x))


def round_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def floor_div(x: Array, y: Array) -> Array:
    return np.floor(x / y)


def prelu(x: Array, y: Array) -> Array:
    return np.where(x > 0, x, x * y)


def switch_gt0(x: Array, y: Array) -> Array:
    return np.where(x > 0, y, 0)


def abs_grad(x: Array, y: Array) -> Array:
    return np.where(x > 0, y, -y)


def fuse_add_relu(x: Array, y: Array) -> Array:
    return np.maximum(x + y, 0)


def fuse_add_sigmoid(x: Array, y: Array) -> Array:
    return sigmoid(x + y)


def fuse_add_tanh(x: Array, y: Array) -> Array:
    return np.tanh(x + y)


def fuse_add_h_swish(x: Array, y: Array) -> Array:
    return h_swish(x + y)


def cond_leq_mov(x: Array, y: Array, z: Array) -> Array:
    return np.where(x <= y, z, 0)


def cond_lt_mov(x: Array, y: Array, z: Array) -> Array:
    return np.where(x < y, z, 0)


def fuse_mul_add3(x: Array, y: Array, z: Array) -> Array:
    return x * y + z


def fuse_mul_add4(x: Array, y: Array, z: Array, w: Array) -> Array:
    return x * y + z * w


def clip(x: Array, low: Array, high: Array) -> Array:
    return np.minimum(np.maximum(x, low), high)
