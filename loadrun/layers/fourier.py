"""Discrete Fourier transforms as matrix products; a complex value is a pair of real tensors.

MegEngine has neither complex numbers nor transforms: an axis is multiplied by matrices of cosines and sines, which are
computed in float64.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..graph import params as P
from ..graph.dtypes import Array
from ..ops.registry import pay
from ..tensors.access import dtype_of
from ..tensors.convert import const
from ..tensors.products import matmul
from ..tensors.value import Tensor
from . import emit as e

_M = P.ElemwiseMode
_LARGEST = 1 << 24
"""Elements of the largest matrix."""


class Pair(NamedTuple):
    """Real and imaginary parts of equal shapes; no imaginary part where all of it is zero."""

    real: Tensor
    imag: Tensor | None = None


def transform(x: Pair, length: int, *, bins: int, inverse: bool = False) -> Pair:
    """Return the Fourier transform of the last axis, divided by its length if it is the inverse one.

    Args:
        x: float32 or float64 tensors of the shape (..., length).
        length: the size of the last axis.
        bins: how many frequencies are wanted.
        inverse: whether the exponent is positive.

    Returns:
        tensors of the shape (..., bins).

    Raises:
        ValueError: the axis is too long.

    >>> y = transform(Pair(Tensor([1.0, 2.0, 3.0, 4.0])), 4, bins=3)
    >>> y.real.tolist(), y.imag.tolist()
    ([10.0, -2.0, -2.0], [0.0, 2.0, 0.0])
    """
    lead = x.real.shape[:-1]
    y = _product(_each(x, (_total(lead), length)), *_waves(length, bins, length, inverse))
    return _each(y, (*lead, bins))


def real_of_half(x: Pair, length: int, bins: int) -> Tensor:
    """Return the real signal whose transform begins with these frequencies.

    The imaginary parts of the frequencies 0 and length / 2 do not count.

    Args:
        x: float32 or float64 tensors of the shape (..., bins).
        length: how many elements the signal has.
        bins: ``length // 2 + 1``.

    Raises:
        ValueError: the axis is too long.

    >>> real_of_half(Pair(Tensor([10.0, -2.0, -2.0]), Tensor([0.0, 2.0, 0.0])), 4, 3).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    lead = x.real.shape[:-1]
    cos, sin = _waves(bins, length, length, True)
    often = np.where(2 * np.arange(bins) % length == 0, 1, 2)[:, None]
    return e.reshape(_product(_each(x, (_total(lead), bins)), cos * often, sin * often).real, (*lead, length))


def _total(sizes: Iterable[int]) -> int:
    total = 1
    for n in sizes:
        total = total * n
    return total


def _each(x: Pair, shape: Sequence[int]) -> Pair:
    return Pair(e.reshape(x.real, shape), None if x.imag is None else e.reshape(x.imag, shape))


def _waves(rows: int, columns: int, period: int, inverse: bool) -> tuple[Array, Array]:
    """Return cosines and sines of all products of a row and a column."""
    if rows * columns > _LARGEST:
        raise ValueError(
            f"a Fourier transform of {period} elements; matrices have {_LARGEST} numbers at most"
        )
    pay(16 * rows * columns)
    return _computed_waves(rows, columns, period, inverse)


@lru_cache(maxsize=16)
def _computed_waves(rows: int, columns: int, period: int, inverse: bool) -> tuple[Array, Array]:
    # Integers are reduced to one period first: their angles are exact.
    place = np.outer(np.arange(rows), np.arange(columns)) % period
    angle = 2 * np.pi / period * place
    scale = 1 / period if inverse else 1.0
    sin = np.sin(angle) * (scale if inverse else -scale)
    # The transform of a real signal is real where it is its own mirror image; π as a float is not quite π.
    return np.cos(angle) * scale, np.where(2 * place % period == 0, 0.0, sin)


def _product(x: Pair, real: Array, imag: Array) -> Pair:
    """Multiply the rows by a complex matrix."""
    cos, sin = (const(v, dtype_of(x.real)) for v in (real, imag))
    if x.imag is None:
        return Pair(matmul(x.real, cos), matmul(x.real, sin))
    return Pair(
        e.elem(_M.SUB, matmul(x.real, cos), matmul(x.imag, sin)),
        e.elem(_M.ADD, matmul(x.real, sin), matmul(x.imag, cos)),
    )
