"""Names of what a trace records: the path of the modules that are being called."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["prefix", "scope"]


class _Local(threading.local):
    def __init__(self) -> None:
        self.path: list[str] = []


_local = _Local()


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Inside, operators belong to the part of a model with that name.

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
