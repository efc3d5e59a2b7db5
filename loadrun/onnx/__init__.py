"""ONNX both ways."""

from .export import Exported, OperatorExportTypes, TrainingMode, export
from .sizes import Dim

__all__ = ["Dim", "Exported", "OperatorExportTypes", "TrainingMode", "export"]
