"""Reading and writing .mge files: the only package that handles raw bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, BinaryIO

from ..base.errors import UsageTypeError
from ..base.proving import sharing_time
from ..base.registry import late
from ..graph import Graph
from ..testcase import Bundle, Testcase
from .container import load, load_all, loads

with late(__name__):
    from . import store

if TYPE_CHECKING:
    from .options import DumpOptions, DumpResult


def save(
    source: Graph | Bundle,
    target: str | os.PathLike[str] | BinaryIO,
    options: DumpOptions | None = None,
    *,
    format: str | None = None,
    testcases: Iterable[Testcase] | None = None,
    inspect: Callable[[str], None] | None = None,
    made_of: Graph | None = None,
) -> DumpResult:
    """Write a graph or bundle as a .mge file; see `loadrun.dump.store.save`.

    >>> import io, loadrun
    >>> file = io.BytesIO()
    >>> save(loadrun.load("fixtures/nets/mlp.mge"), file, format="FBS").outputs
    ['out']
    >>> len(loadrun.loads(file.getvalue()).testcases)
    3
    """
    if not isinstance(source, (Graph, Bundle)):
        raise UsageTypeError(
            f"save writes a Graph or a Bundle, found {type(source).__name__}; save_checkpoint writes state dicts"
        )
    if not isinstance(target, (str, os.PathLike)) and not callable(getattr(target, "write", None)):
        raise UsageTypeError(
            f"save writes to a path or to a file opened in binary mode, found {type(target).__name__}"
        )
    with sharing_time():
        return store.save(
            source, target, options, format=format, testcases=testcases, inspect=inspect, made_of=made_of
        )


__all__ = ["Bundle", "load", "load_all", "loads", "save"]
