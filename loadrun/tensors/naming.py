"""Names of what a trace records: the path of the modules that are being called, and what MegEngine calls a function."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

__all__ = ["prefix", "scope", "title", "titled", "untitled"]


class _Local(threading.local):
    def __init__(self) -> None:
        self.path: list[str] = []
        self.title: tuple[str | None, object] = None, None


_local = _Local()


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Name the part of a model to which the operators inside belong.

    >>> with scope("net"), scope("conv1"):
    ...     prefix()
    'net.conv1.'
    """
    _local.path.append(name)
    try:
        yield
    finally:
        _local.path.pop()


def prefix() -> str:
    """Return what stands before the name of an operator: ``net.conv1.``, empty outside of all scopes."""
    return ".".join((*_local.path, "")) if _local.path else ""


@contextmanager
def titled(name: str, constant: object = None) -> Iterator[None]:
    """Name the operators inside after the one operator that MegEngine has for what they do together.

    Args:
        name: MegEngine's name for it.
        constant: a tensor that belongs to it.

    >>> with titled("Stack"):
    ...     title()
    'Stack'
    """
    outer, _local.title = _local.title, (name, constant)
    try:
        yield
    finally:
        _local.title = outer


def untitled() -> AbstractContextManager[None]:
    """Leave the operators inside unnamed: what MegEngine makes within one of its own operators is not counted.

    >>> with untitled():
    ...     title()
    ''
    """
    return titled("")


def title(constant: object = None) -> str | None:
    """Return what operators, or one constant, are called; None where they are called after their types.

    An empty name is none at all.
    """
    name, held = _local.title
    return name if constant is None or constant is held else None
