"""ONNX: models read into graphs of MegEngine's operators."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .loading import load_model

__all__ = ["load_model"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(".loading", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
