"""Reading and writing .mge files: the only package that handles raw bytes."""

from typing import TYPE_CHECKING

from ..base.registry import lazy
from ..testcase import Bundle
from .container import load, load_all, loads

if TYPE_CHECKING:
    from .store import save

__all__ = ["Bundle", "load", "load_all", "loads", "save"]

# Replays write nothing.
__getattr__ = lazy(__name__, {"save": ".store"})
