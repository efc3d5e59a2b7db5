"""Sizes per axis, given as one number or as a sequence."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

__all__ = ["pair", "pair_nonzero", "sizes", "triple", "triple_nonzero"]


def sizes(value: Any, *, count: int, least: int) -> tuple[int, ...]:
    """One number per axis.

    Raises:
        AssertionError: a number is less than `least`, or the sequence has another length.
    """
    numbers = tuple(int(v) for v in value) if isinstance(value, Iterable) else (int(value),) * count
    if len(numbers) != count:
        raise AssertionError(f"expected one number or {count}, found {value}")
    if min(numbers) < least:
        raise AssertionError(f"expected numbers from {least} on, found {value}")
    return numbers


pair = partial(sizes, count=2, least=0)
pair_nonzero = partial(sizes, count=2, least=1)
triple = partial(sizes, count=3, least=0)
triple_nonzero = partial(sizes, count=3, least=1)
