"""Text: arrays of Python's strings."""

import re
from collections.abc import Callable, Sequence

from ...arrays.names import np
from ...graph.dtypes import Array
from . import operator
from .common import one_of, refuse_unless

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
