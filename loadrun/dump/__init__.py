"""Reading and writing .mge files: the only room that knows bytes."""

from __future__ import annotations

import os

from ..graph import Graph
from ..testcase import Bundle
from .container import load, load_all, loads


def save(source: Graph | Bundle, path: str | os.PathLike[str], *, format: str | None = None) -> int:
    """Write a graph or bundle as a .mge file; see `loadrun.dump.writer.save`."""
    from .writer import save as write

    return write(source, path, format=format)


__all__ = ["Bundle", "load", "load_all", "loads", "save"]
