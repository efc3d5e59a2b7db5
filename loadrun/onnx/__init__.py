"""ONNX both ways: models read into graphs of MegEngine's operators, graphs written as models."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..dump import load
    from .exporting import Exported, OperatorExportTypes, TrainingMode, export
    from .loading import load_model
    from .sizes import Dim

__all__ = ["Dim", "Exported", "OperatorExportTypes", "TrainingMode", "export", "load", "load_model"]

# The two halves need nothing of each other; each is imported when it is asked for.
_ROOMS = {"Dim": ".sizes", "load": "..dump", "load_model": ".loading"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(_ROOMS.get(name, ".exporting"), __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
