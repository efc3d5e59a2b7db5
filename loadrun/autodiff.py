"""`Function` under the name of ``megengine.autodiff``; loadrun has nothing else of it."""

from __future__ import annotations

from typing import Any

from .imperative.function import Function

__all__ = ["Function"]


def __getattr__(name: str) -> Any:
    raise AttributeError(f"loadrun.autodiff has no {name}: loadrun runs networks, it does not train them")
