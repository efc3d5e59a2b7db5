"""Gamma, beta and Poisson numbers, drawn by rejection as MegEngine's CPU kernels draw them, in float32.

How many uniform numbers one result takes depends on those numbers, so that this is a loop by nature.

Source of semantics: MegEngine ``dnn/src/naive/rng/opr_impl.cpp``.
"""

import math
from collections.abc import Callable

import numpy as np

f = np.float32
_HALF, _ONE, _TWO, _NINE = f(0.5), f(1), f(2), f(9)
Uniform = Callable[[], np.float32]
"""Gives the next number in (0, 1]."""


def _normal(uniform: Uniform) -> np.float32:
    first, second = uniform(), uniform()
    return f(np.sqrt(-_TWO * np.log(first)) * np.cos(f(2 * math.pi * float(second))))


def gamma(uniform: Uniform, shape: np.float32, scale: np.float32) -> np.float32:
    """Return one gamma distributed number (Marsaglia and Tsang), 0 if the shape parameter is not positive."""
    if not shape > 0:
        return f(0)
    d = shape + (f(2 / 3) if shape < 1 else f(-1 / 3))
    c = _ONE / np.sqrt(_NINE * d)
    while True:
        x = _normal(uniform)
        y = _ONE + c * x
        if y <= 0:
            continue
        v, u, xx = y * y * y, uniform(), x * x
        if u < _ONE - f(0.0331) * xx * xx or np.log(u) < _HALF * xx + d * (_ONE - v + np.log(v)):
            drawn = scale * d * v
            return drawn * uniform() ** (_ONE / shape) if shape < 1 else drawn


def beta(uniform: Uniform, alpha: np.float32, beta: np.float32) -> np.float32:
    """Return one beta distributed number; a parameter that is not positive counts as the limit 0."""
    if not (alpha > 0 and beta > 0):
        return f(1 if alpha > 0 else 0 if beta > 0 else math.nan)
    if alpha >= 1 or beta >= 1:
        a, b = gamma(uniform, alpha, _ONE), gamma(uniform, beta, _ONE)
        return a / (a + b)
    while True:
        u, v = uniform(), uniform()
        x, y = u ** (_ONE / alpha), v ** (_ONE / beta)
        if x + y < 1:
            break
    if x + y > 0:
        return x / (x + y)
    log_x, log_y = np.log(u) / alpha, np.log(v) / beta
    most = max(log_x, log_y)
    log_x, log_y = log_x - most, log_y - most
    return f(np.exp(log_x - np.log(np.exp(log_x) + np.exp(log_y))))


def poisson(uniform: Uniform, mean: np.float32) -> np.float32:
    """Return one Poisson distributed number, 0 if the mean is not positive."""
    if not mean > 0:
        return f(0)
    if mean < 10:
        count, product, least = 0, uniform(), np.exp(-mean)
        while product > least:
            count, product = count + 1, product * uniform()
        return f(count)
    b = f(0.931) + f(2.53) * np.sqrt(mean)
    a = f(-0.059) + f(0.02483) * b
    inverse = f(1.1239) + f(1.1328) / (b - f(3.4))
    bound = f(0.9277) - f(3.6224) / (b - _TWO)
    while True:
        u, v = uniform() - _HALF, uniform()
        edge = _HALF - abs(u)
        k = np.floor((_TWO * a / edge + b) * u + mean + f(0.43))
        if edge >= 0.07 and v < bound:
            return f(k)
        if k < 0 or (edge < f(0.013) and v > edge):
            continue
        left = np.log(v) + np.log(inverse) - np.log(a / (edge * edge) + b)
        if left <= -mean + k * np.log(mean) - f(math.lgamma(float(k) + 1)):
            return f(k)
