"""TfIdfVectorizer on numbers: every window is compared with every n-gram of the pool at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ...build import emit as e
from ...graph import params as P
from ...graph.dtypes import Array
from ...ops.registry import pay
from ...tensors import Tensor, const
from ...tensors.access import static_shape
from ..call import NodeCall, lower
from ..values import FLOAT, UnsupportedNodeError, Value
from . import M, cast, const_like, of_length
from .linalg import gemm

__all__: list[str] = []

_EQ = P.ElemwiseMultiTypeMode.EQ
_MOST, _MOST_PLACES = 1 << 20, 1 << 26


def _required(c: NodeCall, name: str) -> int:
    if name not in c.attributes:
        raise UnsupportedNodeError(f"it has no {name}")
    return c.number(name)


def _pool(c: NodeCall, columns: int) -> list[tuple[Array, int]]:
    """Read the n-grams of each length, (G, n), with the index of the first of them."""
    pool = np.array(c.ints("pool_int64s") or [], np.int64)
    if c.texts("pool_strings"):
        raise UnsupportedNodeError("its n-grams are text, which MegEngine does not support")
    starts = [*(c.ints("ngram_counts") or []), len(pool)]
    if starts[0] < 0 or any(a > b for a, b in pairwise(starts)):
        raise UnsupportedNodeError(
            f"ngram_counts are {starts[:-1][:8]}, expected rising places in {len(pool)} numbers"
        )
    groups, number = [], 0
    for n, (low, high) in enumerate(pairwise(starts), 1):
        if (high - low) % n:
            raise UnsupportedNodeError(f"{high - low} numbers of its pool are not whole {n}-grams")
        groups.append((pool[low:high].reshape(-1, n), number))
        number += (high - low) // n
    if number != columns:
        raise UnsupportedNodeError(f"ngram_indexes has {columns} entries for {number} n-grams")
    return groups


def _counts(rows: Tensor, grams: Array, skips: range) -> Tensor | None:
    """Count each n-gram in rows (N, L) at a given skip: (N, G), or None if none can occur."""
    length, n = static_shape(rows)[1], grams.shape[1]
    if length * len(grams) > _MOST_PLACES:
        raise UnsupportedNodeError(
            f"{len(grams)} n-grams would be compared at {length} places, at most {_MOST_PLACES} comparisons per row"
        )
    total = None
    for skip in skips:
        width = length - skip * (n - 1)
        if width < 1:
            break
        same = None
        for k in range(n):
            part = e.subtensor(rows, [(1, k * skip, k * skip + width, None, None)])
            one = e.compare(_EQ, e.add_axes(part, [2]), const(grams[:, k].astype(np.int32)))
            same = one if same is None else e.elem(M.AND, same, one)
        assert same is not None
        counts = e.reduce(cast(same, "float32"), P.ReduceMode.SUM, [1])
        total = counts if total is None else e.elem(M.ADD, total, counts)
    return total


@lower("TfIdfVectorizer")
def _vectorize(c: NodeCall) -> Value:
    mode = c.text("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise UnsupportedNodeError(f"its mode is {mode!r}, expected TF, IDF or TFIDF")
    indexes = np.array(c.ints("ngram_indexes") or [], np.int64)
    if not len(indexes) or indexes.min() < 0 or indexes.max() >= _MOST:
        raise UnsupportedNodeError(f"ngram_indexes must be numbers from 0 to {_MOST - 1}")
    low, high = _required(c, "min_gram_length"), _required(c, "max_gram_length")
    most_skips = _required(c, "max_skip_count")
    pool = _pool(c, len(indexes))
    x = c.t(0)
    rows = cast(e.reshape(x, (1, -1)) if x.ndim < 2 else x, "int32")
    if rows.ndim != 2:
        raise UnsupportedNodeError(f"its input has {x.ndim} axes, expected one or two")
    rows = of_length(rows, 1)
    size = int(indexes.max()) + 1
    parts, columns, numbers = [], [], []
    for n, (grams, first) in enumerate(pool, 1):
        if not low <= n <= high or not len(grams):
            continue
        # Of equal n-grams the last counts; numbers beyond 32 bits are in no input.
        _, last = np.unique(grams[::-1], axis=0, return_index=True)
        kept = np.sort(len(grams) - 1 - last)
        kept = kept[((grams[kept] >= -(2**31)) & (grams[kept] < 2**31)).all(1)]
        # A skip means nothing to single numbers, so they count once.
        skips = range(1, 2 if n == 1 else max(most_skips, 0) + 2)
        counts = _counts(rows, grams[kept], skips) if len(kept) else None
        if counts is not None:
            parts.append(counts)
            numbers.append(first + kept)
            columns.append(indexes[first + kept])
    kept_indexes = np.concatenate(columns) if columns else np.zeros(0, np.int64)
    weights = _weights(c, mode, len(indexes))
    if mode == "IDF":
        parts = [cast(e.compare(P.ElemwiseMultiTypeMode.LT, const_like(0, p), p), "float32") for p in parts]
        if len(np.unique(kept_indexes)) != len(kept_indexes):
            raise UnsupportedNodeError(
                "several of its n-grams count for one column, of which IDF takes one weight"
            )
    if weights is not None:
        parts = [e.elem(M.MUL, p, const(weights[w])) for p, w in zip(parts, numbers, strict=True)]
    result = _placed(rows, parts, kept_indexes, size)
    return Value(FLOAT, e.reshape(result, (size,)) if x.ndim < 2 else result)


def _weights(c: NodeCall, mode: str, count: int) -> Array | None:
    """Return the weight of every n-gram, or None if all count the same."""
    weights = np.array(c.floats("weights") or [], np.float32)
    if mode == "TF" or not len(weights):
        return None
    if len(weights) != count:
        raise UnsupportedNodeError(f"weights has {len(weights)} entries for {count} n-grams")
    return weights


def _placed(rows: Tensor, parts: list[Tensor], where: Array, size: int) -> Tensor:
    """Place counts (N, size), each in its column."""
    none = e.full(const(np.zeros(1, np.float32)), (rows.shape[0], 1))
    if not parts:
        return e.broadcast(none, (rows.shape[0], size))
    counts = e.concat([*parts, none], 1)
    if len(np.unique(where)) == len(where):
        pay(4 * size)
        at = np.full(size, len(where), np.int32)
        at[where] = np.arange(len(where), dtype=np.int32)
        return e.gather(counts, [(1, const(at))])
    if size * (len(where) + 1) > 1 << 26:
        raise UnsupportedNodeError(
            "several of its n-grams count for one column, and there are too many of them"
        )
    table = np.zeros((len(where) + 1, size), np.float32)
    np.add.at(table, (np.arange(len(where)), where), 1)
    return gemm(counts, const(table))
