"""Answers to code for MegEngine that asks ``megengine.distributed``, as in one process, which is all loadrun runs in.

>>> get_world_size(), get_rank(), is_distributed()
(1, 0, False)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..absent import listed, refusing
from . import functional, helper

__all__ = [
    "WORLD",
    "functional",
    "get_backend",
    "get_rank",
    "get_world_size",
    "group_barrier",
    "helper",
    "is_distributed",
    "synchronized",
    *listed(__name__),
]

C = TypeVar("C", bound=Callable[..., Any])


WORLD = None
"""The group of all processes, which code names as a default value."""


def get_backend() -> None:
    """Return by what processes exchange values: by nothing."""


def is_distributed() -> bool:
    """Return False: several processes never work together."""
    return False


def get_rank() -> int:
    """Return the number of this process: 0."""
    return 0


def get_world_size() -> int:
    """Return how many processes there are: 1."""
    return 1


def group_barrier() -> None:
    """Wait for the other processes: there are none."""


def synchronized(func: C) -> C:
    """Let other processes wait until `func` has returned: there are none."""
    return func


__getattr__ = refusing(__name__)
