"""`Function` under the name of ``megengine.autodiff``; `GradManager` can be imported, and refuses to be made."""

from __future__ import annotations

from typing import Any

from .absent import TRAINING, absent_class
from .function import Function

__all__ = ["Function", "GradManager"]

GradManager = absent_class("GradManager", TRAINING)


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"loadrun.megengine.autodiff has no {name}: loadrun runs networks, it does not train them"
    )
