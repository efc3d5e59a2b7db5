"""Modules by dotted names, and for a while in another mode (MegEngine's ``utils/module_utils.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .module import Module
from .structure import access

__all__ = ["get_expand_structure", "set_expand_structure", "set_module_mode_safe"]


def get_expand_structure(obj: Module, key: str) -> Any:
    """Return what is at a dotted path below a module, through lists and dicts too.

    >>> from loadrun.megengine.module import ReLU, Sequential
    >>> get_expand_structure(Sequential(ReLU()), "0")
    ReLU()
    """
    return access(obj, key)


def set_expand_structure(obj: Module, key: str, value: Any) -> None:
    """Put something at a dotted path below a module.

    >>> from loadrun.megengine.module import ReLU, Sequential, Sigmoid
    >>> net = Sequential(ReLU())
    >>> set_expand_structure(net, "0", Sigmoid())
    >>> net[0]
    Sigmoid()
    """

    def put(parent: Any, name: Any, current: Any) -> None:
        if isinstance(parent, (list, dict)):
            parent[name] = value
        else:
            setattr(parent, name, value)

    access(obj, key, put)


@contextmanager
def set_module_mode_safe(module: Module, training: bool = False) -> Iterator[Module]:
    """Set training or inference within a ``with``; afterwards each module is in its own mode again."""
    modes = [(m, m.training) for m in module.modules()]
    module.train(training)
    try:
        yield module
    finally:
        for m, mode in modes:
            m.train(mode, recursive=False)
