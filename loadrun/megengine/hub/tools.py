"""Modules from files, as ``megengine.hub.tools`` loads them."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from ...base.errors import UsageError

__all__ = ["cd", "check_module_exists", "load_module"]


def load_module(name: str, path: str | os.PathLike[str]) -> ModuleType:
    """Run a Python file as a module, with all that it does.

    Args:
        name: the name that the module gets; it is not put among the imported ones.
        path: the file.

    Raises:
        UsageError: it is no Python file.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file that could be run")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_module_exists(module: str) -> bool:
    """Return whether a module could be imported.

    >>> check_module_exists("numpy"), check_module_exists("numpi")
    (True, False)
    """
    return importlib.util.find_spec(module) is not None


@contextmanager
def cd(target: str | os.PathLike[str]) -> Iterator[None]:
    """Be in another folder inside a ``with``."""
    before = os.getcwd()
    os.chdir(os.path.expanduser(target))
    try:
        yield
    finally:
        os.chdir(before)
