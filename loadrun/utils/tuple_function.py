"""Sizes per axis, given as one number or as a sequence; code for MegEngine takes them from here."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..module.sizes import pair, pair_nonzero, sizes, triple, triple_nonzero

__all__ = ["get_ndtuple"]


def get_ndtuple(value: Any, *, n: int, allow_zero: bool = True) -> tuple[int, ...]:
    """One number for each of `n` axes.

    Raises:
        AssertionError: a negative number (or 0, unless `allow_zero`), or a sequence of another length.

    >>> get_ndtuple(3, n=2), get_ndtuple([1, 2], n=2)
    ((3, 3), (1, 2))
    """
    return sizes(value, count=n, least=0 if allow_zero else 1)


_single = partial(get_ndtuple, n=1)
_pair, _pair_nonzero = pair, pair_nonzero
_triple, _triple_nonzero = triple, triple_nonzero
_quadruple = partial(get_ndtuple, n=4)
