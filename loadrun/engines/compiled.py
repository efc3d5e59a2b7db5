"""Kernels that numba compiles, for `engines/fast.py`: float32 arrays, contiguous, flat.

They are compiled once and kept in numba's file cache. They hold no interpreter lock, so that the thread pool runs them
side by side. Sums are contracted (a product and a sum are rounded once), and those of rows are taken in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np
from numba import njit
from numba import types as t

from ..ops.numeric.special import ERF

BLOCK = 1024
"""Elements of a register."""
REGISTERS, OPERANDS = 8, 6
"""How many registers and operands a chain has."""

_F = np.float32
_CONTRACT, _REORDER = {"contract"}, {"contract", "reassoc"}
_U = np.uint64
"""Places are unsigned, since numba counts negative ones from the end, which keeps loops from becoming vector code."""

Op = IntEnum(
    "Op", "BIAS ROUNDED_BIAS LOAD STORE ADD MUL DIV MAX AFFINE OVER CLIP SQRT RINT EXP SIGMOID TANH ERF"
)
"""What an instruction computes: ``to`` from the registers ``x`` and ``y`` and the numbers ``p`` and ``q``.

* BIAS adds operand ``x`` to the output itself, within ``p`` and ``q``; ROUNDED_BIAS rounds to whole numbers before.
* LOAD reads operand ``x``; -1 is the output. STORE writes the output.
* AFFINE is ``x * p + q``, OVER ``x / p``, CLIP ``x`` within ``p`` and ``q``.
"""


def _array(dtype: Any, axes: int, out: bool = False) -> Any:  # noqa: ANN401 - numba has no types
    return t.Array(dtype, axes, "C", readonly=not out)


_IN, _OUT = _array(t.float32, 1), _array(t.float32, 1, out=True)
_ROWS, _OUT_ROWS = _array(t.float32, 2), _array(t.float32, 2, out=True)
_INTS, _INT_ROWS, _LONG_ROWS = _array(t.int64, 1), _array(t.int32, 2), _array(t.int64, 2)


def compiled(*types: Any, fastmath: set[str] = _CONTRACT) -> Callable[[Any], Any]:
    """Return a decorator that compiles a kernel at once, from the file cache where there is one."""
    how = partial(njit, t.void(*types), nogil=True, fastmath=fastmath, error_model="numpy")

    def made(function: Any) -> Any:  # noqa: ANN401
        try:
            return how(cache=True)(function)
        except RuntimeError:
            # No folder can be written to.
            return how()(function)

    return made


_part = njit(nogil=True, fastmath=_CONTRACT, error_model="numpy", inline="always")


_EXP = tuple(map(_F, [1.98756915e-4, 1.39819995e-3, 8.333452e-3, 4.1665796e-2, 0.166666655, 0.5]))
_TANH_7 = (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08)
_TANH_P = tuple(map(_F, [*_TANH_7, 1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03]))
_TANH_Q = tuple(map(_F, [1.198258394e-06, 1.185347057e-04, 2.268434632e-03, 4.893525186e-03]))
_ERF_P, _ERF_Q = (tuple(map(_F, c[::-1])) for c in ERF)


@_part
def _polynomial(t, coefficients):
    y = coefficients[0]
    for c in coefficients[1:]:
        y = y * t + c
    return y


@_part
def _clip(x, low, high):
    """Keep NaN, as all comparisons with it are false."""
    x = low if x < low else x
    return high if x > high else x


@_part
def _exp(x):
    """Compute a power of e: 2^n times a polynomial of what is left; 0 below 2e-38."""
    x = _clip(x, _F(-87.0), _F(88.8))
    # The lowest bits of this sum are the whole number n.
    t = x * _F(1.44269504) + _F(12582912.0)
    n = t - _F(12582912.0)
    r = x - n * _F(0.693359375)
    r = r - n * _F(-2.12194440e-4)
    y = _polynomial(r, _EXP) * r * r + r + _F(1)
    # Half of 2^n is a float32 for every n.
    half = np.int32((np.float32(t).view(np.int32) << np.int32(23)) + np.int32(0x3F000000))
    return y * np.int32(half).view(np.float32) * _F(2)


@_part
def _sigmoid(x):
    return _F(1) / (_F(1) + _exp(-x))


@_part
def _tanh(x):
    """Compute x P(x^2) / Q(x^2), as Eigen does; 1 beyond 9."""
    x = _clip(x, _F(-9), _F(9))
    return x * _polynomial(x * x, _TANH_P) / _polynomial(x * x, _TANH_Q)


@_part
def _erf(x):
    """Compute x P(x^2) / Q(x^2) with the coefficients of the reference engine."""
    x = _clip(x, _F(-4.1), _F(4.1))
    return _clip(x * _polynomial(x * x, _ERF_P) / _polynomial(x * x, _ERF_Q), _F(-1), _F(1))


@_part
def _load(to, r, n, x, inner, count, at):
    """Copy an operand whose elements repeat `inner` times, and all of them again after `count`."""
    i = 0
    if inner == 1:
        while i < n:
            source = (at + i) % count
            m = min(n - i, count - source)
            a, b = _U(i), _U(source)
            for j in range(m):
                to[r, a + _U(j)] = x[b + _U(j)]
            i += m
        return
    while i < n:
        place = at + i
        value = x[place // inner % count]
        m = min(n - i, inner - place % inner)
        a = _U(i)
        for j in range(m):
            to[r, a + _U(j)] = value
        i += m


@_part
def _bias(out, start, n, x, inner, count, at, low, high, rounds):
    i = 0
    while i < n:
        place = at + i
        value = x[place // inner % count]
        m = min(n - i, inner - place % inner)
        a = _U(start + i)
        for j in range(m):
            z = out[a + _U(j)] + value
            out[a + _U(j)] = _clip(np.rint(z) if rounds else z, low, high)
        i += m


@compiled(*[_INT_ROWS, _ROWS, _LONG_ROWS, _OUT, t.int64, *[_IN] * OPERANDS])
def chain(code, numbers, places, out, base, x0, x1, x2, x3, x4, x5):  # noqa: C901, PLR0912 - an interpreter
    """Compute pointwise operators block by block.

    Args:
        code: (instructions, 4): `Op`, the register ``to``, ``x`` and ``y``.
        numbers: (instructions, 2): ``p`` and ``q``.
        places: (operands, 2): how often each element repeats, and how many there are.
        out: the output, or a part of it, which may be read, too.
        base: the place of its first element in the whole output.
        x0: operands, as the whole output reads them.
    """
    operands = (x0, x1, x2, x3, x4, x5)
    v = np.empty((REGISTERS, BLOCK), np.float32)
    for start in range(0, out.shape[0], BLOCK):
        n, at = min(BLOCK, out.shape[0] - start), _U(start)
        for k in range(code.shape[0]):
            op, to, x, y = code[k, 0], code[k, 1], code[k, 2], code[k, 3]
            p, q = numbers[k, 0], numbers[k, 1]
            if op == Op.BIAS or op == Op.ROUNDED_BIAS:
                _bias(
                    out,
                    start,
                    n,
                    operands[x],
                    places[x, 0],
                    places[x, 1],
                    base + start,
                    p,
                    q,
                    op == Op.ROUNDED_BIAS,
                )
            elif op == Op.LOAD:
                if x < 0:
                    for i in range(n):
                        v[to, i] = out[at + _U(i)]
                else:
                    _load(v, to, n, operands[x], places[x, 0], places[x, 1], base + start)
            elif op == Op.STORE:
                for i in range(n):
                    out[at + _U(i)] = v[x, i]
            elif op == Op.ADD:
                for i in range(n):
                    v[to, i] = v[x, i] + v[y, i]
            elif op == Op.MUL:
                for i in range(n):
                    v[to, i] = v[x, i] * v[y, i]
            elif op == Op.DIV:
                for i in range(n):
                    v[to, i] = v[x, i] / v[y, i]
            elif op == Op.MAX:
                for i in range(n):
                    a, b = v[x, i], v[y, i]
                    v[to, i] = b if b > a or b != b else a
            elif op == Op.AFFINE:
                for i in range(n):
                    v[to, i] = v[x, i] * p + q
            elif op == Op.OVER:
                for i in range(n):
                    v[to, i] = v[x, i] / p
            elif op == Op.CLIP:
                for i in range(n):
                    v[to, i] = _clip(v[x, i], p, q)
            elif op == Op.SQRT:
                for i in range(n):
                    v[to, i] = np.sqrt(v[x, i])
            elif op == Op.RINT:
                for i in range(n):
                    v[to, i] = np.rint(v[x, i])
            elif op == Op.EXP:
                for i in range(n):
                    v[to, i] = _exp(v[x, i])
            elif op == Op.SIGMOID:
                for i in range(n):
                    v[to, i] = _sigmoid(v[x, i])
            elif op == Op.TANH:
                for i in range(n):
                    v[to, i] = _tanh(v[x, i])
            else:
                for i in range(n):
                    v[to, i] = _erf(v[x, i])


@_part
def _nine(sums, n, x, a, b, c, w, k, value, fresh):
    """Add three rows of three taps to the sums, or begin with a value."""
    w0, w1, w2, w3, w4, w5 = w[k], w[k + 1], w[k + 2], w[k + 3], w[k + 4], w[k + 5]
    w6, w7, w8 = w[k + 6], w[k + 7], w[k + 8]
    for i in range(n):
        d, e, f = a + i, b + i, c + i
        first = x[d] * w0 + x[d + _U(1)] * w1 + x[d + _U(2)] * w2
        second = x[e] * w3 + x[e + _U(1)] * w4 + x[e + _U(2)] * w5
        third = x[f] * w6 + x[f + _U(1)] * w7 + x[f + _U(2)] * w8
        sums[i] = (value if fresh else sums[i]) + first + second + third


@_part
def _three(sums, n, x, a, b, c, w, k, value, fresh):
    """Add three taps, or begin with a value."""
    w0, w1, w2 = w[k], w[k + 1], w[k + 2]
    for i in range(n):
        sums[i] = (value if fresh else sums[i]) + x[a + i] * w0 + x[b + i] * w1 + x[c + i] * w2


@_part
def _spread(plane, x, at, sizes):
    """Copy an image into planes of its stride phases, between zeros that are there already."""
    height, width, pad_y, pad_x, step_y, step_x = sizes[0], sizes[1], sizes[4], sizes[5], sizes[6], sizes[7]
    rows, wide = sizes[8], sizes[9]
    row, phase = pad_y // step_y, pad_y % step_y
    # Where the first two columns lie.
    even = (pad_x % step_x * rows) * wide + pad_x // step_x
    odd = ((pad_x + 1) % step_x * rows) * wide + (pad_x + 1) // step_x
    for y in range(height):
        to = (phase * step_x * rows + row) * wide
        a, b, source = _U(to + even), _U(to + odd), _U(at + y * width)
        if step_x == 1:
            for i in range(_U(width)):
                plane[a + i] = x[source + i]
        elif step_x == 2:
            for i in range(_U(width // 2)):
                plane[a + i] = x[source + i + i]
                plane[b + i] = x[source + i + i + _U(1)]
            if width % 2:
                plane[a + _U(width // 2)] = x[source + _U(width - 1)]
        else:
            for i in range(width):
                j = i + pad_x
                plane[to + (j % step_x * rows) * wide + j // step_x] = x[at + y * width + i]
        phase += 1
        if phase == step_y:
            phase, row = 0, row + 1


@compiled(_IN, _IN, _IN, _OUT, _INTS, _INTS, t.float32, t.float32, t.boolean, t.int64, t.int64)
def depthwise(x, w, bias, out, sizes, taps, low, high, rounds, first, last):
    """Convolve images, each with filters of its own.

    Args:
        x: (images, H, W).
        w: (groups, filters, taps), the taps in the order of `taps`.
        bias: (groups, filters).
        out: (images, filters, OH, OW), written.
        sizes: H, W, OH, OW, padding, stride, rows and columns of a phase's plane, groups, filters, and how many of
            the taps are threes of rows of three.
        taps: where each reads in the planes.
        low, high: bounds of the output.
        rounds: whether sums are rounded to whole numbers before.
        first, last: the images, by their numbers.
    """
    height, width, oh, ow, wide = sizes[0], sizes[1], sizes[2], sizes[3], sizes[9]
    groups, filters, nines = sizes[10], sizes[11], sizes[12]
    # Sums are taken in whole vectors, beyond the end, too.
    plane = np.zeros(sizes[6] * sizes[7] * sizes[8] * wide + 64, np.float32)
    lines = max(1, min(oh, BLOCK // wide))
    sums = np.empty(lines * wide + 64, np.float32)
    count = taps.shape[0]
    for image in range(first, last):
        _spread(plane, x, image * height * width, sizes)
        for f in range(filters):
            number = image % groups * filters + f
            at = number * count
            value = bias[number]
            for y in range(0, oh, lines):
                m = min(lines, oh - y)
                n = _U((m * wide + 31) // 32 * 32)
                start = y * wide
                k = 0
                while k < nines:
                    a, b, c = _U(start + taps[k]), _U(start + taps[k + 3]), _U(start + taps[k + 6])
                    _nine(sums, n, plane, a, b, c, w, at + k, value, k == 0)
                    k += 9
                while k + 3 <= count:
                    a, b, c = _U(start + taps[k]), _U(start + taps[k + 1]), _U(start + taps[k + 2])
                    _three(sums, n, plane, a, b, c, w, at + k, value, k == 0)
                    k += 3
                while k < count:
                    a, b = _U(start + taps[k]), w[at + k]
                    for i in range(n):
                        sums[i] = (value if k == 0 else sums[i]) + plane[a + i] * b
                    k += 1
                to = ((image * filters + f) * oh + y) * ow
                for r in range(m):
                    a, b = _U(to + r * ow), _U(r * wide)
                    for i in range(_U(ow)):
                        z = sums[b + i]
                        out[a + i] = _clip(np.rint(z) if rounds else z, low, high)


@compiled(_ROWS, _IN, _IN, t.float32, _OUT_ROWS, _OUT, _OUT, t.int64, t.int64, fastmath=_REORDER)
def layer_norm(x, scale, bias, epsilon, out, means, inverses, first, last):
    """Normalize rows ``first:last``, then scale and shift them; write their means and 1 / deviations too."""
    width = x.shape[1]
    for r in range(first, last):
        total = _F(0)
        for i in range(width):
            total += x[r, i]
        mean = _F(total / _F(width))
        total = _F(0)
        for i in range(width):
            d = x[r, i] - mean
            total += d * d
        inverse = _F(_F(1) / np.sqrt(total / _F(width) + epsilon))
        for i in range(width):
            out[r, i] = (x[r, i] - mean) * inverse * scale[i] + bias[i]
        means[r], inverses[r] = mean, inverse


@compiled(_ROWS, _OUT_ROWS, t.int64, t.int64, fastmath=_REORDER)
def softmax(x, out, first, last):
    """Compute the softmax of rows ``first:last``."""
    width = x.shape[1]
    for r in range(first, last):
        most = x[r, 0]
        for i in range(width):
            most = x[r, i] if x[r, i] > most or x[r, i] != x[r, i] else most
        total = _F(0)
        for i in range(width):
            e = _exp(x[r, i] - most)
            out[r, i] = e
            total += e
        share = _F(1) / total
        for i in range(width):
            out[r, i] *= share


@compiled(_ROWS, _ROWS, _OUT_ROWS, _OUT_ROWS)
def lstm_step(gates, carried, cell, out):
    """Take the step of an LSTM from the sums of its gates (input, output, forget, new), and change its cell."""
    n = cell.shape[1]
    for b in range(cell.shape[0]):
        for i in range(n):
            enter = _sigmoid(gates[b, i] + carried[b, i])
            keep = _sigmoid(gates[b, 2 * n + i] + carried[b, 2 * n + i])
            new = _tanh(gates[b, 3 * n + i] + carried[b, 3 * n + i])
            now = keep * cell[b, i] + enter * new
            cell[b, i] = now
            out[b, i] = _sigmoid(gates[b, n + i] + carried[b, n + i]) * _tanh(now)
