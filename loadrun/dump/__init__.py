"""Reading and writing .mge files: the only room that knows bytes."""

from ..testcase import Bundle
from .container import load, load_all, loads

__all__ = ["Bundle", "load", "load_all", "loads"]
