"""Kernels on rows that an engine may replace by faster ones while it runs a graph."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...graph.dtypes import Array


class _Local(threading.local):
    kernels: Mapping[str, Callable[..., Any]] = {}


_local = _Local()


@contextmanager
def replacing(kernels: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Use kernels inside, in this thread.

    Args:
        kernels: float32 functions with the arguments that their callers say beside `replaced`, by name.
    """
    before, _local.kernels = _local.kernels, kernels
    try:
        yield
    finally:
        _local.kernels = before


def kernels() -> Mapping[str, Callable[..., Any]]:
    """Return all kernels that are in use, for another thread that works for this one."""
    return _local.kernels


def replaced(name: str, x: Array | None = None) -> Callable[..., Any] | None:
    """Return what a kernel is replaced by, for an input; None where numpy computes it.

    >>> with replacing({"add": int.__add__}):
    ...     replaced("add")(1, 2), replaced("mul")
    (3, None)
    """
    return _local.kernels.get(name) if x is None or x.dtype == np.float32 else None
