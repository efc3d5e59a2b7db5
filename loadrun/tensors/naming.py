"""Names of what a trace records: modules being called, MegEngine's names of functions, places in the user's code."""

import contextlib
import linecache
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np

from ..base.errors import TraceError


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
    """Return what operators, or one constant, are called; None if they are called after their types.

    An empty name is none at all.
    """
    name, subject = _local.title
    return name if constant is None or constant is subject else None


_OWN = str(Path(__file__).resolve().parent.parent)
_NUMPY = str(Path(np.__file__).resolve().parent)
_SKIPPED = (_OWN, contextlib.__file__, _NUMPY, "<__array_function__")
"""Files between the user's code and an operator; the last one is numpy's before 1.25."""

Place = tuple[str, int]
"""A file and a line number."""


def here() -> Place:
    """Return the innermost line of the running code that is neither loadrun's nor numpy's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_SKIPPED):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def shown(place: Place) -> str:
    """Return a place with the text of its line: ``model.py:12 `y = x + 1` ``."""
    path, number = place
    text = linecache.getline(path, number).strip()
    return f"{Path(path).name}:{number}" + (f" `{text}`" if text else "")


WAY_OUT = (
    "compute it outside the traced function and pass the result in, or leave the region out of the trace with "
    "loadrun.tracing.exclude_from_trace()"
)


def user_line() -> str:
    """Return the innermost running line that is neither loadrun's nor numpy's, with its whole path and text."""
    path, number = here()
    text = linecache.getline(path, number).strip()
    return f"{path}:{number}" + (f": {text}" if text else "")


def refused(what: str, why: str = "", way_out: str = "") -> TraceError:
    """Make the error for code that cannot be recorded: what it is, where it is in the user's code, what to do.

    Args:
        what: what was found.
        why: the reason, where it needs one.
        way_out: what to do; by default to leave it out of the trace.
    """
    return TraceError(f"{what}{': ' + why if why else ''}\n  in {user_line()}\n  {way_out or WAY_OUT}")
