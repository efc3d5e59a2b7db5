"""Checks of data from a file: types and ranges, before anything is done with it.

A check is a function of a value and of where it stands; it gives the value, or says what was found and expected.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from .errors import FormatError, clean

T = TypeVar("T")
Check = Callable[[object, str], T]


def _refuse(value: object, where: str, expected: str) -> NoReturn:
    kinds = {str: "the text", bool: "the truth value", int: "the number", float: "the number"}
    kind = kinds.get(type(value))
    shown = clean(repr(value)) if kind else type(value).__name__
    actual = "nothing" if value is None else f"{kind} {shown}" if kind else f"a {shown}"
    raise FormatError(f"{where}: expected {expected}, found {actual}")


def anything(value: object, where: str) -> object:
    """Accept anything."""
    return value


def text(value: object, where: str) -> str:
    """Accept text.

    >>> text("y", "name")
    'y'
    """
    if not isinstance(value, str):
        _refuse(value, where, "a text")
    return value


def truth(value: object, where: str) -> bool:
    """Accept true and false."""
    if not isinstance(value, bool):
        _refuse(value, where, "true or false")
    return value


def integer(low: int, high: int) -> Check[int]:
    """Accept integers in a range.

    >>> integer(0, 9)(12, "testcase")
    Traceback (most recent call last):
    loadrun.base.errors.FormatError: testcase: expected a whole number from 0 to 9, found the number 12
    """

    def check(value: object, where: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            _refuse(value, where, f"a whole number from {low} to {high}")
        return value

    return check


def number(low: float = -math.inf, *, finite: bool = True) -> Check[float]:
    """Accept numbers that float64 can represent.

    Args:
        low: the smallest.
        finite: whether NaN and infinity are none; else they may be the texts "nan", "inf" and "-inf" as well, which
            stand for them where JSON is strict.

    >>> number(0.0)(2, "seconds"), number(finite=False)("nan", "error")
    (2.0, nan)
    """

    def check(value: object, where: str) -> float:
        if not finite and value in ("nan", "inf", "-inf"):
            return float(str(value))
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        try:
            converted = float(value) if plain else None  # type: ignore[arg-type]
        except OverflowError:
            converted = None
        if converted is None or converted < low or (finite and not math.isfinite(converted)):
            least = "" if low == -math.inf else f" of at least {low:g}"
            _refuse(value, where, f"a {'finite ' if finite else ''}number{least}")
        return converted

    return check


def either(check: Check[T]) -> Check[T | None]:
    """Accept null besides what a check accepts.

    >>> either(text)(None, "reason") is None
    True
    """

    def maybe(value: object, where: str) -> T | None:
        return None if value is None else check(value, where)

    return maybe


def items(check: Check[T], least: int = 0) -> Check[list[T]]:
    """Accept lists of at least so many entries, each accepted by a check.

    >>> items(integer(0, 9))([1, 2], "sizes")
    [1, 2]
    """

    def each(value: object, where: str) -> list[T]:
        if not isinstance(value, list) or len(value) < least:
            _refuse(value, where, f"a list of at least {least} entries" if least else "a list")
        return [check(v, f"{where}[{i}]") for i, v in enumerate(value)]

    return each


def mapping(check: Check[T]) -> Check[dict[str, T]]:
    """Accept objects with any names, each value accepted by a check.

    >>> mapping(text)({"a": "b"}, "names")
    {'a': 'b'}
    """

    def each(value: object, where: str) -> dict[str, T]:
        if not isinstance(value, Mapping):
            _refuse(value, where, "an object")
        return {text(k, where): check(v, f"{where}.{clean(str(k))}") for k, v in value.items()}

    return each


def record(
    needed: Mapping[str, Check[Any]], optional: Mapping[str, Check[Any]] | None = None, *, others: bool = True
) -> Check[dict[str, Any]]:
    """Accept objects with these members.

    Args:
        needed: checks of members that must be there.
        optional: checks of members that may be there.
        others: whether there may be others, which stay as they are.

    >>> record({"name": text})({"name": "y", "more": 1}, "output")
    {'name': 'y', 'more': 1}
    """
    checks = {**needed, **(optional or {})}

    def check(value: object, where: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            _refuse(value, where, "an object")
        for name in needed:
            if name not in value:
                raise FormatError(f"{where}: the member {name!r} is missing")
        fields = {k: checks[k](v, f"{where}.{k}") if k in checks else v for k, v in value.items()}
        for name in () if others else sorted(fields.keys() - checks):
            expected = ", ".join(sorted(checks))
            raise FormatError(f"{where}: unknown key {clean(repr(name), 80)}; expected one of {expected}")
        return fields

    return check


def exactly(
    needed: Mapping[str, Check[Any]], optional: Mapping[str, Check[Any]] | None = None
) -> Check[dict[str, Any]]:
    """Accept objects with these members and no others, so that a misspelt one is not without effect.

    >>> exactly({}, {"check": text})({"chekc": "exact"}, "output")
    Traceback (most recent call last):
    loadrun.base.errors.FormatError: output: unknown key 'chekc'; expected one of check
    """
    return record(needed, optional, others=False)
