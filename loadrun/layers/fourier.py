"""Discrete Fourier transforms as matrix products; a complex value is a pair of real tensors.

MegEngine has neither complex numbers nor transforms. Short axes are products with matrices of cosines and sines. A long
axis of n = a * b elements takes two products, with matrices of a and b rows (Cooley and Tukey), so that neither the
constants nor the work grow with the square of n; one whose length is a large prime becomes a convolution of another
length (Bluestein). Matrices are computed in float64, in the graph where the length is symbolic.
"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..graph import params as P
from ..graph.dtypes import Array
from ..ops.registry import pay
from ..tensors.access import dtype_of, recorded
from ..tensors.convert import const
from ..tensors.reducing import matmul
from ..tensors.symbolic import TracedInt
from ..tensors.value import Tensor
from . import emit as e

_M = P.ElemwiseMode
_DIRECT = 1 << 17
"""Elements of the largest matrix for one product: with smaller ones, two products take longer than one."""
_PRIME = 1 << 18
"""The same where the length is a prime, which cannot be split."""


Waves = tuple[Tensor, Tensor]


class Pair(NamedTuple):
    """Real and imaginary parts of equal shapes; no imaginary part where all of it is zero."""

    real: Tensor
    imag: Tensor | None = None


def transform(
    x: Pair, length: int, *, bins: int | None = None, inverse: bool = False, power: float = 0.0
) -> Pair:
    """Return the Fourier transform of the last axis.

    Args:
        x: float32 or float64 tensors of the shape (..., length).
        length: the size of the last axis; an int where it is fixed, else a symbolic size.
        bins: how many frequencies are wanted, all by default.
        inverse: whether the exponent is positive.
        power: the result is divided by ``length ** power``.

    Returns:
        tensors of the shape (..., bins).

    >>> y = transform(Pair(Tensor([1.0, 2.0, 3.0, 4.0])), 4, bins=3)
    >>> y.real.tolist(), y.imag.tolist()
    ([10.0, -2.0, -2.0], [0.0, 2.0, 0.0])
    """
    pay(64 * int(length))
    lead = x.real.shape[:-1]
    rows = _total(lead)
    flat = _each(x, (rows, length))
    bins = length if bins is None else bins
    if isinstance(length, TracedInt):
        y = _product(flat, _symbolic_waves(length, bins, length, inverse, power))
    else:
        y = _static(flat, length, bins, inverse, float(length) ** -power)
        if x.imag is None and y.imag is not None and length * bins > _DIRECT:
            mirrored = 2 * np.arange(bins) % length == 0
            y = Pair(y.real, e.elem(_M.MUL, y.imag, const(np.where(mirrored, 0.0, 1.0), dtype_of(y.imag))))
    return _each(y, (*lead, bins))


def real_of_half(x: Pair, length: int, bins: int, *, power: float = 1.0) -> Tensor:
    """Return the real signal whose transform begins with these frequencies.

    The imaginary parts of the frequencies 0 and length / 2 do not count.

    Args:
        x: float32 or float64 tensors of the shape (..., bins).
        length: how many elements the signal has; an int where it is fixed, else a symbolic size.
        bins: ``length // 2 + 1``.
        power: the result is divided by ``length ** power``.

    >>> real_of_half(Pair(Tensor([10.0, -2.0, -2.0]), Tensor([0.0, 2.0, 0.0])), 4, 3).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    lead = x.real.shape[:-1]
    flat = _each(x, (_total(lead), bins))
    if isinstance(length, TracedInt):
        cos, sin = _symbolic_waves(bins, length, length, True, power)
        twice = e.reshape(_weights(bins, length), (bins, 1))
        waves = e.elem(_M.MUL, cos, twice), e.elem(_M.MUL, sin, twice)
        y = _product(flat, waves, real_only=True).real
    elif length * bins <= _DIRECT:
        real, imag = _waves(bins, length, length, True, float(length) ** -power)
        often = np.where(2 * np.arange(bins) % length == 0, 1, 2)[:, None]
        y = _product(flat, _constants(real * often, imag * often, flat), real_only=True).real
    else:
        y = _static(_mirrored(flat, length, bins), length, length, True, float(length) ** -power).real
    return e.reshape(y, (*lead, length))


