"""Reading and writing .mge files: the only room that knows bytes."""

from .container import Bundle, load, loads

__all__ = ["Bundle", "load", "loads"]
