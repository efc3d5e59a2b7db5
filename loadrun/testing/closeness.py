"""Assertions that two arrays are close, with a message on how far and where they differ."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from ..base.errors import UsageError, UsageTypeError
from ..graph.dtypes import Array

_DEFAULTS = {"float16": (1e-3, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
"""Relative and absolute tolerance by dtype, those of ``torch.testing.assert_close``."""


def assert_close(
    actual: object,
    expected: object,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    msg: str | Callable[[str], str] = "",
) -> None:
    """Assert that every element is within ``atol + rtol * |expected|`` of the expected one.

    Args:
        actual, expected: arrays, what numpy makes arrays of, or lists, tuples and mappings of arrays, which are
            compared one by one.
        rtol, atol: tolerances, to be given together; by default by dtype as in ``torch.testing.assert_close``
            (float32: 1.3e-6 and 1e-5), and 0 for integers and booleans.
        equal_nan: whether NaN in the same places is equal.
        check_dtype: whether the dtypes must be the same.
        msg: what to say first, or a function that makes the whole message of the one that there would be.

    Raises:
        AssertionError: shapes, dtypes or values differ; the message counts the mismatched elements and gives the
            largest absolute and relative difference with their indices and what was allowed.
        UsageError: only one of the two tolerances was given, or one is negative or NaN.
        UsageTypeError: what is compared are no numbers, or an option is of a wrong type.

    >>> assert_close([1.0, 2.0], [1.0, 2.0000001])
    >>> assert_close([1.0, 2.5, 3.0], [1.0, 2.0, 3.0])
    Traceback (most recent call last):
        ...
    AssertionError: arrays are not close
    <BLANKLINE>
    Mismatched elements: 1 / 3 (33.3%)
    Greatest absolute difference: 0.5 at index (1,): 2.5, expected 2 (up to 1e-07 allowed)
    Greatest relative difference: 0.25 at index (1,): 2.5, expected 2 (up to 1e-07 allowed)
    """
    __tracebackhide__ = True
    if (rtol is None) != (atol is None):
        raise UsageError("pass both rtol and atol: one alone would be combined with a hidden default")
    if not ((rtol or 0.0) >= 0 and (atol or 0.0) >= 0):
        raise UsageError(f"tolerances must be numbers of at least 0, found rtol={rtol}, atol={atol}")
    head = msg if isinstance(msg, str) and msg else "arrays are not close"
    for place, x, y in _pairs(actual, expected, ""):
        said = x if isinstance(x, str) else _difference(x, y, rtol, atol, equal_nan, check_dtype)
        if said:
            at = f"The failure is at {place}\n\n" if place else ""
            text = f"{head}\n\n{at}{said}"
            raise AssertionError(msg(text) if callable(msg) else text)


def _pairs(actual: object, expected: object, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Arrays to compare and where they are; a text instead of the first for containers that do not fit."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if actual.keys() != expected.keys():
            yield place, f"Keys differ: {sorted(actual, key=str)}, expected {sorted(expected, key=str)}", None
            return
        for key in expected:
            yield from _pairs(actual[key], expected[key], f"{place}[{key!r}]")
    elif _holds_arrays(actual) and _holds_arrays(expected):
        if len(actual) != len(expected):
            yield place, f"Lengths differ: {len(actual)}, expected {len(expected)}", None
            return
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            yield from _pairs(a, e, f"{place}[{i}]")
    else:
        yield place, np.asarray(actual), np.asarray(expected)


def _holds_arrays(value: object) -> TypeGuard[Sequence[object]]:
    """Return whether a list or tuple holds arrays; one of numbers is an array itself."""
    return isinstance(value, (list, tuple)) and any(
        hasattr(v, "shape") or isinstance(v, Mapping) for v in value
    )


def _difference(
    x: Array, y: Array, rtol: float | None, atol: float | None, equal_nan: bool, check_dtype: bool
) -> str:
    """Describe how two arrays differ, nothing when they are close."""
    for array in (x, y):
        if array.dtype.kind in "OUSMm":
            raise UsageTypeError(f"closeness is of numbers and truth values, found {array.dtype}")
    if x.shape != y.shape:
        return f"Shapes differ: {x.shape}, expected {y.shape}"
    if check_dtype and x.dtype != y.dtype:
        return f"Dtypes differ: {x.dtype}, expected {y.dtype}"
    relative, absolute = _tolerances(x, y) if rtol is None or atol is None else (rtol, atol)
    text = _mismatch(x, y, relative, absolute, equal_nan)
    return "\n".join([text, *_nonfinite(x, y)]) if text else ""


def _nonfinite(x: Array, y: Array) -> Iterator[str]:
    """Describe how many values are NaN or infinite, where any is."""
    if "f" not in x.dtype.kind + y.dtype.kind:
        return
    counts = [(int(np.isnan(a).sum()), int(np.isinf(a).sum())) for a in (x, y)]
    if any(map(any, counts)):
        (nan, inf), (nan2, inf2) = counts
        yield f"NaN: {nan}, expected {nan2}; infinite: {inf}, expected {inf2}"


def _tolerances(x: Array, y: Array) -> tuple[float, float]:
    """Return the wider of the two dtypes' defaults."""
    pairs = [_DEFAULTS.get(a.dtype.name, (0.0, 0.0)) for a in (x, y)]
    return max(p[0] for p in pairs), max(p[1] for p in pairs)


def _mismatch(x: Array, y: Array, rtol: float, atol: float, equal_nan: bool) -> str:
    """Describe how two arrays of one shape differ, nothing when they are close."""
    wide = _wide(x, y)
    a, b = x.astype(wide), y.astype(wide)
    with np.errstate(all="ignore"):
        # Of objects without axes, numpy gives plain numbers.
        difference = np.asarray(np.abs(a - b), "f8")
        size = np.asarray(np.abs(b), "f8")
        same = np.asarray(a == b, bool)
        close = same | ((difference <= atol + rtol * size) & np.isfinite(size))
        relative = np.where(same, 0.0, difference / size)
    if equal_nan and wide.kind != "O":
        close |= np.isnan(a) & np.isnan(b)
    if close.all():
        return ""
    difference, relative = (np.where(close & same, 0.0, d) for d in (difference, relative))
    count = int(close.size - np.count_nonzero(close))
    lines = [f"Mismatched elements: {count} / {close.size} ({100 * count / close.size:.1f}%)"]
    for name, values, allowed in (("absolute", difference, atol), ("relative", relative, rtol)):
        # NaN is the worst, and argmax finds the first one.
        at = np.unravel_index(int(np.argmax(np.where(close, -1.0, values))), x.shape)
        index = tuple(int(i) for i in at)
        lines.append(
            f"Greatest {name} difference: {values[at]:.6g} at index {index}: {_shown(x[at])}, "
            f"expected {_shown(y[at])} (up to {allowed:.6g} allowed)"
        )
    return "\n".join(lines)


def _wide(x: Array, y: Array) -> np.dtype[Any]:
    """Return a dtype in which the values of both arrays and their differences are (almost) exact."""
    kinds = x.dtype.kind + y.dtype.kind
    if "c" in kinds:
        return np.dtype("c16")
    if "f" not in kinds and max(x.dtype.itemsize, y.dtype.itemsize) > 4:
        return np.dtype(object)
    return np.dtype("f8")


def _shown(value: np.generic) -> str:
    """Show a number with as many digits as tell float32 values apart."""
    return f"{value:.9g}" if value.dtype.kind in "fc" else str(value)
