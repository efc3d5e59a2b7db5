"""ONNX both ways: models read into graphs of MegEngine's operators, graphs written as models."""

from typing import TYPE_CHECKING

from ..base.registry import lazy

if TYPE_CHECKING:
    from ..dump import load
    from .exporting import Exported, OperatorExportTypes, TrainingMode, export
    from .loading import load_model
    from .sizes import Dim

__all__ = ["Dim", "Exported", "OperatorExportTypes", "TrainingMode", "export", "load", "load_model"]

# Reading and writing do not import each other.
__getattr__ = lazy(
    __name__,
    {
        "Dim": ".sizes",
        "load": "..dump",
        "load_model": ".loading",
        **dict.fromkeys(("Exported", "OperatorExportTypes", "TrainingMode", "export"), ".exporting"),
    },
)
