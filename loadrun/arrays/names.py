"""`np` as definitions of operators import it: numpy on arrays; where any argument is traced, what was recorded for it.

numpy looks for arrays of other kinds in some arguments alone: ``np.take(table, traced)`` and ``np.full(shape, traced)``
would read the traced one. These names look at every argument, inside lists and keywords too. A `kernel` is a function
of arrays that does not consist of numpy's functions; where an argument is traced, what is registered for it is called.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

import numpy

F = TypeVar("F", bound=Callable[..., Any])
Lower = Callable[[Callable[..., Any], Sequence[Any], Mapping[str, Any]], Any]
"""Takes a function, its arguments and keywords; returns NotImplemented where none of them is traced."""


class _Running(threading.local):
    lower: Lower | None = None


_running = _Running()


@contextmanager
def recording(lower: Lower) -> Iterator[None]:
    """Ask a function at every call of a name in this thread."""
    before, _running.lower = _running.lower, lower
    try:
        yield
    finally:
        _running.lower = before


def kernel(function: F) -> F:
    """Make a function of arrays one that is asked for while definitions are recorded.

    >>> double = kernel(lambda x: 2 * x)
    >>> with recording(lambda function, args, keywords: "recorded"):
    ...     double(1)
    'recorded'
    >>> double(1)
    2
    """

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        lower = _running.lower
        result = NotImplemented if lower is None else lower(function, args, keywords)
        return function(*args, **keywords) if result is NotImplemented else result

    return call  # type: ignore[return-value]


class _Names:
    """A module of numpy whose functions look at every argument; ufuncs do so by themselves."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._module, name)
        if isinstance(member, ModuleType):
            member = _Names(member)
        elif callable(member) and not isinstance(member, (type, numpy.ufunc)):
            member = kernel(member)
        setattr(self, name, member)
        return member


np: Any = _Names(numpy)
"""numpy's names."""
