"""What code for MegEngine asks of ``megengine.distributed`` when it runs in one process, which is all loadrun does.

>>> get_world_size(), get_rank(), is_distributed()
(1, 0, False)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["get_rank", "get_world_size", "group_barrier", "is_distributed", "synchronized"]

C = TypeVar("C", bound=Callable[..., Any])


def is_distributed() -> bool:
    """Whether several processes work together: never."""
    return False


def get_rank() -> int:
    """The number of this process: 0."""
    return 0


def get_world_size() -> int:
    """How many processes there are: 1."""
    return 1


def group_barrier() -> None:
    """Wait for the other processes: there are none."""


def synchronized(func: C) -> C:
    """Let other processes wait until `func` has returned: there are none."""
    return func


def __getattr__(name: str) -> Any:
    raise AttributeError(f"loadrun.distributed has no {name}: loadrun runs in one process")
