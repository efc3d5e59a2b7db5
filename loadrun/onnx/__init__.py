"""ONNX both ways: models read into graphs of MegEngine's operators, graphs written as models."""

from typing import TYPE_CHECKING

from ..base.registry import lazy

if TYPE_CHECKING:
    from ..dump import load
    from .exported import Exported
    from .exporting import export
    from .loading import load_model
    from .options import OperatorExportTypes, TrainingMode
    from .sizes import Dim

__all__ = ["Dim", "Exported", "OperatorExportTypes", "TrainingMode", "export", "load", "load_model"]

# Reading and writing do not import each other.
__getattr__ = lazy(
    __name__,
    {
        "Dim": ".sizes",
        "load": "..dump",
        "load_model": ".loading",
        "Exported": ".exported",
        "export": ".exporting",
        **dict.fromkeys(("OperatorExportTypes", "TrainingMode"), ".options"),
    },
)
