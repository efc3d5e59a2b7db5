"""Pieces of two arrays, so that the memory needed to compare them does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..graph.dtypes import Array

__all__ = ["CHUNK", "as_numbers", "chunks"]

CHUNK = 1 << 15
"""Elements looked at in one go: the float64 temporaries of a chunk stay in the processor's cache."""


def as_numbers(x: Array, also: str = "") -> Array:
    """Return an array whose dtype has one of these kinds of numbers, or one of `also`.

    Raises:
        TypeError: another dtype.
    """
    x = np.asarray(x)
    if x.dtype.kind not in "iubf" + also:
        raise TypeError(f"{x.dtype} values cannot be compared as numbers")
    return x


def chunks(expect: Array, get: Array) -> Iterator[tuple[Array, Array]]:
    """Yield pieces of both arrays in C order, as native 1-d arrays; copies only what is not laid out so."""
    if not expect.size:
        return
    if expect.flags.c_contiguous and get.flags.c_contiguous and expect.dtype.isnative and get.dtype.isnative:
        e, g = expect.reshape(-1), get.reshape(-1)
        for i in range(0, e.size, CHUNK):
            yield e[i : i + CHUNK], g[i : i + CHUNK]
        return
    pairs = np.nditer(
        [expect, get],
        ["external_loop", "buffered"],
        [["readonly", "nbo", "aligned"]] * 2,
        order="C",
        buffersize=CHUNK,
    )
    yield from pairs
