"""Sizes per axis, given as one number or as a sequence."""

from collections.abc import Iterable
from functools import partial

__all__ = ["get_ndtuple"]


def _sizes(value: int | Iterable[int], *, count: int, least: int) -> tuple[int, ...]:
    """Return one number per axis.

    Raises:
        AssertionError: a number is less than `least`, or the sequence has another length.
    """
    numbers = tuple(int(v) for v in value) if isinstance(value, Iterable) else (int(value),) * count
    if len(numbers) != count:
        raise AssertionError(f"expected one number or {count}, found {value}")
    if min(numbers) < least:
        raise AssertionError(f"expected numbers from {least} on, found {value}")
    return numbers


def get_ndtuple(value: int | Iterable[int], *, n: int, allow_zero: bool = True) -> tuple[int, ...]:
    """Return one number for each of `n` axes.

    Raises:
        AssertionError: a negative number (or 0, unless `allow_zero`), or a sequence of another length.

    >>> get_ndtuple(3, n=2), get_ndtuple([1, 2], n=2)
    ((3, 3), (1, 2))
    """
    return _sizes(value, count=n, least=0 if allow_zero else 1)


_single = partial(_sizes, count=1, least=0)
_pair = partial(_sizes, count=2, least=0)
_pair_nonzero = partial(_sizes, count=2, least=1)
_triple = partial(_sizes, count=3, least=0)
_triple_nonzero = partial(_sizes, count=3, least=1)
_quadruple = partial(_sizes, count=4, least=0)
