"""Names that code written for MegEngine imports and that mean nothing here: they are there, and refuse to be called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base.errors import UnsupportedError

__all__ = ["TRAINING", "absent_class", "absent_function"]

TRAINING = "loadrun runs networks, it does not train them; leave this part of the script out"
"""Why what belongs to training is absent."""


def absent_function(name: str, why: str) -> Callable[..., Any]:
    """Return a function that refuses to be called.

    Args:
        name: its name.
        why: why it is absent, and what to do.

    >>> absent_function("step", TRAINING)()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    loadrun.base.errors.UnsupportedError: step: loadrun runs networks, it does not train them; ...
    """

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(f"{name}: {why}")

    refuse.__name__ = refuse.__qualname__ = name
    vars(refuse)["__absent__"] = why
    refuse.__doc__ = f"Refuse: {why}."
    return refuse


def absent_class(name: str, why: str, *bases: type[Any]) -> type[Any]:
    """Return a class that refuses to be made; it may be inherited from and named in annotations.

    Args:
        name: its name.
        why: why it is absent, and what to do.
        bases: what it inherits from.
    """
    body = {
        "__new__": absent_function(name, why),
        "__absent__": why,
        "__doc__": f"Refuses to be made: {why}.",
    }
    return type(name, bases or (object,), body)
