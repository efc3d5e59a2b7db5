"""load_and_run's JSON form for arrays, read piece by piece, so that no long list becomes Python objects as a whole."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from ..base.errors import InputError
from ..graph.dtypes import Array

_TYPES = {"float32": "f4", "float": "f4", "int32": "i4", "int": "i4", "int8": "i1", "uint8": "u1"}
_FORM = 'expected {"name": {"shape": [...], "type": "float32", "raw": [...]}} with a type of ' + ", ".join(
    _TYPES
)
_BLANK = re.compile(r"[ \t\n\r]*")
_PIECE = 1 << 18
_OTHER = 1 << 16
"""Maximum characters of everything except lists of numbers."""


def json_arrays(text: str) -> dict[str, Array]:
    """Return the arrays of a JSON text by name.

    Integer types are rounded to nearest, halves away from zero, as load_and_run does.

    Raises:
        InputError: the text has another form, a raw list of the wrong length, or numbers beyond the type.

    >>> json_arrays('{"x": {"shape": [2], "type": "int8", "raw": [1.5, -2]}}')["x"]
    array([ 2, -2], dtype=int8)
    """
    scanner = _JsonScanner(text)
    arrays: dict[str, Array] = {}
    for name in scanner.members():
        fields: dict[str, Any] = {}
        for key in scanner.members():
            fields[key] = scanner.numbers() if key == "raw" else scanner.value()
        if missing := [k for k in ("shape", "type", "raw") if k not in fields]:
            raise InputError(f"{_FORM}: {name!r:.80} has no {missing[0]!r}")
        arrays[name] = _array(name, fields["shape"], fields["type"], scanner, fields["raw"])
    scanner.end()
    return arrays


def _array(name: str, shape: object, kind: object, scanner: _JsonScanner, raw: tuple[int, int]) -> Array:
    if not isinstance(shape, list) or len(shape) > 32 or any(type(n) is not int or n < 0 for n in shape):
        raise InputError(f"{name!r:.80}: the shape must be a list of whole numbers, found {shape!r:.80}")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise InputError(f"{_FORM}: the type of {name!r:.80} is {kind!r:.40}")
    dtype = np.dtype(_TYPES[kind])
    parts = [_typed(part, dtype, name) for part in scanner.pieces(*raw)]
    flat = np.concatenate(parts) if parts else np.empty(0, dtype)
    if flat.size != math.prod(shape):
        raise InputError(
            f"{name!r:.80}: shape {shape} takes a raw list of {math.prod(shape)} numbers, found {flat.shape}"
        )
    try:
        array = flat.reshape(shape)
    except ValueError:
        raise InputError(f"{name!r:.80}: the shape {shape} does not fit in memory") from None
    return array.reshape(1) if array.ndim == 0 else array


def _typed(part: Array, dtype: np.dtype[Any], name: str) -> Array:
    if dtype.kind in "iu":
        part = np.trunc(part + np.copysign(0.5, part))
        limits = np.iinfo(dtype)
        if not ((part >= limits.min) & (part <= limits.max)).all():
            raise InputError(f"{name!r:.80}: the raw list holds numbers that {dtype} does not")
    with np.errstate(over="ignore"):
        return part.astype(dtype)


class _JsonScanner:
    """A cursor over JSON text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.decoder = json.JSONDecoder()

    def fail(self, message: str) -> NoReturn:
        raise InputError(f"{_FORM}: {message} (at character {self.at})")

    def peek(self) -> str:
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def expect(self, char: str) -> None:
        if self.peek() != char:
            self.fail(f"expected {char!r}, found {self.peek() or 'the end'!r}")
        self.at += 1

    def end(self) -> None:
        if self.peek():
            self.fail(f"expected the end, found {self.peek()!r}")

    def members(self) -> Iterator[str]:
        """Yield the keys of an object; the caller must read the value before asking for the next one."""
        self.expect("{")
        if self.peek() == "}":
            self.at += 1
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                self.fail("a name is not text")
            self.expect(":")
            yield key
            if self.peek() != ",":
                break
            self.at += 1
        self.expect("}")

    def value(self) -> object:
        """Read any small value."""
        self.peek()
        try:
            value, used = self.decoder.raw_decode(self.text[self.at : self.at + _OTHER])
        except (ValueError, RecursionError) as e:
            self.fail(f"{type(e).__name__}: {str(e)[:100]}")
        self.at += used
        return value

    def numbers(self) -> tuple[int, int]:
        """Find where the numbers of a flat list stand."""
        self.expect("[")
        start, end = self.at, self.text.find("]", self.at)
        if end < 0:
            self.fail("this list is never closed")
        self.at = end + 1
        return start, end

    def pieces(self, start: int, end: int) -> Iterator[Array]:
        """Yield the numbers between two places as float64, piece by piece."""
        while start < end:
            cut = self.text.find(",", min(start + _PIECE, end), end)
            cut = end if cut < 0 else cut
            try:
                if numbers := json.loads(f"[{self.text[start:cut]}]"):
                    yield self._floats(numbers)
                elif cut < end:
                    raise ValueError("a number is missing")
            except (ValueError, TypeError, OverflowError, RecursionError) as e:
                self.at = start
                self.fail(f"{type(e).__name__}: {str(e)[:100]}")
            start = cut + 1
            if start == end:
                self.fail("a number is missing after the last comma")

    def _floats(self, numbers: list[Any]) -> Array:
        if not all(isinstance(n, (int, float)) for n in numbers):
            raise ValueError("a raw list holds numbers, not nested lists or strings")
        return np.array(numbers, np.float64)
