"""Engines that are runtimes of others: each stands in a file of its own and is imported when it is used.

`loadrun.engines.registry` comes here by name for the engines that it does not hold itself.
"""

from __future__ import annotations

from importlib import import_module

from ..engines import Factory, FileFactory

__all__ = ["factory", "file_factory"]


def factory(name: str) -> Factory:
    """The factory of an engine: ``make_engine`` of the file that is called like it."""
    module = import_module(f"{__package__}.{name}")
    made: Factory = module.make_engine
    return made


def file_factory(name: str) -> FileFactory:
    """What loads files as they are into an engine: ``open_file`` of the file that is called like it."""
    module = import_module(f"{__package__}.{name}")
    made: FileFactory = module.open_file
    return made
