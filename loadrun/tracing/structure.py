"""Nested lists, tuples and dicts: their leaves, and the same structure around other leaves."""

from collections.abc import Callable, Iterator
from typing import Any


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield pairs of path and leaf.

    >>> [*leaves({"a": [1, 2]})]
    [(('a', 0), 1), (('a', 1), 2)]
    """
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, (*path, key))
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from leaves(part, (*path, i))
    else:
        yield path, value


def rebuilt(
    value: Any, change: Callable[[Any], Any], whole: tuple[type, Callable[[Any], Any]] | None = None
) -> Any:
    """Return the structure with every leaf changed, and values of type `whole[0]` changed as a whole by `whole[1]`.

    >>> rebuilt({"a": (1, [2])}, lambda x: -x)
    {'a': (-1, [-2])}
    """
    if whole is not None and isinstance(value, whole[0]):
        return whole[1](value)
    if isinstance(value, dict):
        items = {k: rebuilt(v, change, whole) for k, v in value.items()}
        return items if type(value) is dict else _like(value, items)
    if isinstance(value, (list, tuple)):
        parts = [rebuilt(v, change, whole) for v in value]
        if hasattr(value, "_fields"):
            return type(value)(*parts)
        return parts if type(value) is list else _like(value, parts)
    return change(value)


def _like(value: Any, parts: Any) -> Any:
    try:
        return type(value)(parts)
    except TypeError:
        return tuple(parts) if isinstance(value, tuple) else parts
