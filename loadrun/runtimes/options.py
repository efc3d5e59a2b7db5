"""Options behind the colon in an engine's name: words and ``key=value``, with colons between them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ..base.errors import UsageError
from ..engines import TRANSLATED


class EngineOptions(NamedTuple):
    """The options of an engine.

    Attributes:
        words: those without a value, such as providers, but for ``translated``.
        values: the others by key.
    """

    words: tuple[str, ...]
    values: dict[str, str]

    @classmethod
    def of(cls, argument: str) -> EngineOptions:
        """Divide the argument of an engine.

        Raises:
            UsageError: a key comes twice.

        >>> EngineOptions.of("CUDA:opt=basic:translated")
        EngineOptions(words=('CUDA',), values={'opt': 'basic'})
        """
        words, values = [], {}
        for part in filter(None, argument.split(":")):
            key, equals, value = part.partition("=")
            if not equals:
                words.append(part)
            elif key in values:
                raise UsageError(f"the engine's option {key!r} is given twice")
            else:
                values[key] = value
        return cls(tuple(w for w in words if w != TRANSLATED), values)

    @property
    def text(self) -> tuple[str, ...]:
        """The values as they were written."""
        return tuple(f"{k}={v}" for k, v in self.values.items())


def number(key: str, value: str, least: int = 0) -> int:
    """Parse the integer of an option.

    Raises:
        UsageError: it is none, or less than the smallest.
    """
    if not (value.isascii() and value.isdigit() and int(value) >= least):
        raise UsageError(
            f"the engine's option {key}= takes a whole number of at least {least}, found {value!r}"
        )
    return int(value)


def choice(key: str, value: str, known: Collection[str]) -> str:
    """Check the word of an option.

    Raises:
        UsageError: it is none of those that are known.
    """
    if value not in known:
        raise UsageError(f"the engine's option {key}= takes {', '.join(known)}, found {value!r}")
    return value