def _total(sizes: Iterable[int]) -> int:
    total = 1
    for n in sizes:
        total = total * n
    return total


def _each(x: Pair, shape: Sequence[int]) -> Pair:
    return Pair(e.reshape(x.real, shape), None if x.imag is None else e.reshape(x.imag, shape))


def _constants(real: Array, imag: Array, x: Pair) -> Waves:
    kind = dtype_of(x.real)
    return const(real, kind), const(imag, kind)


def _waves(rows: int, columns: int, period: int, inverse: bool, scale: float) -> tuple[Array, Array]:
    """Compute cosines and sines of all products of a row and a column, in float64."""
    # Integers are reduced to one period first: their angles are exact.
    pay(16 * rows * columns)
    place = np.outer(np.arange(rows), np.arange(columns)) % period
    angle = 2 * np.pi / period * place
    sin = np.sin(angle) * (scale if inverse else -scale)
    # The transform of a real signal is real where it is its own mirror image; π as a float is not quite π.
    return np.cos(angle) * scale, np.where(2 * place % period == 0, 0.0, sin)


@lru_cache(maxsize=64)
def _matrix(n: int, bins: int, inverse: bool, scale: float) -> tuple[Array, Array]:
    return _waves(n, bins, n, inverse, scale)


def _symbolic_waves(rows: int, columns: int, period: int, inverse: bool, power: float) -> Waves:
    """Compute the same for a symbolic period, as values of the graph."""
    n = _number(period)
    down, across = e.reshape(e.arange(rows), (rows, 1)), e.reshape(e.arange(columns), (1, columns))
    place = e.elem(_M.MOD, e.elem(_M.MUL, down, across), e.cast(n, "int32"))
    angle = e.elem(_M.MUL, e.elem(_M.TRUE_DIV, e.cast(place, "float32"), n), e.number(2 * math.pi, n))
    cos, sin = e.elem(_M.COS, angle), e.elem(_M.SIN, angle)
    index = e.elem(_M.MIN, _twice_over(place, n), e.number(1, n))
    sin = e.elem(_M.MUL, sin, index if inverse else e.elem(_M.NEGATE, index))
    if power:
        scale = e.elem(_M.POW, n, e.number(-power, n))
        cos, sin = e.elem(_M.MUL, cos, scale), e.elem(_M.MUL, sin, scale)
    return cos, sin


def _number(size: int) -> Tensor:
    scalar = recorded(size) if isinstance(size, TracedInt) else None
    return e.cast(const(np.int32(int(size))) if scalar is None else scalar, "float32")


def _twice_over(place: Tensor, n: Tensor) -> Tensor:
    """Return the remainder of twice an integer by n: 0 if a frequency is its own mirror image."""
    twice = e.elem(_M.MUL, place, const(np.int32(2)))
    return e.cast(e.elem(_M.MOD, twice, e.cast(n, "int32")), "float32")


def _weights(bins: int, length: int) -> Tensor:
    """Return how often each frequency of half a spectrum counts: once where it is its own mirror image, else twice."""
    rest = _twice_over(e.arange(bins), _number(length))
    return e.elem(_M.ADD, e.elem(_M.MIN, rest, e.number(1, rest)), e.number(1, rest))


def _product(x: Pair, waves: Waves, real_only: bool = False) -> Pair:
    """Multiply the rows by a complex matrix."""
    waves = e.cast(waves[0], dtype_of(x.real)), e.cast(waves[1], dtype_of(x.real))
    cos, sin = waves
    real = matmul(x.real, cos)
    if x.imag is None:
        return Pair(real, None if real_only else matmul(x.real, sin))
    real = e.elem(_M.SUB, real, matmul(x.imag, sin))
    if real_only:
        return Pair(real)
    return Pair(real, e.elem(_M.ADD, matmul(x.real, sin), matmul(x.imag, cos)))


