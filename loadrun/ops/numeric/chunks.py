"""Elementwise work in pieces: several threads for large arrays, pieces that stay in the cache for long formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import prod

import numpy as np

from ...graph.dtypes import Array
from .parallel import parallel, threads

__all__ = ["PIECE", "broadcast", "filled", "in_chunks", "in_rows", "short_buffers"]

PIECE = 1 << 16
"""Elements of a piece of a formula with many steps: its temporaries stay in the cache."""
_BUFFER = 1024
"""Elements of numpy's buffers where they are short."""
_FILLED = 1 << 16
"""Longest array of one value."""
_SHARE = 1 << 17
"""Fewer elements are not worth waking another thread."""
_MANY_STEPS_SHARE = 1 << 20
"""The same for formulas with many steps, whose short calls contend for the interpreter."""


@lru_cache(maxsize=32)
def _constant(value: float) -> Array:
    a = np.full(_FILLED, value, np.float32)
    a.flags.writeable = False
    return a


def filled(value: float, like: Array) -> Array | np.float32:
    """Return a float32 operand of one value for `like`: numpy's maximum and minimum are slow with a scalar.

    An array of the shape of `like` (which no caller may change) unless that is very small or large, else a scalar.

    >>> filled(6.0, np.zeros((20, 30))).shape, float(filled(6.0, np.zeros(3)))
    ((20, 30), 6.0)
    """
    n = like.size
    return _constant(value)[:n].reshape(like.shape) if 256 < n <= _FILLED else np.float32(value)


@contextmanager
def short_buffers() -> Iterator[None]:
    """Let numpy's loops run on arrays whose rows it would copy into its buffers first: broadcast ones, and views.

    It does so for rows that are shorter than a buffer, whether they need it or not, and then takes two to four times
    as long. For rows of less than some 500 elements buffers are the better way.

    >>> with short_buffers():
    ...     (np.zeros((2, 600)) + np.ones((2, 1))).sum()
    np.float64(1200.0)
    """
    before = np.setbufsize(_BUFFER)
    try:
        yield
    finally:
        np.setbufsize(before)


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of an elementwise result; an axis of size 0 wins over every other size, as in MegEngine.

    Raises:
        ValueError: two sizes above 1 differ.

    >>> broadcast([(3, 1, 5), (4, 1), (1,)])
    (3, 4, 5)
    """
    first = shapes[0]
    if shapes.count(first) == len(shapes):
        return first
    ndim = max(map(len, shapes))
    out = [1] * ndim
    for shape in shapes:
        for i, n in enumerate(shape, ndim - len(shape)):
            have = out[i]
            if n != have and n > 1 and have > 1:
                raise ValueError(f"shapes {', '.join(str(list(s)) for s in shapes)} do not broadcast")
            out[i] = 0 if not n or not have else max(n, have)
    return tuple(out)


def in_chunks(func: Callable[..., object], out: Array, xs: Sequence[Array], many_steps: bool = False) -> None:
    """Call ``func(out, *xs)`` on matching pieces of the arrays, which broadcast to the shape of `out`.

    Args:
        func: writes the result for its pieces into its first argument; must work element by element.
        out: the result, C-contiguous; may be the same memory as an input of its shape.
        xs: the inputs.
        many_steps: whether `func` makes temporaries, so that small pieces pay.
    """
    size = out.size
    if not size:
        return
    if size <= (PIECE if many_steps else _SHARE) or (not many_steps and threads() == 1):
        func(out, *xs)
        return
    shape = out.shape
    if all(x.size == 1 or (x.shape == shape and x.flags.c_contiguous) for x in xs):
        out = out.reshape(-1)
        xs = [x.reshape(-1) for x in xs]
        shape = out.shape
    lead = 0
    while lead < len(shape) - 1 and shape[lead] == 1:
        lead += 1
    out = out.reshape(shape[lead:])
    rows = out.shape[0]
    pieces = [x.reshape(x.shape[len(x.shape) - out.ndim :]) if x.ndim > out.ndim else x for x in xs]
    cut = [x.ndim == out.ndim and x.shape[0] == rows and rows > 1 for x in pieces]
    width = prod(out.shape[1:])
    step = max(1, PIECE // width) if many_steps else -(-rows // threads())
    if out.ndim == 1:
        # Functions may treat an array's last elements differently, so pieces keep its groups of 64 together.
        step = -(-step // 64) * 64

    def work(i: int) -> None:
        s = slice(i * step, (i + 1) * step)
        func(out[s], *(x[s] if c else x for x, c in zip(pieces, cut, strict=True)))

    n = -(-rows // step)
    if size <= (_MANY_STEPS_SHARE if many_steps else _SHARE):
        for i in range(n):
            work(i)
    else:
        parallel(work, n)


def in_rows(func: Callable[[slice], None], rows: int, width: int) -> None:
    """Call `func` on slices of rows whose elements stay in the cache, on several threads.

    >>> in_rows(print, 3, 4)
    slice(0, 3, None)
    """
    step = max(1, PIECE // max(1, width))
    parallel(lambda i: func(slice(i * step, min(rows, (i + 1) * step))), -(-rows // step))
