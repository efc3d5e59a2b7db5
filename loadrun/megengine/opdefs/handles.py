"""Generators of random operators by number, as MegEngine's compiled part gives them."""

from __future__ import annotations

import itertools
from typing import Any

from ...base.errors import UsageError
from ...graph.params import Record
from ...ops.numeric.stream import Stream
from ...ops.rng import drawing_from

__all__ = ["delete_rng_handle", "drawing", "new_rng_handle"]

_streams: dict[int, Stream] = {}
_numbers = itertools.count(1)


def new_rng_handle(device: Any, seed: int) -> int:
    """Return the number of a new generator, for the parameter `handle` of random operators.

    Args:
        device: accepted for MegEngine's sake.
        seed: where its numbers start.
    """
    handle = next(_numbers)
    _streams[handle] = Stream(seed)
    return handle


def delete_rng_handle(handle: int) -> None:
    """Forget a generator."""
    _streams.pop(handle, None)


def drawing(handle: int, records: tuple[Record, ...]) -> tuple[Record, ...]:
    """Return the records of an operator, which draws from the generator of that number unless it is 0.

    Raises:
        ValueError: there is no such generator.
    """
    if not handle:
        return records
    if handle not in _streams:
        raise UsageError(f"there is no generator of the number {handle}; make one with new_rng_handle")
    return (drawing_from(_streams[handle], records[0]), *records[1:])
