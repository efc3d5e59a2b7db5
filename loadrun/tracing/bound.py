"""Traces as methods and as parts of objects that are copied."""

import sys
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .recording import TraceOptions

S = TypeVar("S")


class PerInstance(Generic[S]):
    """What a traced method keeps for every instance, for as long as the instance lives.

    Instances are distinguished by what they are, not by what they are equal to.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], S]] = {}

    def state(self, instance: Any, make: Callable[[], S]) -> S:
        """Return what is kept for an instance, made where there is nothing yet.

        Raises:
            TypeError: no one can know how long the instance lives.
        """
        key = id(instance)
        entry = self._entries.get(key)
        if entry is None:
            kept = self._entries
            try:
                life = weakref.ref(instance, lambda _: kept.pop(key, None))
            except TypeError:
                raise TypeError(
                    f"a traced method keeps one recording per instance, but {type(instance).__name__} has "
                    "__slots__ without '__weakref__'; add it, or trace a function that takes the object by keyword"
                ) from None
            entry = kept[key] = life, make()
        return entry[1]


def reduced(traced: Any, function: Callable[..., Any], options: TraceOptions, owner: Any) -> Any:
    """Return how `copy` and `pickle` get a trace: by its name or its owner's attribute, else without its recording."""
    if owner is not None:
        return getattr, (owner, function.__name__)
    target: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    name = getattr(function, "__qualname__", "")
    for part in name.split("."):
        target = getattr(target, part, None)
    return name if target is traced else (traced.remade, (function, options))
