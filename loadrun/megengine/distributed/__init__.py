"""What code for MegEngine asks of ``megengine.distributed`` when it runs in one process, which is all loadrun does.

>>> get_world_size(), get_rank(), is_distributed()
(1, 0, False)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..absent import absent_class, absent_function
from . import functional

__all__ = [
    "WORLD",
    "Client",
    "Group",
    "Server",
    "bcast_list_",
    "functional",
    "get_backend",
    "get_client",
    "get_rank",
    "get_world_size",
    "group_barrier",
    "init_process_group",
    "is_distributed",
    "launcher",
    "make_allreduce_cb",
    "new_group",
    "override_backend",
    "synchronized",
]

C = TypeVar("C", bound=Callable[..., Any])


_WHY = "loadrun runs in one process; run it once, or start several processes yourself"
Client = absent_class("Client", _WHY)
Group = absent_class("Group", _WHY)
Server = absent_class("Server", _WHY)
launcher = absent_class("launcher", _WHY)
bcast_list_ = absent_function("bcast_list_", _WHY)
get_client = absent_function("get_client", _WHY)
init_process_group = absent_function("init_process_group", _WHY)
make_allreduce_cb = absent_function("make_allreduce_cb", _WHY)
new_group = absent_function("new_group", _WHY)
override_backend = absent_function("override_backend", _WHY)
WORLD = None
"""The group of all processes, which code names as a default value."""


def get_backend() -> None:
    """Return by what processes exchange values: by nothing."""


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
    raise AttributeError(f"loadrun.megengine.distributed has no {name}: loadrun runs in one process")
