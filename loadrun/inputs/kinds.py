"""Data of other kinds than an example: other numbers, small ones, zeros, ties, the ends of integers, other sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..graph.dtypes import Array

TIES, OTHERS = "ties", "other numbers"


def at_sizes(feeds: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Repeat or cut arrays to other sizes, so that positions stay in range; real numbers shrink where they repeat.

    >>> at_sizes({"x": np.array([1, 2])}, {"x": (3,)})["x"].tolist()
    [1, 2, 1]
    """
    resized = {}
    rng = np.random.default_rng(1)
    for name, value in feeds.items():
        size = value.size
        for axis, n in enumerate(shapes.get(name, value.shape)):
            if n != value.shape[axis] and value.shape[axis]:
                value = np.take(value, np.arange(n) % value.shape[axis], axis)
        # Of numbers that are all the same nobody sees where they come from.
        shrunk = value.dtype.kind == "f" and value.size > size
        resized[name] = (value * rng.uniform(0.5, 1, value.shape)).astype(value.dtype) if shrunk else value
    return resized


def shaken(x: Array, eps: float) -> Array:
    """Return real numbers with other last digits; zeros, which may be ties, are none any more.

    >>> type(shaken(np.array(1, "f4"), 1e-7)).__name__
    'ndarray'
    """
    if x.dtype.kind != "f":
        return x
    signs = 1 - 2 * (np.arange(x.size) % 2).reshape(x.shape)
    steps = np.where(x == 0, x.dtype.type(1e-3), np.abs(x)) * (4 * max(eps, np.finfo(x.dtype).eps) * signs)
    return np.asarray((x + steps).astype(x.dtype))


def kinds(feeds: Mapping[str, Array], *, ordered: bool = False) -> Iterator[tuple[str, dict[str, Array]]]:
    """Yield data of other kinds by what they are; positions stay in range.

    Args:
        feeds: an example.
        ordered: whether numbers that go up along the last axis do so still, as borders and offsets must.

    >>> [kind for kind, _ in kinds({"x": np.ones(3, "f4")})]
    ['other numbers', 'numbers of 1e-4', 'zeros', 'ties']
    >>> [v["x"].tolist() for k, v in kinds({"x": np.array([0, 1, 2], "f4")}, ordered=True) if k == "ties"]
    [[-0.5, 0.5, 1.0]]
    """
    for kind, values in _kinds(feeds):
        yield kind, {n: np.sort(v, -1) if ordered and is_sorted(feeds[n]) else v for n, v in values.items()}


def is_sorted(x: Any) -> bool:  # noqa: ANN401 - of numpy or torch
    """Return whether numbers go up along the last axis."""
    return x.ndim > 0 and x.shape[-1] > 1 and bool((x[..., 1:] >= x[..., :-1]).all())


def _kinds(feeds: Mapping[str, Array]) -> Iterator[tuple[str, dict[str, Array]]]:
    rng = np.random.default_rng(1)
    floats = any(v.dtype.kind == "f" for v in feeds.values())
    yield OTHERS, {n: _redrawn(v, rng) for n, v in feeds.items()}
    if floats:
        small = {n: np.asarray(v * v.dtype.type(1e-4)) for n, v in feeds.items() if v.dtype.kind == "f"}
        yield "numbers of 1e-4", {**feeds, **small}
    yield "zeros", {n: np.zeros_like(v) for n, v in feeds.items()}
    if floats:
        yield TIES, {n: _halves(v) if v.dtype.kind == "f" else v for n, v in feeds.items()}
    if any(v.dtype.kind in "iu" and v.dtype.itemsize <= 2 for v in feeds.values()):
        yield "the ends of integers", {n: _ends(v) for n, v in feeds.items()}


def _redrawn(value: Array, rng: np.random.Generator) -> Array:
    if value.dtype.kind == "f":
        with np.errstate(all="ignore"):
            size = float(np.abs(value).mean()) if value.size else 1.0
        scale = size if 0 < size < np.inf else 1.0
        drawn: Array = np.asarray(rng.normal(size=value.shape) * scale)
        return drawn.astype(value.dtype)
    return value.reshape(-1)[rng.permutation(value.size)].reshape(value.shape)


def _halves(value: Array) -> Array:
    """Return multiples of one half: 0.5, -0.5, 1, -1, up to 8 and back."""
    k = np.arange(value.size) % 32
    halves: Array = (k // 2 + 1) / 2 * (1 - 2 * (k % 2))
    return halves.reshape(value.shape).astype(value.dtype)


def _ends(value: Array) -> Array:
    if value.dtype.kind not in "iu" or value.dtype.itemsize > 2:
        return value
    limits = np.iinfo(value.dtype)
    ends: Array = np.where(np.arange(value.size) % 2, limits.max, limits.min)
    return ends.reshape(value.shape).astype(value.dtype)