def _times(x: Pair, waves: Waves) -> Pair:
    """Multiply the elements by complex numbers."""
    cos, sin = waves
    real = e.elem(_M.MUL, x.real, cos)
    if x.imag is None:
        return Pair(real, e.elem(_M.MUL, x.real, sin))
    return Pair(
        e.elem(_M.SUB, real, e.elem(_M.MUL, x.imag, sin)),
        e.elem(_M.ADD, e.elem(_M.MUL, x.real, sin), e.elem(_M.MUL, x.imag, cos)),
    )


def _static(x: Pair, n: int, bins: int, inverse: bool, scale: float) -> Pair:
    """Transform the rows of a matrix of n columns."""
    divisor = _divisor(n)
    if n * bins <= (_PRIME if divisor == 1 else _DIRECT):
        return _product(x, _constants(*_matrix(n, bins, inverse, scale), x))
    if divisor == 1:
        return _convolved(x, n, bins, inverse, scale)
    return _split(x, divisor, n // divisor, bins, inverse, scale)


@lru_cache(maxsize=256)
def _divisor(n: int) -> int:
    """Return the largest divisor up to the square root; 1 for primes."""
    return next(a for a in range(math.isqrt(n), 0, -1) if n % a == 0) if n else 1


def _split(x: Pair, a: int, b: int, bins: int, inverse: bool, scale: float) -> Pair:
    """Transform a * b columns: every b-th, a turn of each, and what is between."""
    n, rows = a * b, x.real.shape[0]
    y = _turned(_each(x, (rows, a, b)))
    y = _static(_each(y, (rows * b, a)), a, a, inverse, 1.0)
    y = _times(_each(y, (rows, b, a)), _constants(*_waves(b, a, n, inverse, 1.0), x))
    # The frequency k + a * m ends up in row k and column m, so the first ones are in few columns.
    columns = min(b, -(-bins // a))
    y = _static(_each(_turned(y), (rows * a, b)), b, columns, inverse, scale)
    y = _each(_turned(_each(y, (rows, a, columns))), (rows, columns * a))
    if columns * a == bins:
        return y
    first = [(1, None, bins, None, None)]
    return Pair(e.subtensor(y.real, first), None if y.imag is None else e.subtensor(y.imag, first))


def _turned(x: Pair) -> Pair:
    return Pair(*(None if v is None else e.permute(v, (0, 2, 1)) for v in x))  # type: ignore[arg-type]


def _convolved(x: Pair, n: int, bins: int, inverse: bool, scale: float) -> Pair:
    """Transform n columns by a convolution with a chirp: 2 j k = j² + k² - (k - j)²."""
    size = 1 << (n + bins - 2).bit_length()
    pay(64 * size)
    turns = np.arange(max(n, bins), dtype=np.int64) ** 2 % (2 * n) / (2 * n)
    chirp = np.exp((2j if inverse else -2j) * np.pi * turns)
    kernel = np.zeros(size, complex)
    kernel[:bins] = chirp[:bins].conj()
    kernel[size - n + 1 :] = chirp[1:n][::-1].conj()
    answer = np.fft.fft(kernel) / size
    y = _padded(_times(x, _constants(chirp[:n].real, chirp[:n].imag, x)), size - n)
    y = _times(_static(y, size, size, False, 1.0), _constants(answer.real, answer.imag, x))
    y = _static(y, size, bins, True, 1.0)
    last = chirp[:bins] * scale
    return _times(y, _constants(last.real, last.imag, x))


def _padded(x: Pair, more: int) -> Pair:
    zeros = e.full(const(np.float32(0)), (x.real.shape[0], more))
    return Pair(*(None if v is None else e.concat([v, zeros], 1) for v in x))  # type: ignore[arg-type]


def _mirrored(x: Pair, length: int, bins: int) -> Pair:
    """Complete the spectrum of a real signal: what is missing are the conjugates, in reverse order."""
    back = [(1, length - bins, 0, -1, None)]
    real = e.concat([x.real, e.subtensor(x.real, back)], 1)
    if x.imag is None:
        return Pair(real)
    return Pair(real, e.concat([x.imag, e.elem(_M.NEGATE, e.subtensor(x.imag, back))], 1))
