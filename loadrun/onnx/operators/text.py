"""Text: arrays of Python's strings, and TfIdfVectorizer."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from ...arrays.names import kernel, np
from ...graph.dtypes import Array
from . import operator
from .common import once, one_of, refuse_unless, taking

operator("StringConcat", since=20)(lambda x, y: np.asarray(x + y, object))


@operator("StringSplit", since=20, out=("String", "Int64"))
def string_split(
    x: Array, *, delimiter: str | None = None, maxsplit: int | None = None
) -> tuple[Array, Array]:
    """Split every text along a new last axis, which is filled up with empty texts; return the counts too."""
    most = -1 if maxsplit is None else maxsplit
    rows = [v.split(delimiter or None, most) if v else [] for v in x.flat]
    width = max(map(len, rows), default=0)
    parts = np.full((len(rows), width), "", object)
    for i, row in enumerate(rows):
        parts[i, : len(row)] = row
    return parts.reshape(*x.shape, width), np.array([len(row) for row in rows], np.int64).reshape(x.shape)


@operator("StringNormalizer", since=10)
def string_normalizer(
    x: Array,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: Sequence[str] = (),
) -> Array:
    """Convert texts (C,) or (1, C) to one case, without stop words; one empty text remains of none."""
    one_of("case_change_action", case_change_action, "NONE", "LOWER", "UPPER")
    refuse_unless(
        x.ndim == 1 or (x.ndim == 2 and len(x) == 1),
        f"its text has the shape {list(x.shape)}, expected [C] or [1, C]",
    )
    changes: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    change, alike = changes[case_change_action], changes["NONE" if is_case_sensitive else "LOWER"]
    words = {alike(w) for w in stopwords}
    texts = np.array([change(v) for v in x.flat if alike(v) not in words] or [""], object)
    return texts.reshape(1, -1) if x.ndim == 2 else texts


@operator("RegexFullMatch", since=20, out=("Bool",))
def regex_full_match(x: Array, *, pattern: str = "") -> Array:
    """Tell which texts a pattern matches as a whole.

    ONNX means the syntax of RE2; Python's has all of it but a few escapes and flags, and more besides.
    """
    try:
        matches = re.compile(pattern).fullmatch
    except re.error as e:
        raise ValueError(f"its pattern {pattern!r} is none: {e}") from e
    return np.array([matches(v) is not None for v in x.flat], bool).reshape(x.shape)


_MOST = 1 << 20


def _pool(grams: Sequence[Any], starts: Sequence[int], columns: int) -> list[dict[tuple[Any, ...], int]]:
    """Return the number of every n-gram, for each length; of equal ones the last counts."""
    ends = [*starts, len(grams)]
    refuse_unless(
        ends[0] >= 0 and all(a <= b for a, b in pairwise(ends)),
        f"ngram_counts are {list(starts[:8])}, expected rising places in {len(grams)} entries of the pool",
    )
    numbers: list[dict[tuple[Any, ...], int]] = []
    total = 0
    for n, (low, high) in enumerate(pairwise(ends), 1):
        refuse_unless((high - low) % n == 0, f"{high - low} entries of its pool are not whole {n}-grams")
        numbers.append({tuple(grams[at : at + n]): total + i for i, at in enumerate(range(low, high, n))})
        total += (high - low) // n
    refuse_unless(total == columns, f"ngram_indexes has {columns} entries for {total} n-grams")
    return numbers


def _prepared(
    x: Array,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] = (),
    pool_strings: Sequence[str] = (),
    weights: Sequence[float] = (),
) -> tuple[tuple[int, ...], list[dict[tuple[Any, ...], int]]]:
    """Return the shape of the result, and the n-grams."""
    one_of("mode", mode, "TF", "IDF", "TFIDF")
    refuse_unless(x.ndim < 3, f"its input has {x.ndim} axes, expected one or two")
    fits = len(ngram_indexes) > 0 and min(ngram_indexes) >= 0 and max(ngram_indexes) < _MOST
    refuse_unless(fits, f"ngram_indexes must be numbers from 0 to {_MOST - 1}")
    columns = len(ngram_indexes)
    refuse_unless(
        mode == "TF" or len(weights) in (0, columns),
        f"weights has {len(weights)} entries for {columns} n-grams",
    )
    pool = _pool(pool_strings if x.dtype == object else pool_int64s, ngram_counts, columns)
    used = [i for n, g in enumerate(pool, 1) if min_gram_length <= n <= max_gram_length for i in g.values()]
    refuse_unless(
        mode != "IDF" or len({ngram_indexes[i] for i in used}) == len(used),
        "several of its n-grams count for one column, of which IDF takes one weight",
    )
    return (*x.shape[:-1], max(ngram_indexes) + 1), pool


@operator(
    "TfIdfVectorizer", since=9, out=("Float32",), shape=lambda x, **attributes: _prepared(x, **attributes)[0]
)
@taking(
    **dict.fromkeys(("max_gram_length", "max_skip_count", "min_gram_length", "mode")),
    **dict.fromkeys(("ngram_counts", "ngram_indexes", "pool_int64s", "pool_strings", "weights"), ()),
)
def tf_idf_vectorizer(x: Array, **given: Any) -> Array:
    """Count n-grams in rows of numbers or texts, with up to so many elements left out between two of theirs."""
    ngram_indexes, mode, weights = given["ngram_indexes"], given["mode"], given.get("weights", ())
    _, pool = once(ngram_indexes, "pool", lambda: _prepared(x, **given))
    columns = len(ngram_indexes)
    rows = x if x.ndim == 2 else x.reshape(1, -1)
    counts = np.zeros((rows.shape[0], columns))
    for n in range(max(given["min_gram_length"], 1), min(given["max_gram_length"], len(pool)) + 1):
        # A skip means nothing to single elements, so they count once.
        skips = range(1, 2 if n == 1 else min(max(given["max_skip_count"], 0) + 2, rows.shape[1] + 1))
        counts = counts + counted(rows, pool[n - 1], columns, skips)
    if mode == "IDF":
        counts = np.minimum(counts, 1)
    if mode != "TF" and weights:
        counts = counts * np.array(weights)
    place = np.zeros((columns, max(ngram_indexes) + 1))
    place[np.arange(columns), ngram_indexes] = 1
    result = (counts @ place).astype(np.float32)
    return result if x.ndim == 2 else result[0]


@kernel
def counted(rows: Array, grams: dict[tuple[Any, ...], int], columns: int, skips: Iterable[int]) -> Array:
    """Count every n-gram of one length in rows (N, L), with its elements so far apart: (N, columns)."""
    counts = np.zeros((rows.shape[0], columns))
    for count, row in zip(counts, rows.tolist(), strict=True):
        for step in skips:
            for gram in zip(*(row[k * step :] for k in range(len(next(iter(grams), ())))), strict=False):
                if gram in grams:
                    count[grams[gram]] += 1
    return counts
