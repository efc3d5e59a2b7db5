"""ONNX both ways: models read into graphs of MegEngine's operators, graphs written as models."""

from ..base.registry import exported

# Reading and writing do not import each other.
with exported(__name__) as _exported:
    from ..dump import load as load
    from .exported import Exported as Exported
    from .exporting import export as export
    from .loading import load_model as load_model
    from .options import OperatorExportTypes as OperatorExportTypes, TrainingMode as TrainingMode
    from .sizes import Dim as Dim

__getattr__ = _exported.find
