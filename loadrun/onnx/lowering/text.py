"""Text that is known when the model is loaded: MegEngine has none, so it must become numbers in the end."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from ...graph.dtypes import Array
from ...ops.registry import pay
from ..call import NodeCall, lower
from ..tensors import STRING
from ..values import BOOL, INT64, UnsupportedNodeError, Value, objects

__all__ = ["equal_texts", "is_text", "text_of"]


def is_text(c: NodeCall, i: int) -> bool:
    """Return whether an input holds text."""
    return c.has(i) and c.kind(i) == STRING


def text_of(c: NodeCall, i: int) -> Array:
    """Return the text of an input as Python strings."""
    value = c.value(i)
    if value.kind != STRING or value.array is None:
        raise UnsupportedNodeError(f"its input {i} is not text that is known when the model is loaded")
    return value.array


def equal_texts(c: NodeCall) -> Value:
    """Tell where two texts are the same."""
    return Value(BOOL, array=np.asarray(text_of(c, 0) == text_of(c, 1), np.bool_))


@lower("StringConcat")
def _concat(c: NodeCall) -> Value:
    a, b = text_of(c, 0), text_of(c, 1)
    longest = sum(max(map(len, v.flat), default=0) for v in (a, b))
    pay(4 * longest * prod(np.broadcast_shapes(a.shape, b.shape)))
    return Value(STRING, array=np.asarray(a + b, object))


@lower("StringSplit")
def _split(c: NodeCall) -> tuple[Value, Value]:
    """Split every text along a new last axis, padded with empty strings; return the counts too."""
    x = text_of(c, 0)
    delimiter = c.text("delimiter") or None
    most = c.number("maxsplit", -1) if "maxsplit" in c.attributes else -1
    rows = [v.split(delimiter, most) if v else [] for v in x.flat]
    width = max(map(len, rows), default=0)
    parts = np.full((len(rows), width), "", object)
    for i, row in enumerate(rows):
        parts[i, : len(row)] = row
    counts = np.array([len(row) for row in rows], np.int64)
    return (
        Value(STRING, array=parts.reshape(*x.shape, width)),
        Value(INT64, array=counts.reshape(x.shape)),
    )


@lower("StringNormalizer")
def _normalizer(c: NodeCall) -> Value:
    """Convert texts to one case, without stop words."""
    x = text_of(c, 0)
    case = c.text("case_change_action", "NONE")
    changes: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    change = changes.get(case)
    if change is None:
        raise UnsupportedNodeError(
            f"its case_change_action {case!r} is unknown, expected LOWER, UPPER or NONE"
        )
    sensitive = c.flag("is_case_sensitive")
    stop = c.texts("stopwords") or []
    words = set(stop) if sensitive else {w.lower() for w in stop}
    rows = x.reshape(-1, x.shape[-1]) if x.ndim else x.reshape(1, 1)
    kept = [v for v in rows[0] if (v if sensitive else v.lower()) not in words] if len(rows) == 1 else None
    if kept is None:
        raise UnsupportedNodeError(f"its text has the shape {list(x.shape)}, expected [C] or [1, C]")
    texts = objects(change(v) for v in (kept or [""]))
    return Value(STRING, array=texts.reshape(1, -1) if x.ndim == 2 else texts)
