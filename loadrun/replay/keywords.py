"""Words that select names: ``resnet and not (quant or v1)``."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..base.errors import UsageError, clean

__all__ = ["keyword"]

Test = Callable[[str], bool]
_WORD = re.compile(r"\(|\)|[^\s()]+")
_DEEPEST = 100


def keyword(text: str) -> Test:
    """Return a test of names for words with ``and``, ``or``, ``not`` and parentheses, as pytest's ``-k``.

    Raises:
        UsageError: they make no sense.

    >>> wanted = keyword("resnet and not (quant or v1)")
    >>> [wanted(name) for name in ("a/ResNet18.mge", "resnet_quant.mge", "gpt.mge")]
    [True, False, False]
    """
    try:
        words = _Words(text)
        if sum(word in ("(", "not") for word in words.left) > _DEEPEST:
            raise _Wrong
        test = words.either()
        if words.left:
            raise _Wrong
    except _Wrong:
        raise UsageError(
            f"-k takes words combined with and, or, at most {_DEEPEST} nots and parentheses, found {clean(text)!r}"
        ) from None
    return test


class _Wrong(Exception):
    pass


class _Words:
    """A cursor over text, word by word."""

    def __init__(self, text: str) -> None:
        self.left = _WORD.findall(text)

    def either(self) -> Test:
        parts = self._joined("or", self._both)
        return lambda name: any(test(name) for test in parts)

    def _both(self) -> Test:
        parts = self._joined("and", self._single)
        return lambda name: all(test(name) for test in parts)

    def _joined(self, word: str, read: Callable[[], Test]) -> list[Test]:
        parts = [read()]
        while self.left[:1] == [word]:
            self.left.pop(0)
            parts.append(read())
        return parts

    def _single(self) -> Test:
        if not self.left:
            raise _Wrong
        word = self.left.pop(0)
        if word == "not":
            inner = self._single()
            return lambda name: not inner(name)
        if word == "(":
            inner = self.either()
            if not self.left or self.left.pop(0) != ")":
                raise _Wrong
            return inner
        if word in (")", "and", "or"):
            raise _Wrong
        return lambda name: word.lower() in name.lower()
